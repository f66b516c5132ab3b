"""Time by op of two models of one net, each in a process of its own, in turns."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from lpot.core.errors import EvaluationError
from lpot.core.results.benchmark import Settings
from lpot.core.results.profile import Profile
from lpot.jobs.benchmark.api import Arena, Progress, prepared
from lpot.jobs.benchmark.entry import Source
from lpot.jobs.benchmark.feed import Feeds
from lpot.jobs.benchmark.ops import by_op

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
