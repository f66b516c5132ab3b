"""What each op saves in low precision: timed alone, or as the whole model with and without it."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from lpot.core.files.timetable import Timetable
from lpot.core.numerics.observations import Observations
from lpot.core.progress import tracked
from lpot.core.ptq.sensitivity import leaders
from lpot.core.recipe import OpKey, Recipe

if TYPE_CHECKING:
    from lpot.core.backend import Backend

SECONDS = 20.0  # for all ops: of those that are not reached nothing is said
ROUNDS = 5


class LoneOp(Protocol):
    """One op by itself, with an input of the shape that it gets in the model."""

    @property
    def name(self) -> str:
        """What decides its time, as `identity` gives it: ops of one name are timed once."""
        ...

    @property
    def parts(self) -> tuple[str, ...]:
        """What is timed of it: its FP32 form, its low-precision form, conversions."""
        ...

    def seconds(self, part: str) -> float: ...


def kernel_times(
    ops: Mapping[OpKey, LoneOp], versions: Mapping[str, str]
) -> dict[OpKey, tuple[float, ...]]:
    """Seconds of each op's parts on this machine, measured unless they are known already."""
    table = Timetable.of_this_machine(versions)
    found = {
        key: tuple(
            table.seconds(f"{part} {op.name}", partial(op.seconds, part)) for part in op.parts
        )
        for key, op in tracked(list(ops.items()))
    }
    table.save()
    return found


def identity(kind: str, *facts: object) -> str:
    """A short name for an op of these attributes and sizes.

    >>> identity("Conv", (1, 3, 8, 8))
    'Conv f925b371b908f587'
    """
    return f"{kind} {hashlib.sha256(repr(facts).encode()).hexdigest()[:16]}"


def measured_gains(
    backend: Backend[Any], model: Any, recipe: Recipe, observations: Observations
) -> dict[OpKey, float]:
    """Seconds a batch that the model takes longer with one op back in FP32.

    A backend that can time an op by itself tells small differences better.
    """
    if not observations.probe:
        return {}
    inputs = observations.probe[0]
    low = backend.build(model, recipe, observations)
    ends = time.monotonic() + SECONDS
    found: dict[OpKey, float] = {}
    for key in tracked(leaders(backend, model, recipe)):
        if time.monotonic() > ends:
            continue
        back = backend.build(model, recipe.with_float([key]), observations)
        found[key] = longer(lambda: backend.run(back, inputs), lambda: backend.run(low, inputs))  # noqa: B023
        back.close()
    low.close()
    return found


def longer(one: Callable[[], Any], other: Callable[[], Any]) -> float:
    """By how many seconds `one` takes longer, taken in turns; 0.0 where the turns disagree."""
    one(), other()  # threads and caches are warm now
    turns = [_seconds(one) - _seconds(other) for _ in range(ROUNDS)]
    agree = min(turns) > 0.0 or max(turns) < 0.0
    return float(np.median(turns)) if agree else 0.0


def _seconds(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began
