"""The accuracy bar, and what to make best among the models that hold it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from lpot.core.errors import EvaluationError
from lpot.core.trial import Score

Objective = Literal["performance", "modelsize", "footprint", "accuracy"]

# Two latencies this near are the same to a clock, on a machine that does other things too.
ALIKE = 0.15
# A gain over FP32, as a share of its score, that is no luck any more.
IMPLAUSIBLE = 0.1
# Bars that MLPerf Inference asks for, as the share of the FP32 accuracy that must be kept.
PRESETS: Mapping[str, float] = {"mlperf": 0.99, "mlperf_high": 0.999}


def share_lost(bar: float | str) -> float:
    """What a bar such as '99%', 0.999 or 'mlperf' lets go of, as a share of the FP32 accuracy.

    >>> share_lost("99%"), share_lost(0.999), share_lost("mlperf_high")
    (0.01, 0.001, 0.001)
    """
    kept: float | None = None
    if isinstance(bar, str):
        word = bar.strip()
        kept = PRESETS.get(word.lower().replace("-", "_"))
        if kept is None:
            number = re.fullmatch(r"([0-9]*\.?[0-9]+)\s*(%?)", word)
            kept = None if number is None else float(number[1]) / (100 if number[2] else 1)
    elif isinstance(bar, int | float) and not isinstance(bar, bool):
        kept = float(bar)
    if kept is None or not 0.5 <= kept <= 1:
        raise ValueError(
            f"given {bar!r}, expected the share of the FP32 accuracy to keep, such as '99%' or "
            f"0.999, or one of {', '.join(PRESETS)}"
        )
    return round(1 - kept, 12)


@dataclass(frozen=True)
class Goal:
    """How much accuracy may be lost against the FP32 baseline.

    A relative tolerance is a share of the baseline's absolute value, so that negative metrics
    work too. The bar is the worst accuracy that still passes.

    >>> Goal(relative=0.01).bar(0.9)
    0.891
    >>> Goal(relative=0.01, higher_is_better=False).bar(-2.0)
    -1.98
    >>> Goal(absolute=0.5).is_met(76.0, baseline=76.4)
    True
    """

    relative: float | None = None
    absolute: float | None = None
    higher_is_better: bool = True
    proven: bool = False  # met only where the samples prove it

    def __post_init__(self) -> None:
        if (self.relative is None) == (self.absolute is None):
            raise ValueError("give exactly one of relative and absolute")

    @classmethod
    def keeping(cls, bar: float | str, higher_is_better: bool = True) -> Goal:
        """The goal of keeping this share of the FP32 accuracy: '99%', 0.999, 'mlperf'.

        >>> Goal.keeping("99.9%").bar(76.46)
        76.38354
        """
        return cls(relative=share_lost(bar), higher_is_better=higher_is_better)

    def check_baseline(self, baseline: float) -> None:
        """Refuse a baseline on which the goal says nothing."""
        if self.relative is not None and baseline == 0:
            raise EvaluationError(
                "the FP32 baseline scored 0, and a relative bar is meaningless then: "
                "set `accuracy_criterion.absolute` instead, or check your evaluation function"
            )

    def bar(self, baseline: float) -> float:
        allowed = self.absolute if self.relative is None else self.relative * abs(baseline)
        assert allowed is not None
        return baseline - allowed if self.higher_is_better else baseline + allowed

    def is_met(self, accuracy: float, baseline: float) -> bool:
        bar = self.bar(baseline)
        # A metric that lands on the bar passes; float noise of a few ulp must not decide.
        slack = 1e-9 * max(1.0, abs(baseline))
        return accuracy >= bar - slack if self.higher_is_better else accuracy <= bar + slack

    def gain(self, accuracy: float) -> float:
        """The accuracy as a number where more is always better."""
        return accuracy if self.higher_is_better else -accuracy

    def drop(self, accuracy: float, baseline: float) -> float:
        """How much was lost (positive) or won (negative), in the goal's own unit."""
        lost = self.gain(baseline) - self.gain(accuracy)
        return lost if self.relative is None else lost / abs(baseline)

    @property
    def allows(self) -> float:
        """The drop that is allowed, in the goal's own unit."""
        allowed = self.absolute if self.relative is None else self.relative
        assert allowed is not None
        return allowed

    def is_implausible(self, accuracy: float, baseline: float) -> bool:
        """A gain that quantization does not make: the score may be better the other way round.

        >>> Goal(relative=0.01).is_implausible(0.509, baseline=0.063)
        True
        """
        won = self.gain(accuracy) - self.gain(baseline)
        allowed = abs(baseline - self.bar(baseline))
        return won > max(IMPLAUSIBLE * abs(baseline), 5 * allowed)

    def to_json(self) -> dict[str, float | bool]:
        plain = {key: value for key, value in vars(self).items() if value is not None}
        return plain if self.proven else {k: v for k, v in plain.items() if k != "proven"}

    def __str__(self) -> str:
        direction = "" if self.higher_is_better else ", lower is better"
        direction += ", proven" if self.proven else ""
        if self.relative is not None:
            return f"at most {self.relative:.4g} relative loss{direction}"
        return f"at most {self.absolute:.4g} absolute loss{direction}"


@dataclass(frozen=True)
class Objectives:
    """What to make best among the models that meet the bar: one objective, or several, weighed.

    Several are added up as shares of what FP32 has, so that seconds and bytes can be compared.

    >>> both = Objectives(("performance", "modelsize"), (1.0, 0.5))
    >>> fp32 = Score(0.9, latency=0.010, size=4000)
    >>> both.cost(Score(0.9, latency=0.005, size=1000), fp32, Goal(relative=0.01))
    0.625
    """

    words: tuple[Objective, ...] = ("performance",)
    weights: tuple[float, ...] = (1.0,)

    def __post_init__(self) -> None:
        if not self.words or len(self.words) != len(self.weights):
            raise ValueError("as many weights as objectives are needed, at least one of each")

    def to_json(self) -> dict[str, list[Any]]:
        return {"words": list(self.words), "weights": list(self.weights)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Objectives:
        words, weights = tuple(raw["words"]), tuple(map(float, raw["weights"]))
        if not set(words) <= set(get_args(Objective)):
            raise ValueError(f"unknown objectives: {words}")
        return cls(words, weights)

    def cost(self, score: Score, baseline: Score, goal: Goal) -> float:
        """What is to be made small. Trials without a measurement come last."""
        if len(self.words) == 1:
            return self.weights[0] * _cost(self.words[0], score, goal)
        total = 0.0
        for word, weight in zip(self.words, self.weights, strict=True):
            whole = abs(_cost(word, baseline, goal))
            total += weight * _cost(word, score, goal) / (whole or 1.0)
        return total

    def alike(self, new: float, old: float) -> bool:
        """Whether two costs differ by no more than the clock may be wrong."""
        if new == old or "performance" not in self.words or math.inf in (new, old):
            return new == old
        return abs(new - old) <= ALIKE * max(abs(new), abs(old))


def _cost(word: Objective, score: Score, goal: Goal) -> float:
    if word == "accuracy":
        return -goal.gain(score.accuracy)
    measured = {"performance": score.latency, "modelsize": score.size, "footprint": score.memory}
    value = measured[word]
    return math.inf if value is None else float(value)


# -- Whether an evaluation is fine enough to tell a loss of the size that is allowed.


def noise_warning(goal: Goal, accuracies: list[float], baseline: float) -> str:
    """About repeated evaluations of FP32 that differ; empty if they agree well enough."""
    spread, allowed = max(accuracies) - min(accuracies), abs(baseline - goal.bar(baseline))
    if spread <= allowed / 2:
        return ""
    return (
        f"warning: {len(accuracies)} evaluations of FP32 differ by {spread:.4g}, more than "
        f"half of the allowed loss of {allowed:.4g}: the evaluation is too noisy to judge by; "
        "evaluate more samples, fix its seed, or allow a larger loss"
    )


def grain_warning(goal: Goal, baseline: Score, grain: float | None) -> str:
    """About samples so few that one of them decides; `grain` is what one can change at most."""
    allowed = abs(baseline.accuracy - goal.bar(baseline.accuracy))
    if grain is None or not baseline.samples or grain / baseline.samples <= allowed:
        return ""
    return (
        f"warning: each of the {baseline.samples} evaluated samples is worth up to "
        f"{grain / baseline.samples:.4g}, more than the allowed loss of {allowed:.4g}: a single "
        "answer decides; evaluate more samples, or allow a larger loss"
    )
