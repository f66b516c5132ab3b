"""What an attempt at a recipe gave: Score, State, Trial. All frozen, all JSON."""

from __future__ import annotations

import contextlib
import math
import traceback
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from lpot.core.blame import told
from lpot.core.recipe import Recipe

LONGEST_CAUSE = 600  # characters of an error that history keeps


class State(StrEnum):
    DONE = "done"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Score:
    """One evaluation: accuracy as the metric gives it, what it cost, and what it measured."""

    accuracy: float
    seconds: float = 0.0
    samples: int | None = None
    bounds: tuple[float, float] | None = None  # raced out: accuracy is the worst it could have been
    latency: float | None = (
        None  # seconds a batch, measured by us, never the evaluation's wall time
    )
    size: int | None = None  # bytes of the model on disk
    memory: int | None = None  # bytes a process needs at most to run it

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Score:
        """Raises KeyError, TypeError, ValueError or IndexError for what is no score."""
        bounds = raw.get("bounds")
        score = cls(**{**raw, "bounds": None if bounds is None else (bounds[0], bounds[1])})
        for value in (score.accuracy, score.seconds, *(score.bounds or ())):
            if type(value) not in (float, int):
                raise ValueError(f"a score holds {value!r} where a number belongs")
        for optional in (score.samples, score.latency, score.size, score.memory):
            if optional is not None and type(optional) not in (float, int):
                raise ValueError(f"a score holds {optional!r} where a number belongs")
        return score

    @property
    def raced_out(self) -> bool:
        """Stopped early because the bar was out of reach."""
        return self.bounds is not None

    @property
    def estimated(self) -> bool:
        """Stopped early, with `accuracy` what was seen so far and not an end of what it can be."""
        return self.bounds is not None and self.accuracy not in self.bounds

    def at_best(self, higher_is_better: bool) -> float:
        """What the whole evaluation gives, or the best that one stopped early can still give."""
        if self.bounds is None or self.estimated:
            return self.accuracy
        best = self.bounds[1 if higher_is_better else 0]
        return best if math.isfinite(best) else self.accuracy


@dataclass(frozen=True, slots=True)
class Trial:
    """One recipe tried. `number` counts from 1; the baseline is not a trial."""

    number: int
    recipe: Recipe
    state: State
    score: Score | None = None
    met: bool = False
    error: str | None = None  # cause of a FAILED trial, one line
    trace: str | None = None  # where it failed
    seconds: float = 0.0
    recalled: bool = False  # answered by history, no work done

    @classmethod
    def failed(cls, number: int, recipe: Recipe, error: Exception, seconds: float) -> Trial:
        """A trial that `error` ended. What is kept goes to history: no full paths, no novels."""
        cause = f"{type(error).__name__}: {_without_folders(told(error))}"
        frames = traceback.extract_tb(error.__traceback__)[-4:]
        trace = "\n".join(f"{Path(f.filename).name}:{f.lineno} in {f.name}" for f in frames)
        shown = cause if len(cause) <= LONGEST_CAUSE else f"{cause[:LONGEST_CAUSE]} …"
        return cls(number, recipe, State.FAILED, error=shown, trace=trace, seconds=seconds)

    @property
    def accuracy(self) -> float | None:
        return None if self.score is None else self.score.accuracy

    def to_json(self) -> dict[str, Any]:
        raw: dict[str, Any] = {
            "number": self.number,
            "digest": self.recipe.digest,
            "state": self.state.value,
            "met": self.met,
            "seconds": round(self.seconds, 4),
            "recipe": self.recipe.to_json(),
        }
        if self.score is not None:
            raw["score"] = self.score.to_json()
        if self.error is not None:
            raw["error"] = self.error
        if self.trace is not None:
            raw["trace"] = self.trace
        return raw

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Trial:
        """Raises KeyError, TypeError, ValueError or AttributeError for what is no trial."""
        score, error, trace = raw.get("score"), raw.get("error"), raw.get("trace")
        seconds = raw.get("seconds", 0.0)
        if type(raw["number"]) is not int or type(raw["met"]) is not bool:
            raise ValueError("a trial's number or met is of another type")
        if type(seconds) not in (float, int) or {type(error), type(trace)} - {str, type(None)}:
            raise ValueError("a trial's seconds, error or trace are of another type")
        return cls(
            number=raw["number"],
            recipe=Recipe.from_json(raw["recipe"]),
            state=State(raw["state"]),
            score=None if score is None else Score.from_json(score),
            met=raw["met"],
            error=error,
            trace=trace,
            seconds=seconds,
            recalled=True,
        )


def _without_folders(text: str) -> str:
    """Paths below the working folder and the home folder, shortened: history travels."""
    for find, short in ((Path.cwd, "."), (Path.home, "~")):
        with contextlib.suppress(OSError, RuntimeError):  # deleted since; of a user without a home
            folder = find()
            if len(folder.parts) > 1:
                text = text.replace(str(folder), short)
    return text
