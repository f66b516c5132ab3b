"""Scoring a model: the user's eval_func, or a loader and a metric."""

from __future__ import annotations

import functools
import hashlib
import inspect
import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from typing import Any, Protocol, TypeVar

import numpy as np

from lpot.core.batch import Batch, split
from lpot.core.course import Course, hardness
from lpot.core.errors import DataError, EvaluationError
from lpot.core.model import Model
from lpot.core.progress import Listener
from lpot.core.race import Race
from lpot.core.tally import USUAL, Bounds, Tally, is_part, read_part, tally_of
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

    @property
    def memory(self) -> Any:
        """What the baseline taught it, as JSON: a resumed run must race as the first one did."""

    def remember(self, memory: Any) -> None: ...

    def __call__(self, model: Model, race: Race | None = None) -> Score: ...


class FunctionEvaluator:
    """The user's own eval_func: `f(model)` gives the score.

    Two forms can be raced, where the score is a mean over samples:

    - a generator that yields, for each batch, `(sum of scores, number of samples)` or one score
      per sample as an array;
    - `f(model, limit=None)` that returns the same for the first `limit` samples, None for all.

    Scores of single samples are taken to lie in 0 to 1; an end that FP32 is seen to pass is given
    up. `f.bounds = (low, high)` says otherwise, and is then held to.
    """

    def __init__(self, function: Callable[..., Any], listener: Listener | None = None) -> None:
        if not callable(function):
            raise EvaluationError(
                f"eval_func must be a function of one model, got a {type(function).__name__}"
            )
        self.function = function
        self.listener = listener or Listener()
        self.name = f"eval_func {getattr(function, '__qualname__', type(function).__qualname__)}"
        self.identity = source_hash(function)
        self._limited = _takes_limit(function)
        self._declared = _declared_bounds(function, self.name)
        self._bounds = self._declared or USUAL
        # The usual bounds count once a whole evaluation has kept to them.
        self._trusted = self._declared is not None

    def __call__(self, model: Model, race: Race | None = None) -> Score:
        target = model.runner if getattr(self.function, _MARK, False) else model.native
        start = time.perf_counter()
        race = race if self._trusted else None
        lost = self._look(target, race, start) if self._limited and race is not None else None
        if lost is not None:
            return lost
        value = self.function(target)
        if isinstance(value, Generator):
            return self._follow(value, race, start)
        if self._limited and is_part(value):
            tally = self._add(Tally(bounds=self._bounds), value)
            return self._whole(tally, start)
        return Score(as_number(value, self.name), time.perf_counter() - start)

    @property
    def memory(self) -> list[float | None] | None:
        if not self._trusted:
            return None
        return [end if math.isfinite(end) else None for end in self._bounds]

    def remember(self, memory: Any) -> None:
        if self._declared is None and isinstance(memory, list) and len(memory) == 2:
            low, high = memory
            self._bounds = -math.inf if low is None else low, math.inf if high is None else high
            self._trusted = True

    def _follow(self, parts: Generator[Any, Any, Any], race: Race | None, start: float) -> Score:
        """The mean of what a generator yields, left as soon as the bar is out of reach."""
        tally = Tally(bounds=self._bounds)
        done = 0
        while True:
            try:
                value = next(parts)
            except StopIteration as end:
                if end.value is not None:
                    raise EvaluationError(
                        f"{self.name} yields and returned {end.value!r:.80} too: the score is the "
                        "mean of what it yields; return it from a plain function instead"
                    ) from None
                return self._whole(tally, start)
            tally = self._add(tally, value)
            done += 1
            self.listener.step(done)
            lost = race.lost(tally, time.perf_counter() - start) if race else None
            if lost is not None:
                parts.close()
                return lost

    def _look(self, target: Any, race: Race, start: float) -> Score | None:
        """A first look at few samples, where these can be enough to lose the bar."""
        everything, earliest = race.baseline.samples, race.earliest(self._bounds)
        if not everything or earliest is None:
            return None
        # Half as many again, since not each of them will be wrong; a dear look is not worth it.
        limit = max(-(-3 * earliest // 2), everything // 16)
        if limit > everything // 3:
            return None
        value = self.function(target, limit=limit)
        if isinstance(value, Generator):  # can be left at any batch: no look beforehand is needed
            value.close()
            return None
        tally = self._add(Tally(bounds=self._bounds), value)
        if tally.seen > limit:
            raise EvaluationError(
                f"{self.name} was asked for the first {limit} samples and scored {tally.seen}"
            )
        return race.lost(tally, time.perf_counter() - start)

    def _add(self, tally: Tally, value: Any) -> Tally:
        part = read_part(value, self.name)
        low, high = self._bounds
        if part.count and (part.least < low or part.most > high):
            if self._declared is not None:
                worst = part.least if part.least < low else part.most
                raise EvaluationError(
                    f"{self.name} gave the score {worst:g}, but its bounds are {low:g} to {high:g}"
                )
            low = low if part.least >= low else -math.inf
            high = high if part.most <= high else math.inf
            self._bounds = (low, high)
        return Tally(tally.seen + part.count, tally.total + part.total, self._bounds)

    def _whole(self, tally: Tally, start: float) -> Score:
        if not tally.seen:
            raise EvaluationError(f"{self.name} gave no score: its data are empty, or used up")
        self._trusted = True
        seconds = time.perf_counter() - start
        return Score(as_number(tally.mean, self.name), seconds, tally.seen)


def _takes_limit(function: Callable[..., Any]) -> bool:
    try:
        found = inspect.signature(function).parameters.get("limit")
    except (TypeError, ValueError):
        return False
    return found is not None and found.kind in (found.KEYWORD_ONLY, found.POSITIONAL_OR_KEYWORD)


def _declared_bounds(function: Callable[..., Any], who: str) -> Bounds | None:
    given = getattr(function, "bounds", None)
    if given is None:
        return None
    try:
        low, high = (float(end) for end in given)
    except (TypeError, ValueError) as error:
        raise EvaluationError(
            f"{who}.bounds is {given!r:.80}: expected the lowest and the highest score of a sample"
        ) from error
    if not low < high:
        raise EvaluationError(f"{who}.bounds is {given!r:.80}: expected (lower, higher)")
    return low, high


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
        self.listener = listener or Listener()
        self.reference = reference  # the FP32 model, for metrics that compare with its outputs
        self.name = self.identity = f"metric {type(metric).__qualname__}"
        self._course = Course(loader, iteration)

    def __call__(self, model: Model, race: Race | None = None) -> Score:
        start = time.perf_counter()
        self.metric.reset()
        forget = getattr(self.postprocess, "reset", None)
        if forget is not None:
            forget()
        if self._course.length:
            self.listener.expect(self._course.length)
        hard: list[np.ndarray] = []
        samples = 0
        for number, raw in enumerate(self._course.batches(model), start=1):
            batch = split(raw, model.input_names)
            outputs = model.backend.run(model, batch.inputs)
            preds = outputs[0] if len(outputs) == 1 else outputs
            self._update(preds, self._labels(batch))
            samples += batch.size
            if not self._course.is_known:
                hard.append(hardness(preds, self._losses(), batch.size))
            self.listener.step(number)
            lost = race.lost(tally_of(self.metric), time.perf_counter() - start) if race else None
            if lost is not None:
                return lost
        if not samples:
            raise DataError("the evaluation loader gave no batch: it is empty, or already used up")
        if hard and self._any_order():
            self._course.learn(hard)
        value = as_number(self.metric.result(), self.name)
        return Score(value, time.perf_counter() - start, self._count(value, samples))

    @property
    def memory(self) -> dict[str, list[int]] | None:
        return self._course.memory

    def remember(self, memory: Any) -> None:
        if isinstance(memory, dict):
            self._course.remember(memory)

    def _count(self, value: float, samples: int) -> int:
        """Samples as the metric counts them (questions, say, not windows), where it is their mean.

        Where the mean is over more than was scored, the larger number is on the safe side.
        """
        tally = tally_of(self.metric)
        if tally is None or not tally.seen or not math.isclose(tally.mean, value, rel_tol=1e-9):
            return samples
        return tally.seen

    def _losses(self) -> np.ndarray | None:
        """What each sample of the latest batch lost, as far as the metric tells."""
        latest = getattr(self.metric, "latest", None)
        if latest is None:
            return None
        return -latest if getattr(self.metric, "higher_is_better", True) else np.asarray(latest)

    def _any_order(self) -> bool:
        """Does the score stay the same in whatever order the samples come?"""
        alone = self.postprocess is None or getattr(self.postprocess, "each_batch_alone", False)
        return alone and tally_of(self.metric) is not None

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
    if hasattr(value, "asnumpy"):  # MXNet
        value = value.asnumpy()
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
