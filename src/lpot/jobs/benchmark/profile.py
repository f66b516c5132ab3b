"""Time by op of two models of one net, each in a process of its own, in turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import numpy as np

from lpot.core.errors import EvaluationError
from lpot.core.measure import turns
from lpot.core.results.benchmark import Settings
from lpot.core.results.profile import OpTime, Profile, contrast, quickest
from lpot.jobs.benchmark.api import Arena, Progress, prepared
from lpot.jobs.benchmark.entry import Source
from lpot.jobs.benchmark.feed import Feeds
from lpot.jobs.benchmark.team import Team

SECONDS = 6.0  # for both models together, unless runs are so long that fewer don't make sense


def profile(
    before: Source,
    after: Source,
    *,
    feeds: Feeds | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch_size: int | None = None,
    settings: Settings = Settings(warmup=2),  # noqa: B008 - a frozen value
    seconds: float = SECONDS,
    environment: Mapping[str, str] | None = None,
    progress: Progress | None = None,
) -> Profile:
    """Seconds of every op in the FP32 model and in the low-precision one, and which ops lose.

    Takes what `benchmark` takes. A profiler slows a model down a little: the sum of the ops is for
    comparing them with each other, the speed of the whole is what `benchmark` says.
    """
    arena = Arena((before, after), feeds, shapes, batch_size, settings, (), environment or {})
    with prepared(arena) as ready:
        for team in ready.teams:
            if team.error is not None:
                label = team.contestant.label
                raise EvaluationError(f"{label} could not be profiled: {team.error}")
        found = by_op(ready.teams, seconds, progress, ready.room.enter)
    return replace(found, notes=(*found.notes, *ready.shapes.notes, *ready.room.notes))


# -- Time by op of two models whose processes are up already.


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
