"""What a search begins with where a runtime has more than one precision of floats.

INT8 with the rest in FP32, with the rest in 16 bits, or 16 bits alone: which of them is the fastest
depends on the net and on the CPU, so they are timed; how far each is from FP32 needs no labels.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from lpot.core.backend import Backend, Observations
from lpot.core.batch import Inputs
from lpot.core.errors import LpotError
from lpot.core.files.journal import key_of
from lpot.core.files.timetable import keep, recall
from lpot.core.measure import latency, turns
from lpot.core.model import Model
from lpot.core.ptq.distance import few, mean_distance
from lpot.core.recipe import Recipe
from lpot.jobs.tune.job import Job

logger = logging.getLogger(__name__)

ROUNDS, SECONDS = 5, 0.15  # of each candidate
ALIKE = 1.03  # times as long: nobody notices; the one nearer to FP32 comes first
# Of INT8's error, above which 16 bits alone do harm, too: an op that goes back to floats because
# eight bits are too few for it gains nothing by the eight of BF16's mantissa.
HARM = 0.1


@dataclass(frozen=True)
class Start:
    """A recipe, how long it takes, and how far its outputs are from FP32's."""

    recipe: Recipe
    seconds: float
    error: float

    def to_json(self) -> dict[str, Any]:
        return {"recipe": self.recipe.to_json(), "seconds": self.seconds, "error": self.error}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Start:
        return cls(Recipe.from_json(raw["recipe"]), float(raw["seconds"]), float(raw["error"]))


def starts(job: Job, recipe: Recipe) -> Sequence[Recipe]:
    """Where to begin, the fastest first; each later one is nearer to FP32 than those before it.

    What was measured is kept with the run, so that a rerun begins alike on a busy machine.
    """
    if not job.backend.floats or not recipe.low_ops:
        return (recipe,)
    place = job.workspace.folder / f"starts-{key_of(job.fingerprint)}-{recipe.digest}.json"
    known = recall(place, lambda raw: [Start.from_json(one) for one in raw])
    if known is None:
        observations, inputs = job.observe(recipe.samples), job.timing_inputs
        if observations is None or not observations.probe or inputs is None:
            return (recipe,)
        job.listener.phase("timing INT8 against floats of 16 bits")
        known = measured(job.backend, job.model, recipe, observations, inputs, job.add_note)
        job.model.close()
        keep(place, [start.to_json() for start in known], "the first recipes are")
    return [start.recipe for start in in_order(known)] or (recipe,)


def in_order(measured: Sequence[Start]) -> list[Start]:
    """The fastest first; what is slower and no nearer to FP32 is left out.

    >>> one, two, three = (Recipe({}, samples) for samples in (1, 2, 3))
    >>> found = in_order([Start(one, 1.0, 0.5), Start(two, 2.0, 0.1), Start(three, 2.5, 0.2)])
    >>> [start.recipe.samples for start in found]
    [1, 2]
    """
    left, chosen = list(harmless(measured)), list[Start]()
    while left:
        quickest = min(start.seconds for start in left)
        near = [start for start in left if start.seconds <= ALIKE * quickest]
        best = min(near, key=lambda start: start.error)
        chosen.append(best)
        left = [start for start in left if start.error < best.error and start is not best]
    return chosen


def harmless(measured: Sequence[Start]) -> Sequence[Start]:
    """Without INT8 between floats of 16 bits, where these are not exact enough by themselves."""
    exact = [one.error for one in measured if one.recipe.low_ops and not one.recipe.repairs.floats]
    alone = {one.recipe.repairs.floats: one.error for one in measured if not one.recipe.low_ops}
    bound = HARM * min(exact, default=0.0)
    return [
        one
        for one in measured
        if not one.recipe.low_ops or alone.get(one.recipe.repairs.floats, 0.0) <= bound
    ]


def measured(
    backend: Backend[Any],
    source: Model,
    recipe: Recipe,
    observations: Observations,
    inputs: Inputs,
    left_out: Callable[[str], None] = logger.info,
) -> list[Start]:
    """Each candidate built, timed in turns, and compared with FP32."""
    probe = few(observations.probe)
    truth = backend.run_few(source, probe)
    candidates = candidates_of(backend.floats, recipe)
    if gains := backend.gains(source, candidates[0], observations):
        losers = [key for key, seconds in gains.items() if seconds < 0]
        if losers and len(losers) < len(recipe.low_ops):
            candidates.append(candidates[0].with_float(losers))
    made, errors = [], []
    with ExitStack() as stack:
        for candidate in candidates:
            try:
                model = backend.build(source, candidate, observations)
                errors.append(mean_distance(truth, backend.run_few(model, probe)))
            except LpotError as error:
                left_out(f"{', '.join(candidate.repairs.to_json())} is not tried: {error}")
                continue
            stack.enter_context(closing(model))
            made.append((candidate, model))
        seconds = timed([partial(backend.run, model, inputs) for _, model in made])
    found = zip(made, seconds, errors, strict=True)
    return [Start(candidate, took, off) for (candidate, _), took, off in found]


def candidates_of(floats: Sequence[str], recipe: Recipe) -> list[Recipe]:
    """INT8 with each precision of the rest, and each of these without INT8."""
    alone = recipe.with_float(recipe.low_ops)
    with_int8 = [replace(recipe, repairs=replace(recipe.repairs, floats=word)) for word in floats]
    without = [replace(alone, repairs=replace(alone.repairs, floats=word)) for word in floats]
    return [*with_int8, recipe, *without]


def timed(calls: Sequence[Callable[[], Any]]) -> list[float]:
    """The shortest median of each, in turns: what others do to a machine only ever adds."""
    medians: list[list[float]] = [[] for _ in calls]
    for index in turns(len(calls), ROUNDS):
        found = latency(calls[index], warmup=1, seconds=SECONDS / ROUNDS)
        medians[index].append(found.median)
    return [min(found) for found in medians]
