"""The user's eval_func: a plain function, a generator, or one that takes a limit."""

from __future__ import annotations

import inspect
import math
import time
from collections.abc import Callable, Generator, Mapping
from typing import Any, TypeVar

import numpy as np

from lpot.core.batch import as_array
from lpot.core.blame import raised
from lpot.core.errors import EvaluationError, a_kind
from lpot.core.evaluation.identity import of_function
from lpot.core.evaluation.race import Race
from lpot.core.evaluation.recheck import Recheck
from lpot.core.evaluation.tally import USUAL, Bounds, SampleScores, Tally, is_part, read_part, width
from lpot.core.model import Model
from lpot.core.numerics.resample import PieceBox
from lpot.core.progress import Listener
from lpot.core.trial import Score

# -- One finite number from whatever the user's code returned.


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
        raise EvaluationError(f"{who} returned the string {value!r}: it must return a number")
    if hasattr(value, "asnumpy"):  # MXNet
        value = value.asnumpy()
    if hasattr(value, "detach") and getattr(value, "numel", lambda: 0)() == 1:
        value = value.detach().item()  # a tensor of any device and dtype, bfloat16 included
    try:
        array = np.asarray(value)
        if array.dtype.kind in "cSUMmV" or np.ma.is_masked(value):
            raise TypeError(f"{array.dtype} is not a real number")
        array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise EvaluationError(
            f"{who} returned {a_kind(value)}, which is not a number ({error})"
        ) from error
    if array.size != 1:
        raise EvaluationError(
            f"{who} returned {array.size} numbers in {a_kind(value)}: return the one to tune by"
        )
    number = float(array.reshape(()))
    if not math.isfinite(number):
        raise EvaluationError(f"{who} returned {number}: it must return a finite number")
    return number


Function = TypeVar("Function", bound=Callable[..., Any])
_MARK = "__lpot_takes_session__"


def takes_session(function: Function) -> Function:
    """Mark an eval_func that wants the ready session (or module) instead of the plain model.

    >>> @takes_session
    ... def accuracy(session): ...
    """
    setattr(function, _MARK, True)
    return function


def check_function(function: Callable[..., Any], word: str = "eval_func") -> None:
    """Refuse what can't be called with one model; `word` is what the user's door calls it."""
    if not callable(function):
        raise EvaluationError(f"{word} must be a function of one model, got {a_kind(function)}")
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):  # built in C: nobody can tell
        return
    try:
        signature.bind(object())
    except TypeError as error:
        name = getattr(function, "__qualname__", repr(function))
        raise EvaluationError(
            f"{word} {name}{signature} can't be called with one model ({error}): "
            "it must take the model and return the score"
        ) from error


class FunctionEvaluator:
    """The user's own eval_func: `f(model)` gives the score.

    Two forms can be raced, where the score is a mean over samples:

    - a generator that yields, for each batch, `(sum of scores, number of samples)` or one score
      per sample as an array;
    - `f(model, limit=None)` that returns the same for the first `limit` samples, None for all.

    Scores of single samples are taken to lie in 0 to 1; an end that FP32 is seen to pass is given
    up. `f.bounds = (low, high)` says otherwise, and is then held to.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        listener: Listener | None = None,
        word: str = "eval_func",  # what the user's door calls it
    ) -> None:
        check_function(function, word)
        self.function = function
        self.listener = listener or Listener()
        self.name = f"{word} {getattr(function, '__qualname__', type(function).__qualname__)}"
        self.identity = of_function(function)
        self.takes_session = bool(getattr(function, _MARK, False))
        self._limited = _takes_limit(function)
        self._declared = _declared_bounds(function, self.name)
        self._bounds = self._declared or USUAL
        # The usual bounds count once a whole evaluation has kept to them.
        self._trusted = self._declared is not None
        self.pieces = PieceBox()
        self._scores = SampleScores()

    def __call__(self, model: Model, race: Race | None = None) -> Score:
        target = model.runner if self.takes_session else model.native
        try:
            return self._score(model, target, race)
        except (AttributeError, TypeError) as error:
            if not _mistakes(error, target):
                raise
            kind = f"{type(target).__module__}.{type(target).__qualname__}"
            raise EvaluationError(
                f"{self.name} raised {raised(error)}: its model has the type {kind}"
                f"{model.native_hint}"
            ) from error

    def _score(self, model: Model, target: Any, race: Race | None) -> Score:
        start = time.perf_counter()
        # Whoever compares samples needs no bounds.
        race = race if self._trusted or isinstance(race, Recheck) else None
        lost = self._look(target, race, start) if self._limited and race is not None else None
        if lost is not None:
            return lost
        self._scores = SampleScores()  # those of the first look come again
        value = self.function(target)
        if isinstance(value, Generator):
            score = self._follow(value, race, start)
        elif self._limited and is_part(value):
            tally = self._add(Tally(bounds=self._bounds), value)
            score = self._whole(tally, start)
        else:
            return Score(as_number(value, self.name), time.perf_counter() - start)
        if not score.raced_out:
            self.pieces.put(model.recipe, self._scores.pieces(score.accuracy))
        return score

    @property
    def grain(self) -> float | None:
        """How far a sample's score can be from another's; None where that is not known."""
        return width(self._bounds) if self._trusted else None

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
                        f"{self.name} yielded scores and also returned {end.value!r:.80}: the "
                        "score is the mean of what it yields; return it from a plain function "
                        "instead"
                    ) from None
                return self._whole(tally, start)
            tally = self._add(tally, value)
            done += 1
            self.listener.step(done)
            spent = time.perf_counter() - start
            lost = race.lost(tally, spent, self._scores) if race else None
            if lost is not None:
                parts.close()
                return lost

    def _look(self, target: Any, race: Race, start: float) -> Score | None:
        """A first look at few samples, where these can be enough to lose the bar."""
        limit = race.first_look(self._bounds)
        if limit is None:
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
        return race.lost(tally, time.perf_counter() - start, self._scores)

    def _add(self, tally: Tally, value: Any) -> Tally:
        part = read_part(value, self.name)
        self._scores.add(None if isinstance(value, tuple) else as_array(value), tally.seen)
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
            raise EvaluationError(f"{self.name} yielded no score: its data are empty or exhausted")
        self._trusted = True
        seconds = time.perf_counter() - start
        return Score(as_number(tally.mean, self.name), seconds, tally.seen)


def _mistakes(error: AttributeError | TypeError, target: Any) -> bool:
    """Whether the model was used as something that it is not."""
    if isinstance(error, AttributeError):
        return error.obj is target
    return f"{type(target).__name__!r} object" in str(error)


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
