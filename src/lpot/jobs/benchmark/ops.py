"""Time by op of two models whose processes are up already."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from lpot.core.errors import EvaluationError
from lpot.core.measure import turns
from lpot.core.results.profile import OpTime, Profile, contrast, quickest
from lpot.jobs.benchmark.team import Team

TURNS = 3
MOST_RUNS = 30  # of each turn


def profiled(teams: Sequence[Team], seconds: float) -> Profile | None:
    """The first team's ops against the second's; None where they can't be told."""
    if len(teams) < 2 or any(team.error is not None for team in teams[:2]):
        return None
    try:
        return by_op(teams[:2], seconds)
    except EvaluationError:
        return None


def by_op(
    teams: Sequence[Team],
    seconds: float,
    progress: Callable[[int, int], None] | None = None,
    enter: Callable[[Team], None] = lambda _: None,
) -> Profile:
    """Both in turns, for about so many seconds in all; `enter` makes room for whose turn it is."""
    found: list[list[list[OpTime]]] = [[], []]
    for done, index in enumerate(turns(2, TURNS), 1):
        enter(teams[index])
        found[index].append(_ask(teams[index], seconds / (2 * TURNS)))
        if progress is not None:
            progress(done, 2 * TURNS)
    frameworks = dict.fromkeys(str(team.facts["framework"]) for team in teams)
    notes = []
    if len(frameworks) > 1:
        notes.append("two frameworks name their ops differently: few of them can be matched")
    return contrast(quickest(found[0]), quickest(found[1]), ", ".join(frameworks), notes)


def _ask(team: Team, seconds: float) -> list[OpTime]:
    known = [pace[0] for pace in team.paces]
    one = float(np.median(known)) if known else team.first_seconds
    runs = max(1, min(MOST_RUNS, int(seconds / max(one, 1e-6))))
    for answer in team.ask({"do": "profile", "runs": runs}).values():
        if answer["ops"] is None:
            raise EvaluationError(f"{team.contestant.label}: {answer['why']}")
        return [OpTime.from_json(raw) for raw in answer["ops"]]
    raise EvaluationError(f"{team.contestant.label} could not be profiled: {team.error}")
