"""What a tuning gives back. Never None: the best found, flagged if it missed the bar."""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

from lpot.core.goal import Goal
from lpot.core.measure import Comparison
from lpot.core.model import Model
from lpot.core.numerics.resample import Interval
from lpot.core.recipe import Recipe
from lpot.core.results.benchmark import BenchmarkResult
from lpot.core.results.report import OpRow, TrialRow, trial_row
from lpot.core.results.verdict import Verdict, as_html, few_lines, judge
from lpot.core.trial import Score, Trial


@dataclass(frozen=True)
class HeldOut:
    """FP32 and the best on held-out data, and whether the bar holds there too."""

    baseline: float
    accuracy: float
    met: bool


@dataclass(frozen=True)
class Declined:
    """The low-precision model that was found, and is no answer: it is slower than FP32."""

    trial: Trial | None  # None where nothing was evaluated
    timed: Comparison  # FP32 against it
    path: Path | None  # where it lies all the same


CLEAR = 0.75  # times FP32's speed by a quick look: not within its error


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """The best model and the proof.

    `met` is None when nothing was evaluated. `speed` is FP32 time over the model's time, measured
    interleaved; `faster` is None when it was not measured or the difference is not significant.
    """

    model: Model
    recipe: Recipe
    goal: Goal
    baseline: Score | None = None
    best: Trial | None = None
    met: bool | None = None
    trials: tuple[Trial, ...] = ()
    stopped: str = ""
    speed: float | None = None
    faster: bool | None = None
    for_size: bool = False  # its owner asked for a small model: a slow one is an answer, too
    sizes: tuple[int, int] | None = None  # bytes: FP32, best
    precisions: Mapping[str, int] = field(
        default_factory=dict
    )  # how many ops run in which precision
    float_ops: tuple[str, ...] = ()  # ops that could be low precision and run in FP32
    left: str = ""  # layers that can't be low precision for the way they are written: what to do
    notes: tuple[str, ...] = ()
    path: Path | None = None
    workspace: Path | None = None
    interrupted: bool = False
    runtime: str = ""  # what the model was tuned for, and its speed measured in
    cpu: str = ""  # on which it was, and when
    when: str = ""
    timed: Comparison | None = None  # `speed` with its interval, and how busy the machine was
    declined: Declined | None = None  # FP32 is handed back in its place
    benchmark: BenchmarkResult | None = None  # the measurement behind `speed`
    interval: Interval | None = None  # of the accuracy drop, where single samples are known
    held_out: HeldOut | None = None  # the scores on data that had no part in the search
    ops: tuple[OpRow, ...] = ()  # every op: its precision, why, sensitivity, SQNR and time

    def __repr__(self) -> str:
        return few_lines(self)

    @property
    def slower(self) -> float | None:
        """Times FP32's speed, where that is less and no small model was asked for.

        Such a model is no answer, whatever its accuracy: FP32 is handed back for it, or, where that
        can't be, every surface says so by this. What a busy machine showed is not sure enough.
        """
        if self.declined is not None:
            return self.declined.timed.ratio
        sure = self.faster is False and not self.busy
        return self.speed if sure and not self.for_size else None

    @property
    def busy(self) -> bool:
        """Was speed measured beside others' work? It is a ratio of CPU time then."""
        return self.timed is not None and self.timed.busy

    @property
    def seems_slower(self) -> bool:
        """Where nothing was measured in turns: does the search's quick look say so, clearly?"""
        score = None if self.best is None else self.best.score
        before, after = (None if one is None else one.latency for one in (self.baseline, score))
        if self.speed is not None or self.for_size or before is None or after is None:
            return False
        return before < CLEAR * after

    @cached_property
    def verdict(self) -> Verdict:
        """The judgement on all of it, which every surface tells."""
        return judge(self)

    def _repr_html_(self) -> str:
        return as_html(self)

    def to_pandas(self, what: Literal["trials", "ops"] = "trials") -> Any:
        """The trials, or the ops of the best model, as a DataFrame; needs pandas."""
        if what not in ("trials", "ops"):
            raise ValueError(f"given {what!r}, expected 'trials' or 'ops'")
        try:
            pandas = importlib.import_module("pandas")  # lpot does not depend on it
        except ImportError as error:
            raise ImportError("to_pandas needs the package pandas: pip install pandas") from error
        found = self.ops if what == "ops" else self.rows
        return pandas.DataFrame([asdict(row) for row in found])

    @property
    def rows(self) -> tuple[TrialRow, ...]:
        return tuple(trial_row(trial, self.goal.higher_is_better) for trial in self.trials)

    @property
    def accuracy(self) -> float | None:
        """Of the model that is handed back."""
        if self.declined is not None:
            return None if self.baseline is None else self.baseline.accuracy
        return None if self.best is None else self.best.accuracy

    @property
    def proven(self) -> bool | None:
        """Do the samples prove that the bar holds, or that it does not? None: no interval."""
        if self.interval is None:
            return None
        return self.interval.holds(self.goal.allows) is not None

    @property
    def history(self) -> Path | None:
        return None if self.workspace is None else self.workspace / "history.jsonl"

    @property
    def evaluations(self) -> int:
        """Evaluations this result rests on, the baseline included."""
        done = sum(1 for trial in self.trials if trial.score is not None)
        return done + (self.baseline is not None)

    @property
    def pareto(self) -> tuple[Trial, ...]:
        """Trials that no other beats in both accuracy and latency, the fastest first.

        Latency is measured for trials that meet the bar, and for all when time was given to go on.
        """
        found: list[Trial] = []
        for trial in sorted(_measured(self.trials), key=_latency):
            gain = self.goal.gain(trial.score.accuracy) if trial.score is not None else 0.0
            if not found or gain > self.goal.gain(found[-1].accuracy or 0.0):
                found.append(trial)
        return tuple(found)

    def to_json(self) -> dict[str, Any]:
        raw: dict[str, Any] = {
            "met": self.met,
            "verdict": self.verdict.to_json(),
            "goal": str(self.goal),
            "baseline": None if self.baseline is None else self.baseline.to_json(),
            "accuracy": self.accuracy,
            "proven": self.proven,
            "interval": None if self.interval is None else self.interval.to_json(),
            "held_out": None if self.held_out is None else dict(vars(self.held_out)),
            "evaluations": self.evaluations,
            "trials": len(self.trials),
            "stopped": self.stopped,
            "pareto": [trial.number for trial in self.pareto],
            "runtime": self.runtime,
            "speed": self.speed,
            "faster": self.faster,
            "slower": self.slower,
            "declined": None if self.declined is None else _declined(self.declined),
            "busy": self.busy,
            "bytes": None if self.sizes is None else {"fp32": self.sizes[0], "best": self.sizes[1]},
            "precisions": dict(self.precisions),
            "fp32_ops": list(self.float_ops),
            "notes": list(self.notes),
            "model": None if self.path is None else self.path.name,
            "recipe": self.recipe.to_json(),
        }
        return raw


def _declined(found: Declined) -> dict[str, Any]:
    return {
        "trial": None if found.trial is None else found.trial.number,
        "accuracy": None if found.trial is None else found.trial.accuracy,
        "speed": found.timed.ratio,
        "model": None if found.path is None else found.path.name,
    }


def _measured(trials: tuple[Trial, ...]) -> list[Trial]:
    return [
        trial
        for trial in trials
        if trial.score is not None and trial.score.latency is not None and not trial.score.raced_out
    ]


def _latency(trial: Trial) -> float:
    assert trial.score is not None and trial.score.latency is not None
    return trial.score.latency
