"""The report's data: what a person asks after a tuning, as plain values."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal, TypeVar

from lpot.core.recipe import OpConfig, OpKey, Recipe
from lpot.core.results.tensors import Contrast
from lpot.core.space import Capability
from lpot.core.trial import Trial
from lpot.core.words import limit

FORMAT = 2
State = Literal["finished", "running", "stopped"]
Row = TypeVar("Row")
LARGEST = 1e9  # sensitivity beyond this says no more than "all is lost"


@dataclass(frozen=True)
class OpRow:
    """One op of the model as given. Seconds are those of one batch."""

    name: str
    kind: str
    precision: str
    how: str = ""  # static, minmax, per channel …
    sensitivity: float | None = None
    reason: str = ""  # why it runs in FP32; in low precision, why it loses
    sqnr: float | None = None  # decibels, of its output against FP32's
    weight_sqnr: float | None = None
    seconds: float | None = None
    fp32_seconds: float | None = None


@dataclass(frozen=True)
class TrialRow:
    number: int
    state: str
    accuracy: float | None  # None for one that was stopped early: `bound` has what is known
    met: bool
    float_ops: int
    seconds: float
    latency: float | None = None
    samples: int | None = None
    raced_out: bool = False
    recalled: bool = False
    error: str | None = None
    size: int | None = None
    bound: float | None = None  # what the score can be at best; by `sign`
    sign: str = ""  # ≤, ≥ or, for an estimate, ≈

    @property
    def value(self) -> float | None:
        """Where it is drawn: its score, else the bound."""
        return self.bound if self.accuracy is None else self.accuracy

    @property
    def shown(self) -> str:
        """As it is written: a bound is never written as a score."""
        if self.value is None:
            return ""
        # Reports of before this was told apart hold the worst that the score can be.
        sign = self.sign or ("≥" if self.raced_out else "")
        return f"{sign} {self.value:.6g}".strip()


@dataclass(frozen=True)
class TimeRow:
    """Seconds that all ops of one kind take of a batch, as a profile saw them."""

    kind: str
    fp32: float
    best: float


@dataclass(frozen=True)
class GraphNode:
    """One node of a small graph, with the names of the nodes that it reads."""

    name: str
    kind: str
    reads: tuple[str, ...] = ()


@dataclass(frozen=True)
class Report:
    """What `report.json` holds and `report.html` shows."""

    name: str
    framework: str
    result: Mapping[str, Any]
    bar: float | None
    trials: tuple[TrialRow, ...]
    ops: tuple[OpRow, ...]
    environment: Mapping[str, Any] = field(default_factory=dict)
    config: str = ""
    profile: str = ""  # where the time goes, in a sentence
    times: tuple[TimeRow, ...] = ()  # the same by kind of op
    higher_is_better: bool = True
    state: State = "finished"
    tensors: tuple[Contrast, ...] = ()  # of the worst ops, FP32 against the best model
    graphs: Mapping[str, tuple[GraphNode, ...]] = field(default_factory=dict)  # fp32, best
    journal: int | None = None  # bytes of the history that it was made from
    format: int = FORMAT

    def __post_init__(self) -> None:
        object.__setattr__(self, "result", {**NO_RESULT, **self.result})

    def to_json(self) -> dict[str, Any]:
        raw = asdict(self)
        raw["tensors"] = [item.to_json() for item in self.tensors]
        clean: dict[str, Any] = finite(raw)
        return clean

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Report:
        """Of this version or an older one; what a newer one added is left out."""
        graphs = {
            str(which): tuple(_row(GraphNode, {**n, "reads": tuple(n["reads"])}) for n in nodes)
            for which, nodes in raw.get("graphs", {}).items()
        }
        known = {item.name for item in fields(cls)}
        parts = {
            "result": dict(raw["result"]),
            "trials": tuple(_row(TrialRow, row) for row in raw["trials"]),
            "ops": tuple(_row(OpRow, row) for row in raw["ops"]),
            "times": tuple(_row(TimeRow, row) for row in raw.get("times", ())),
            "tensors": tuple(Contrast.from_json(item) for item in raw.get("tensors", ())),
            "graphs": graphs,
        }
        return cls(**{key: value for key, value in {**raw, **parts}.items() if key in known})


# What a result has at least: a report of an older version, or of half a run, may lack some.
NO_RESULT: dict[str, Any] = {
    "met": None,
    "verdict": None,
    "busy": False,
    "goal": "",
    "baseline": None,
    "accuracy": None,
    "speed": None,
    "speed_range": None,
    "measured": None,
    "best": None,
    "drop": "",
    "allowed": "",
    "drop_range": None,
    "path": None,
    "usage": "",
    "faster": None,
    "bytes": None,
    "evaluations": 0,
    "fp32_ops": [],
    "precisions": {},
    "notes": [],
    "pareto": [],
    "stopped": "",
    "model": None,
}


def _row(kind: type[Row], raw: Mapping[str, Any]) -> Row:
    known = {item.name for item in fields(kind)}  # type: ignore[arg-type]
    return kind(**{key: value for key, value in raw.items() if key in known})


def finite(value: Any) -> Any:
    """JSON knows no infinity and no NaN: None in their place."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, Mapping):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return value


def trial_row(trial: Trial, higher_is_better: bool = True) -> TrialRow:
    score = trial.score
    raced = score is not None and score.raced_out
    return TrialRow(
        number=trial.number,
        state=trial.state.value,
        accuracy=None if raced else trial.accuracy,
        met=trial.met,
        float_ops=len(trial.recipe.float_ops),
        seconds=round(trial.seconds, 3),
        latency=None if score is None else score.latency,
        samples=None if score is None else score.samples,
        raced_out=raced,
        recalled=trial.recalled,
        error=trial.error,
        size=None if score is None else score.size,
        bound=score.at_best(higher_is_better) if score is not None and raced else None,
        sign="" if score is None else limit(score, higher_is_better),
    )


def op_rows(
    capability: Capability,
    recipe: Recipe,
    precision: Mapping[OpKey, str],
    sensitivity: Mapping[OpKey, float],
    found: Iterable[Contrast] = (),
    seconds: Mapping[OpKey, tuple[float | None, float | None]] | None = None,
    remarks: Mapping[OpKey, str] | None = None,
) -> tuple[OpRow, ...]:
    """Every op with what it became and why.

    Where a profile told, `seconds` has those of FP32 and of the tuned model, and `remarks` why an
    op in low precision loses.
    """
    sqnr = {(item.op.name, item.what): item.sqnr for item in found}
    rows = []
    for key, info in capability.ops.items():
        word = precision.get(key, "fp32")
        config = recipe.ops.get(key)
        low = word != "fp32" and config is not None and not config.is_float
        before, after = (seconds or {}).get(key, (None, None))
        rows.append(
            OpRow(
                key.name,
                key.kind,
                word,
                how(config) if low and config is not None else "",
                None if key not in sensitivity else min(sensitivity[key], LARGEST),
                (remarks or {}).get(key, "")
                if word != "fp32"
                else _why(info.reason, config, info.follower),
                sqnr.get((key.name, "output")),
                sqnr.get((key.name, "weight")) if low else None,
                after,
                before,
            )
        )
    return tuple(rows)


def planned_rows(recipe: Recipe) -> tuple[OpRow, ...]:
    """The ops as a recipe has them: all that a history knows of them."""
    return tuple(
        OpRow(
            key.name,
            key.kind,
            config.precision,
            "" if config.is_float else how(config),
            reason=_why("", config, False) if config.is_float else "",
        )
        for key, config in recipe.ops.items()
    )


def how(config: OpConfig) -> str:
    words = [config.mode, config.activation.algorithm or ""]
    if config.weight is not None:
        words.append((config.weight.granularity or "").replace("_", " "))
        words.append(f"{config.weight.bits}-bit weights" if config.weight.bits == 7 else "")
    return ", ".join(word for word in words if word)


def _why(reason: str, config: OpConfig | None, follower: bool) -> str:
    if reason:
        return reason
    if config is None:
        return "kept in FP32 by your rules"
    if config.is_float:
        return "kept in FP32 by the search"
    return "its neighbours are not INT8" if follower else "no gain on its own"
