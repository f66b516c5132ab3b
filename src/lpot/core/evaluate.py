"""Scoring a model: the user's eval_func, or a loader and a metric."""

from __future__ import annotations

import hashlib
import inspect
import math
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np

from lpot.core.batch import split
from lpot.core.errors import DataError, EvaluationError
from lpot.core.limits import Watch
from lpot.core.model import Model
from lpot.core.progress import Listener
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

    @property
    def identity(self) -> str | None: ...

    def __call__(self, model: Model) -> Score: ...


class FunctionEvaluator:
    """The user's own eval_func."""

    def __init__(self, function: Callable[[Any], Any]) -> None:
        if not callable(function):
            raise EvaluationError(
                f"eval_func must be a function of one model, got a {type(function).__name__}"
            )
        self.function = function
        self.identity = source_hash(function)

    def __call__(self, model: Model) -> Score:
        target = model.runner if getattr(self.function, _MARK, False) else model.native
        start = time.perf_counter()
        value = self.function(target)
        name = getattr(self.function, "__qualname__", repr(self.function))
        return Score(as_number(value, f"eval_func {name}"), time.perf_counter() - start)


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
        watch: Watch | None = None,
    ) -> None:
        self.loader = loader
        self.metric = metric
        self.postprocess = postprocess
        self.iteration = iteration
        self.listener = listener or Listener()
        self.watch = watch
        self.identity = f"metric {type(metric).__qualname__}"

    def __call__(self, model: Model) -> Score:
        start = time.perf_counter()
        self.metric.reset()
        samples = 0
        batches = 0
        for raw in self.loader:
            if batches == self.iteration:
                break
            batch = split(raw, model.input_names)
            if batch.labels is None and getattr(self.metric, "compare_label", True):
                raise DataError(
                    "the evaluation loader gives no labels, and the metric needs them: "
                    "let it yield (inputs, labels)"
                )
            outputs = model.backend.run(model, batch.inputs)
            preds, labels = outputs[0] if len(outputs) == 1 else outputs, batch.labels
            if self.postprocess is not None:
                preds, labels = self.postprocess((preds, labels))
            self.metric.update(preds, labels)
            samples += batch.size
            batches += 1
            self.listener.step(batches)
        if not batches:
            raise DataError("the evaluation loader gave no batch: it is empty, or already used up")
        value = as_number(self.metric.result(), f"metric {type(self.metric).__name__}")
        return Score(value, time.perf_counter() - start, samples)


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
    if hasattr(value, "detach"):
        value = value.detach().cpu().numpy()
    try:
        array = np.asarray(value, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise EvaluationError(
            f"{who} returned a {type(value).__name__}, which is not a number: {value!r:.80}"
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
    """Hash of a function's source, to notice that it changed between runs."""
    target = inspect.unwrap(function)
    try:
        text = inspect.getsource(target)
    except (OSError, TypeError):
        code = getattr(target, "__code__", None)
        if code is None:
            return None
        text = f"{code.co_code.hex()}{code.co_names}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
