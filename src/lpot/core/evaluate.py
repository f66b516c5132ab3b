"""Scoring a model: the user's eval_func, or a loader and a metric."""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import islice
from operator import length_hint
from typing import Any, Protocol, TypeVar

import numpy as np

from lpot.core.batch import Batch, split
from lpot.core.errors import DataError, EvaluationError
from lpot.core.model import Model
from lpot.core.progress import Listener
from lpot.core.race import Race, hardest_first, margins
from lpot.core.trial import Score

Function = TypeVar("Function", bound=Callable[..., Any])
_MARK = "__lpot_takes_session__"


def takes_session(function: Function) -> Function:
    """Mark an eval_func that wants the ready session (or module) instead of the plain model.

    >>> @takes_session
    ... def accuracy(session): ...
    """
    setattr(function, _MARK, True)
    return function


class Evaluator(Protocol):
    """Gives a Score for a model. `identity` tells whether it is the one of an earlier run."""

    name: str  # as messages call it

    @property
    def identity(self) -> str | None: ...

    def __call__(self, model: Model, race: Race | None = None) -> Score: ...


class FunctionEvaluator:
    """The user's own eval_func."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        if not callable(function):
            raise EvaluationError(
                f"eval_func must be a function of one model, got a {type(function).__name__}"
            )
        self.function = function
        self.name = f"eval_func {getattr(function, '__qualname__', type(function).__qualname__)}"
        self.identity = source_hash(function)

    def __call__(self, model: Model, race: Race | None = None) -> Score:
        target = model.runner if getattr(self.function, _MARK, False) else model.native
        start = time.perf_counter()
        value = self.function(target)
        return Score(as_number(value, self.name), time.perf_counter() - start)


class Metric(Protocol):
    def reset(self) -> None: ...
    def update(self, preds: Any, labels: Any) -> None: ...
    def result(self) -> Any: ...


class MetricEvaluator:
    """A loader and a metric; `postprocess` takes and gives (predictions, labels)."""

    def __init__(
        self,
        loader: Iterable[Any],
        metric: Metric,
        postprocess: Callable[[Any], Any] | None = None,
        iteration: int = -1,
        listener: Listener | None = None,
        reference: Model | None = None,
    ) -> None:
        if isinstance(loader, Iterator):
            raise DataError(
                f"the evaluation loader is a {type(loader).__name__}, which can be read only once, "
                "but every trial reads it again: give a list, or an object with __iter__"
            )
        self.loader = loader
        self.metric = metric
        self.postprocess = postprocess
        self.iteration = iteration
        self.listener = listener or Listener()
        self.reference = reference  # the FP32 model, for metrics that compare with its outputs
        self._order: list[int] | None = None  # of batches, once FP32 has shown which are hard
        self.name = self.identity = f"metric {type(metric).__qualname__}"

    def __call__(self, model: Model, race: Race | None = None) -> Score:
        start = time.perf_counter()
        self.metric.reset()
        forget = getattr(self.postprocess, "reset", None)
        if forget is not None:
            forget()
        gaps: list[float] = []
        samples = 0
        for number, raw in enumerate(self._batches(), start=1):
            batch = split(raw, model.input_names)
            outputs = model.backend.run(model, batch.inputs)
            preds = outputs[0] if len(outputs) == 1 else outputs
            gaps.append(margins(preds))
            self._update(preds, self._labels(batch))
            samples += batch.size
            self.listener.step(number)
            lost = race.lost(self.metric, time.perf_counter() - start) if race else None
            if lost is not None:
                return lost
        if not samples:
            raise DataError("the evaluation loader gave no batch: it is empty, or already used up")
        if self._order is None and isinstance(self.loader, list | tuple):
            self._order = hardest_first(gaps)
        value = as_number(self.metric.result(), self.name)
        return Score(value, time.perf_counter() - start, samples)

    def _batches(self) -> Iterator[Any]:
        steps = [n for n in (self.iteration, length_hint(self.loader, 0)) if n > 0]
        if steps:
            self.listener.expect(min(steps))
        if self._order is not None and isinstance(self.loader, list | tuple):
            return (self.loader[index] for index in self._order)
        return islice(self.loader, self.iteration if self.iteration > 0 else None)

    def _labels(self, batch: Batch) -> Any:
        """The labels, or what the FP32 model says where the metric compares with that."""
        if not getattr(self.metric, "compare_label", True) and self.reference is not None:
            outputs = self.reference.backend.run(self.reference, batch.inputs)
            return outputs[0] if len(outputs) == 1 else outputs
        if batch.labels is None and getattr(self.metric, "compare_label", True):
            raise DataError(
                "the evaluation loader gives no labels, and the metric needs them: "
                "let it yield (inputs, labels)"
            )
        return batch.labels

    def _update(self, preds: Any, labels: Any) -> None:
        if self.postprocess is not None:
            preds, labels = self.postprocess((preds, labels))
        self.metric.update(preds, labels)


def as_number(value: Any, who: str) -> float:
    """A score from what the user's code returned, or an error that names it.

    >>> as_number({"accuracy": np.float32(0.5)}, "eval_func f")
    0.5
    """
    if value is None:
        raise EvaluationError(
            f"{who} returned None: it must return the score (is a `return` missing?)"
        )
    if isinstance(value, Mapping):
        if len(value) != 1:
            raise EvaluationError(
                f"{who} returned {len(value)} numbers ({', '.join(map(str, value))}): "
                "return the one to tune by"
            )
        return as_number(next(iter(value.values())), who)
    if isinstance(value, str | bytes):
        raise EvaluationError(f"{who} returned the text {value!r}: it must return a number")
    if hasattr(value, "detach") and getattr(value, "numel", lambda: 0)() == 1:
        value = value.detach().item()  # a tensor of any device and dtype, bfloat16 included
    try:
        array = np.asarray(value)
        if array.dtype.kind in "cSUMm":
            raise TypeError(f"{array.dtype} is not a real number")
        array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise EvaluationError(
            f"{who} returned a {type(value).__name__}, which is not a number ({error})"
        ) from error
    if array.size != 1:
        raise EvaluationError(
            f"{who} returned {array.size} numbers in a {type(value).__name__}: "
            "return the one to tune by"
        )
    number = float(array.reshape(()))
    if not math.isfinite(number):
        raise EvaluationError(f"{who} returned {number}: it must return a finite number")
    return number


def source_hash(function: Callable[..., Any]) -> str | None:
    """Hash of a function's source, to notice that it changed between runs.

    Of a `functools.partial` the function inside counts, of a callable object its `__call__`.
    """
    target: Any = inspect.unwrap(function)
    while isinstance(target, functools.partial):
        target = inspect.unwrap(target.func)
    if not inspect.isroutine(target) and not inspect.isclass(target):
        target = type(target).__call__
    try:
        text = inspect.getsource(target)
    except (OSError, TypeError):
        code = getattr(target, "__code__", None)
        if code is None:
            return None
        # Constants tell `return 0.5` from `return 0.6`; inner code objects print their address.
        constants = [value for value in code.co_consts if not hasattr(value, "co_code")]
        text = f"{code.co_code.hex()}{code.co_names}{constants}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
