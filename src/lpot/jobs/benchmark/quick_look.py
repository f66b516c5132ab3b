"""A quick look at a model's time and memory, for choosing among trials; the proof comes later."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from lpot.core.batch import Inputs
from lpot.core.errors import LpotError
from lpot.core.measure import Timing, latency
from lpot.core.model import Model
from lpot.core.results.benchmark import Settings
from lpot.core.trial import Score
from lpot.jobs.benchmark.api import benchmark

logger = logging.getLogger(__name__)

SECONDS = 0.3
LOOKS = 3  # at most, on a machine that others use as well
_ONE_LOOK = Settings(iteration=1, warmup=1)


@dataclass(frozen=True, eq=False)
class QuickLook:
    """What is measured of each trial, on which batch. The same in whatever process it is made."""

    inputs: Inputs | None = None
    time: bool = False  # of a batch, here and now
    memory: bool = False  # the peak of a process that does nothing but run the model

    def __call__(self, model: Model, score: Score) -> Score:
        inputs = self.inputs
        if inputs is None:
            return score
        if self.time:
            look = _quiet(
                lambda: latency(lambda: model.backend.run(model, inputs), seconds=SECONDS)
            )
            score = replace(score, latency=look.median)
        if self.memory:
            score = replace(score, memory=peak_memory(model, inputs))
        return score


def _quiet(look: Callable[[], Timing]) -> Timing:
    """A look that others did not disturb, or the one of a few that they disturbed least."""
    best = look()
    for _ in range(LOOKS - 1):
        if not best.disturbed:
            break
        best = min(best, look(), key=lambda timing: timing.loads[0].taken)
    return best


def peak_memory(model: Model, inputs: Inputs) -> int | None:
    """Bytes, or None where it can't be measured."""
    names = model.input_names or ()
    feeds = inputs if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=True))
    try:
        (measured,) = benchmark([model], feeds=feeds, settings=_ONE_LOOK).models
    except (LpotError, OSError) as error:
        logger.warning("memory was not measured: %s", error)
        return None
    if measured.error is not None:
        logger.warning("memory was not measured: %s", measured.error)
    return measured.peak_memory or None
