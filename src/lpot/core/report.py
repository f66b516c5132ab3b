"""The report's data: what a person asks after a tuning, as plain values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from lpot.core.recipe import OpConfig, OpKey
from lpot.core.result import Result
from lpot.core.space import Capability
from lpot.core.trial import Trial

FORMAT = 1


@dataclass(frozen=True)
class OpRow:
    """One op of the model as given."""

    name: str
    kind: str
    precision: str
    how: str = ""  # static minmax, per channel …
    harm: float | None = None
    reason: str = ""  # why it runs in FP32


@dataclass(frozen=True)
class TrialRow:
    number: int
    state: str
    accuracy: float | None
    met: bool
    float_ops: int
    seconds: float
    latency: float | None = None
    samples: int | None = None
    raced_out: bool = False
    recalled: bool = False
    error: str | None = None


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
    format: int = FORMAT

    def to_json(self) -> dict[str, Any]:
        return {**asdict(self), "result": dict(self.result), "environment": dict(self.environment)}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Report:
        trials = tuple(TrialRow(**row) for row in raw["trials"])
        return cls(**{**raw, "trials": trials, "ops": tuple(OpRow(**row) for row in raw["ops"])})


def trial_row(trial: Trial) -> TrialRow:
    score = trial.score
    return TrialRow(
        number=trial.number,
        state=trial.state.value,
        accuracy=trial.accuracy,
        met=trial.met,
        float_ops=len(trial.recipe.float_ops),
        seconds=round(trial.seconds, 3),
        latency=None if score is None else score.latency,
        samples=None if score is None else score.samples,
        raced_out=score is not None and score.raced_out,
        recalled=trial.recalled,
        error=trial.error,
    )


def op_rows(
    capability: Capability,
    result: Result,
    precision: Mapping[OpKey, str],
    harm: Mapping[OpKey, float],
) -> tuple[OpRow, ...]:
    """Every op with what it became and why."""
    rows = []
    for key, info in capability.ops.items():
        word = precision.get(key, "fp32")
        config = result.recipe.ops.get(key)
        low = word != "fp32" and config is not None and not config.is_float
        rows.append(
            OpRow(
                key.name,
                key.kind,
                word,
                _how(config) if low and config is not None else "",
                harm.get(key),
                "" if word != "fp32" else _why(info.reason, config, info.follower),
            )
        )
    return tuple(rows)


def _how(config: OpConfig) -> str:
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
        return "went back to FP32 to hold the bar"
    return "no INT8 neighbours on both sides" if follower else "does not pay alone"
