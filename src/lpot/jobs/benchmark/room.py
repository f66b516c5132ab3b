"""Memory for the models of a benchmark: side by side, or one after the other where it is short."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from lpot.core.cpu import available_memory
from lpot.core.measure import rounds_needed
from lpot.jobs.benchmark.team import Team


class Room:
    """Lets teams in. Once they do not fit beside each other, all but one rest."""

    def __init__(self, teams: Sequence[Team]) -> None:
        self._teams = teams
        self.crowded = False

    def prepare(self, team: Team) -> None:
        """Before a team takes its memory: is there as much left as the biggest so far took?"""
        if not self.crowded and 0 < available_memory() < self._biggest:
            self.crowded = True
            for one in self._teams:
                # A fresh process for each round takes its time: as few as a comparison needs.
                fewer = min(one.settings.rounds, rounds_needed())
                one.settings = replace(one.settings, rounds=fewer)
        self.enter(team)

    def enter(self, team: Team) -> None:
        for other in self._teams:
            if self.crowded and other is not team:
                other.rest()

    @property
    def notes(self) -> tuple[str, ...]:
        if not self.crowded:
            return ()
        return (
            "there was not enough memory for all models at once: each was opened anew for its "
            f"rounds, {self._teams[0].settings.turns} of each",
        )

    @property
    def _biggest(self) -> int:
        """Bytes, as far as teams have run."""
        return max((team.facts.get("peak_memory", 0) for team in self._teams), default=0)
