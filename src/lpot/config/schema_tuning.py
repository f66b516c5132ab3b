"""`tuning`: the accuracy bar, how to search, when to stop, where to keep history."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BeforeValidator,
    ConfigDict,
    Field,
    WithJsonSchema,
    model_validator,
)

from lpot.config.fields import (
    Anything,
    Flag,
    Flags,
    Known,
    Natural,
    Number,
    Numbers,
    Positive,
    Share,
    Text,
    check_known,
    read_anything,
    split,
    wrong,
)
from lpot.config.frozen import FrozenDict
from lpot.config.scalar import show
from lpot.config.section import Section
from lpot.core.goal import share_lost

STRATEGIES = Known(
    (
        "basic",
        "auto",
        "random",
        "exhaustive",
        "mse",
        "mse_v2",
        "bayesian",
        "tpe",
        "conservative",
        "hawq_v2",
        "automixedprecision",
        "auto_mixed_precision",
        "sigopt",
    )
)
DEFAULT_TOLERANCE = 0.01

ObjectiveWord = Literal["performance", "footprint", "modelsize", "accuracy"]
StrategyName = Annotated[
    Text,
    AfterValidator(check_known("strategies", STRATEGIES, tuple)),
    WithJsonSchema({"anyOf": [{"enum": list(STRATEGIES.words)}, {"type": "string"}]}),
    STRATEGIES,
]


class Strategy(Section):
    """Which search, and its options. A strategy of your own may have options of its own."""

    model_config = ConfigDict(extra="allow")

    name: StrategyName = Field(
        default="basic",
        description="Name of the search. `strategy: basic` is short for `strategy: {name: basic}`.",
    )
    sigopt_api_token: Text | None = Field(
        default=None, repr=False, description="Token of the SigOpt service; never stored."
    )
    sigopt_project_id: Text | None = Field(default=None, description="Project at SigOpt.")
    sigopt_experiment_name: Text = Field(
        default="lpot-tune", description="Experiment's name at SigOpt."
    )
    accuracy_weight: Number = Field(
        default=1.0, description="Weight of accuracy in the loss of tpe."
    )
    latency_weight: Number = Field(default=1.0, description="Weight of latency in the loss of tpe.")
    confidence_batches: Positive = Field(
        default=2, description="Batches that mse_v2 compares outputs on."
    )
    hawq_v2_loss: Anything = Field(default=None, description="Loss that hawq_v2 differentiates.")

    @model_validator(mode="before")
    @classmethod
    def _frozen_options(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        known = cls.model_fields
        return {key: item if key in known else read_anything(item) for key, item in value.items()}

    @model_validator(mode="after")
    def _options_of_ours(self) -> Strategy:
        unknown = sorted(self.model_extra or {})
        if unknown and self.name in STRATEGIES.words:
            known = ", ".join(type(self).model_fields)
            raise wrong(f"unknown key {unknown[0]!r}; allowed here: {known}", key=unknown[0])
        return self

    @property
    def options(self) -> FrozenDict:
        """What was set beside the name."""
        return FrozenDict(self.model_dump(exclude={"name"}, exclude_unset=True))


def _without_bar(value: Mapping[str, Any]) -> dict[str, Any]:
    rivals = [key for key in ("relative", "absolute") if value.get(key) is not None]
    if rivals:
        raise wrong(f"given beside {rivals[0]}: keep one of them", key="bar")
    try:
        lost = share_lost(value["bar"])
    except ValueError as error:
        raise wrong(str(error), key="bar") from error
    return {**{key: item for key, item in value.items() if key != "bar"}, "relative": lost}


class AccuracyCriterion(Section):
    """How much accuracy may be lost against FP32: relative or absolute, not both."""

    relative: Share | None = Field(
        default=None,
        description="Share of the FP32 accuracy that may be lost, from 0 to below 1, such as 0.01 "
        "or '1%'. It is 0.01 when neither is given.",
        examples=[0.01],
    )
    absolute: Share | None = Field(
        default=None,
        description="Loss in the metric's own unit, such as 0.5 or '1%'.",
        examples=[0.005],
    )
    bar: float | str | None = Field(
        default=None,
        description="The same the other way round: the share of the FP32 accuracy to keep, such as "
        "'99%' or 0.999, or a preset: `mlperf` (99 %) or `mlperf_high` (99.9 %). It becomes "
        "`relative`.",
        examples=["99.9%"],
    )
    higher_is_better: Flag = Field(default=True, description="False for metrics such as a loss.")
    baseline_runs: Positive = Field(
        default=1,
        description="Times FP32 is evaluated. Two or more tell how much the evaluation itself "
        "varies, and warn when that is too much for the bar.",
    )

    @model_validator(mode="before")
    @classmethod
    def _relative_by_default(cls, value: Any) -> Any:
        if not isinstance(value, Mapping):
            return value
        if value.get("bar") is not None:
            value = _without_bar(value)
        relative = value.get("relative")
        if relative is None and value.get("absolute") is None:
            return {**value, "relative": DEFAULT_TOLERANCE}
        if isinstance(relative, int) and not isinstance(relative, bool) and relative != 0:
            raise wrong(
                f"given {show(relative)}, a whole number, which may mean a share or a percentage: "
                f"write {relative / 100:g} or '{relative}%' for {relative} %",
                key="relative",
            )
        return value

    @model_validator(mode="after")
    def _one_in_range(self) -> AccuracyCriterion:
        if self.relative is not None and self.absolute is not None:
            raise wrong("given beside relative: keep one of them", key="absolute")
        if self.relative is not None and not -1 < self.relative < 1:
            raise wrong(
                f"given {self.relative:g}, expected from 0 to below 1, such as 0.01 or '1%'",
                key="relative",
            )
        for key, value in (("relative", self.relative), ("absolute", self.absolute)):
            if value is not None and value < 0:
                raise wrong(
                    f"given {value:g}, expected 0 or more: it is the loss that is allowed, "
                    "and a negative one would ask for a model better than FP32",
                    key=key,
                )
        return self


Objectives = Annotated[
    tuple[ObjectiveWord, ...],
    BeforeValidator(split, json_schema_input_type=ObjectiveWord | list[ObjectiveWord] | str),
]


class MultiObjectives(Section):
    """Several objectives at once."""

    objective: Objectives = Field(default=(), description="What counts.")
    weight: Numbers = Field(default=(), description="How much each counts.")
    higher_is_better: Flags = Field(default=(), description="Which direction each has.")

    @model_validator(mode="after")
    def _equal_lengths(self) -> MultiObjectives:
        count = len(self.objective)
        for key, values in (("weight", self.weight), ("higher_is_better", self.higher_is_better)):
            if values and len(values) != count:
                raise wrong(f"given {len(values)} values for {count} objectives", key=key)
        return self

    @model_validator(mode="after")
    def _weighable(self) -> MultiObjectives:
        twice = [word for word in self.objective if self.objective.count(word) > 1]
        if twice:
            raise wrong(f"given {twice[0]} twice: name it once and weigh it more", key="objective")
        if self.weight and (min(self.weight) < 0 or not any(self.weight)):
            raise wrong(
                f"given {', '.join(f'{value:g}' for value in self.weight)}, expected numbers of 0 "
                "or more, and one at least that is not 0",
                key="weight",
            )
        return self


class ExitPolicy(Section):
    """When to stop."""

    timeout: Annotated[Number, Field(ge=0)] = Field(
        default=0.0, description="Seconds a run may take. 0: stop at the first that holds the bar."
    )
    max_trials: Positive = Field(
        default=100, description="Models tried at most, those of earlier runs included."
    )
    performance_only: Flag = Field(default=False, description="Stop after the first, good or not.")


class Workspace(Section):
    """Where history and results are kept."""

    path: Text | None = Field(
        default=None,
        description="Folder. Absent: `./lpot_workspace/<framework>/<name>/`.",
        examples=["./lpot_workspace/onnx/my_model/"],
    )
    resume: Text | None = Field(
        default=None,
        description="History to go on from.",
        examples=["./lpot_workspace/onnx/my_model/history.jsonl"],
    )


class Executor(Section):
    """Where trials are made."""

    name: Literal["serial", "process", "ray"] = Field(
        default="serial",
        description="`serial`: here, one after the other. `process`: in processes of their own, "
        "where a crash costs one trial. `ray`: on a Ray cluster.",
    )
    workers: Positive = Field(
        default=1, description="Trials made side by side, where a strategy proposes several."
    )
    memory: Annotated[Number, Field(ge=0)] = Field(
        default=0.0, description="MiB that a trial's process may use; 0: no limit."
    )
    timeout: Annotated[Number, Field(ge=0)] = Field(
        default=0.0, description="Seconds that a trial may take in its process; 0: no limit."
    )
    address: Text | None = Field(
        default=None,
        description="Ray cluster to join; absent: one on this machine.",
        examples=["ray://head:10001"],
    )


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class TuningSection(Section):
    """The accuracy bar, how to search, when to stop."""

    strategy: Annotated[
        Strategy, BeforeValidator(_named, json_schema_input_type=Strategy | str)
    ] = Field(default=Strategy(), description="How to search.")
    accuracy_criterion: AccuracyCriterion = Field(
        default=AccuracyCriterion(), description="How much accuracy may be lost."
    )
    objective: ObjectiveWord = Field(
        default="performance", description="What to make best among models that hold the bar."
    )
    multi_objectives: MultiObjectives | None = Field(
        default=None, description="Several objectives, in place of `objective`."
    )
    exit_policy: ExitPolicy = Field(default=ExitPolicy(), description="When to stop.")
    executor: Annotated[
        Executor, BeforeValidator(_named, json_schema_input_type=Executor | str)
    ] = Field(default=Executor(), description="Where trials are made.")
    random_seed: Natural = Field(default=1978, description="All randomness comes from it.")
    tensorboard: Flag = Field(
        default=False, description="Write trials and the worst tensors for TensorBoard."
    )
    workspace: Workspace = Field(default=Workspace(), description="Where results are kept.")
    diagnosis: Flag = Field(default=False, description="Keep tensors for a closer look.")

    @model_validator(mode="after")
    def _one_objective(self) -> TuningSection:
        if self.multi_objectives is not None and "objective" in self.model_fields_set:
            raise wrong("given beside objective: keep one of them", key="multi_objectives")
        return self
