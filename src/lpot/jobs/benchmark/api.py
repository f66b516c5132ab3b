"""Measure models against each other, each in a process of its own, in turns."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lpot.core.cpu import Cpu, available_memory, probe
from lpot.core.errors import ConfigError, EvaluationError
from lpot.core.feed import Shapes, unite
from lpot.core.load import Load
from lpot.core.measure import (
    MOST_DISTURBED,
    compare_timings,
    rounds_needed,
    take_turns,
)
from lpot.core.results.benchmark import BenchmarkResult, Layout, Measured, Settings
from lpot.jobs.benchmark.child import CAN_HALT
from lpot.jobs.benchmark.contestant import Contestant
from lpot.jobs.benchmark.entry import Source, contestants, fresh
from lpot.jobs.benchmark.feed import Feeds, aligned, batches, is_by_place
from lpot.jobs.benchmark.ops import profiled
from lpot.jobs.benchmark.team import Team

# -- Memory for the models of a benchmark: side by side, or one after the other where it is short.


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


Progress = Callable[[int, int], None]

NOISY = 0.25  # rounds whose medians spread by more than this part of the median


def benchmark(
    models: Sequence[Source],
    *,
    feeds: Feeds | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch_size: int | None = None,
    settings: Settings = Settings(),  # noqa: B008 - a frozen value
    layouts: Sequence[Layout] = (),
    environment: Mapping[str, str] | None = None,
    progress: Progress | None = None,
    look: Callable[[Sequence[Team]], Sequence[str]] | None = None,
    profile_seconds: float = 0.0,
) -> BenchmarkResult:
    """Time one model, or several against the first.

    Args:
        models: paths, model handles, `pkg.mod:factory`, or `Contestant`s.
        feeds: a batch by input name or a tuple by place, or a list of such to be used in turn;
            made up when not given.
        shapes: sizes by input name, for dimensions the models leave open.
        batch_size: size of an open first dimension.
        settings: warm-up, rounds, threads, instances.
        layouts: each model runs once in each of these instead of the settings' instances and cores.
        environment: further variables for the children.
        progress: told (turns done, turns in all) after each.
        profile_seconds: time the ops of the first two models as well, for so long; 0: don't.
        look: given the teams, whose first outputs are kept on disk meanwhile; adds notes.

    Where memory does not suffice for all at once, each is opened anew for its turns, of which there
    are fewer then; the notes say so. A model that fails does not stop the others: it is in the
    result with its `error`. So it is with one instance of several.
    """
    arena = Arena(
        models,
        feeds,
        shapes,
        batch_size,
        settings,
        tuple(layouts),
        environment or {},
        keep_outputs=look is not None,
    )
    with prepared(arena) as ready:
        teams = standing(ready.teams)
        seen = () if look is None else look(teams)
        settings = replace(settings, rounds=teams[0].settings.rounds)
        steps = len(teams) * settings.turns
        take_turns(
            len(teams),
            settings.turns,
            lambda who: _turn(ready, teams[who]),
            lambda who, at, better: teams[who].settle(at, better),
            (lambda done: None) if progress is None else (lambda done: progress(done, steps)),
        )
        wanted = profile_seconds and not ready.room.crowded
        ops = profiled(ready.teams, profile_seconds) if wanted else None
        found = _notes(standing(ready.teams), ready.cpu)
        notes = (*seen, *ready.shapes.notes, *ready.room.notes, *found)
    measured = _measured(ready.teams, ready.shapes.batch_size)
    sizes = ready.shapes
    return BenchmarkResult(
        measured, sizes.inputs, sizes.batch_size, settings, ready.cpu, notes, ops
    )


def _turn(ready: Ready, team: Team) -> Load:
    ready.room.enter(team)
    return team.run()


@dataclass(frozen=True, eq=False)
class Arena:
    """Who is to be measured, on what and how."""

    models: Sequence[Source]
    feeds: Feeds | None
    shapes: Mapping[str, Sequence[int]] | None
    batch_size: int | None
    settings: Settings
    layouts: tuple[Layout, ...]
    environment: Mapping[str, str]
    keep_outputs: bool = False


@dataclass(frozen=True, eq=False)
class Ready:
    """Loaded, fed, warmed up and halted."""

    teams: Sequence[Team]
    shapes: Shapes
    cpu: Cpu
    room: Room


@contextmanager
def prepared(arena: Arena) -> Iterator[Ready]:
    """The teams of all models; their processes live as long as the block."""
    if not arena.models:
        raise ConfigError("no model was given: expected at least one", "models")
    cpu = probe()
    arena.settings.check(cpu, len(arena.models) * max(1, len(arena.layouts)))
    with tempfile.TemporaryDirectory(prefix="lpot-benchmark-") as name:
        folder = Path(name)
        teams = [
            Team(one, settings, cpu, folder / str(index), arena.environment)
            for index, (one, settings) in enumerate(_laid_out(arena, cpu, folder))
        ]
        try:
            for team in teams:
                team.load()
            known = {
                team.contestant.label: team.inputs
                for team in standing(teams)
                if team.inputs is not None
            }
            united = unite(aligned(known) if is_by_place(arena.feeds) else known) if known else None
            batch = batches(
                united, arena.feeds, arena.shapes, arena.batch_size, arena.settings.seed
            )
            order = batch.store(folder)
            room = Room(teams)
            for team in standing(teams):
                room.prepare(team)
                team.prepare(order, arena.keep_outputs)
            standing(teams)
            yield Ready(teams, batch.shapes, cpu, room)
        finally:
            for team in teams:
                team.end()


def standing(teams: Sequence[Team]) -> list[Team]:
    """The teams that have not fallen; none at all is an error."""
    found = [team for team in teams if team.error is None]
    if not found:
        causes = "; ".join(f"{team.contestant.label}: {team.error}" for team in teams)
        raise EvaluationError(f"no model could be measured: {causes}")
    return found


def _laid_out(arena: Arena, cpu: Cpu, folder: Path) -> list[tuple[Contestant, Settings]]:
    """Each model in each layout, under a label that tells them apart."""
    entered = contestants(arena.models, folder)
    if not arena.layouts:
        return [(one, arena.settings) for one in entered]
    pairs: list[tuple[Contestant, Settings]] = []
    for one in entered:
        for layout in arena.layouts:
            label = fresh(f"{one.label} {layout}", [other.label for other, _ in pairs])
            pairs.append((replace(one, label=label), arena.settings.laid_out(layout, cpu)))
    return pairs


def _measured(teams: Sequence[Team], batch_size: int) -> tuple[Measured, ...]:
    first = standing(teams)[0]
    reference = first.timing(batch_size)
    found = []
    for team in teams:
        one = Measured(team.contestant.label, error=team.error)
        if team.error is None:
            timing = team.timing(batch_size)
            one = replace(
                one,
                framework=team.facts["framework"],
                timing=timing,
                instances=team.instances,
                load_seconds=team.facts["seconds"],
                peak_memory=team.facts["peak_memory"],
                size=team.facts["size"],
                versions=team.facts["versions"],
                comparison=None if team is first else compare_timings(reference, timing),
                parts=team.parts(batch_size),
            )
        found.append(one)
    return tuple(found)


def _notes(teams: Sequence[Team], cpu: Cpu) -> list[str]:
    notes = list(cpu.notes)
    if not CAN_HALT and len(teams) > 1:
        notes.append(
            "idle models can't be paused on this system: their threads may disturb the timing"
        )
    settings = teams[0].settings
    threads = (settings.threads or settings.share(cpu)) * settings.instances
    if threads > cpu.cores:
        notes.append(f"{threads} threads share {cpu.cores} core(s): they wait for each other")
    for team in teams:
        quarters = np.percentile([pace[0] for pace in team.paces], [25, 50, 75])
        if quarters[2] - quarters[0] > NOISY * quarters[1]:
            notes.append(f"{team.contestant.label}: rounds differ a lot")
    taken = [load.taken for team in teams for load in team.loads if load.is_disturbed]
    rounds = sum(len(team.loads) for team in teams)
    if len(taken) > MOST_DISTURBED * rounds:
        notes.append(
            f"the machine was busy: in {len(taken)} of {rounds} rounds, repeated ones included, "
            f"others took up to {max(taken):.0%} of the cores; ratios are those of CPU time, and "
            "latencies are longer than on a quiet machine"
        )
    return notes
