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
    Arguments,
    Flag,
    Flags,
    Known,
    Natural,
    Number,
    Numbers,
    Positive,
    Several,
    Share,
    Text,
    check_known,
    read_anything,
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
        "mixed_bits",
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
    """The search strategy and its options. A strategy of your own may have its own options."""

    model_config = ConfigDict(extra="allow")

    name: StrategyName = Field(
        default="basic",
        description="Name of the strategy. `strategy: basic` is short for `strategy: "
        "{name: basic}`.",
    )
    settle: Flag | None = Field(
        default=None,
        description="With `timeout: 0`, continue after the first model that meets the bar until "
        "the strategy ends by itself. If omitted: true for `auto`, `mse_v2`, `conservative` and "
        "`quant_level: auto`, which continue by design; two evaluations at most for `basic`, if "
        "several ops are in FP32; false for the others.",
    )
    sigopt_api_token: Text | None = Field(
        default=None, repr=False, description="Token of the SigOpt service; never stored."
    )
    sigopt_project_id: Text | None = Field(default=None, description="Project at SigOpt.")
    sigopt_experiment_name: Text = Field(
        default="lpot-tune", description="Name of the experiment at SigOpt."
    )
    accuracy_weight: Number = Field(
        default=1.0, description="Weight of accuracy in the loss of tpe."
    )
    latency_weight: Number = Field(default=1.0, description="Weight of latency in the loss of tpe.")
    confidence_batches: Positive = Field(
        default=2, description="Batches on which mse_v2 compares outputs."
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
        raise wrong(f"cannot be combined with {rivals[0]}: use one of them", key="bar")
    try:
        lost = share_lost(value["bar"])
    except ValueError as error:
        raise wrong(str(error), key="bar") from error
    return {**{key: item for key, item in value.items() if key != "bar"}, "relative": lost}


class AccuracyCriterion(Section):
    """How much accuracy may be lost compared to FP32: relative or absolute, not both."""

    relative: Share | None = Field(
        default=None,
        description="Share of the FP32 accuracy that may be lost, from 0 to below 1, such as 0.01 "
        "or '1%'. Default: 0.01, if `absolute` is not given either.",
        examples=[0.01],
    )
    absolute: Share | None = Field(
        default=None,
        description="Allowed loss in the metric's own unit, such as 0.5 or '1%'.",
        examples=[0.005],
    )
    bar: float | str | None = Field(
        default=None,
        description="Alternative to `relative`: the share of the FP32 accuracy to keep, such as "
        "'99%' or 0.999, or a preset: `mlperf` (99 %) or `mlperf_high` (99.9 %).",
        examples=["99.9%"],
    )
    higher_is_better: Flag = Field(
        default=True, description="Set to false for metrics such as a loss."
    )
    baseline_runs: Positive = Field(
        default=1,
        description="How often FP32 is evaluated. With two or more, lpot measures how much the "
        "evaluation itself varies and warns if that is too much for the bar.",
    )
    proven: Flag = Field(
        default=False,
        description="Meet the bar with proof: the search goes on until the loss lies within it by "
        "the lower bound of its interval (docs/evaluation.md). Needs a score per sample.",
    )
    really: Flag = Field(
        default=False,
        description="Yes, really: take a bar that lets most of the score go, a score that gains "
        "more than quantization can, or one that no model is needed for, without a question.",
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
                f"given {show(relative)}, a whole number, which could be a share or a percentage: "
                f"write {relative / 100:g} or '{relative}%' for {relative} %",
                key="relative",
            )
        return value

    @model_validator(mode="after")
    def _one_in_range(self) -> AccuracyCriterion:
        if self.relative is not None and self.absolute is not None:
            raise wrong("cannot be combined with relative: use one of them", key="absolute")
        if self.relative is not None and not -1 < self.relative < 1:
            raise wrong(
                f"given {self.relative:g}, expected from 0 to below 1, such as 0.01 or '1%'",
                key="relative",
            )
        for key, value in (("relative", self.relative), ("absolute", self.absolute)):
            if value is not None and value < 0:
                raise wrong(
                    f"given {value:g}, expected 0 or more: it is the allowed loss, "
                    "and a negative one would require a model better than FP32",
                    key=key,
                )
        return self


Objectives = Several[ObjectiveWord]


class MultiObjectives(Section):
    """Several objectives at once."""

    objective: Objectives = Field(default=(), description="The objectives.")
    weight: Numbers = Field(default=(), description="Weight of each.")
    higher_is_better: Flags = Field(default=(), description="Whether higher is better for each.")

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
            raise wrong(
                f"given {twice[0]} twice: list it once with a larger weight", key="objective"
            )
        if self.weight and (min(self.weight) < 0 or not any(self.weight)):
            raise wrong(
                f"given {', '.join(f'{value:g}' for value in self.weight)}, expected numbers of 0 "
                "or more, at least one of them above 0",
                key="weight",
            )
        return self


class ExitPolicy(Section):
    """When to stop."""

    timeout: Annotated[Number, Field(ge=0)] = Field(
        default=0.0,
        description="Time budget in seconds. 0 stops at the first model that meets the bar, or "
        "soon after; `strategy.settle` says when.",
    )
    max_trials: Positive = Field(
        default=100, description="Maximum number of models to try, including those of earlier runs."
    )
    performance_only: Flag = Field(
        default=False, description="Stop after the first model, whether it meets the bar or not."
    )


class Workspace(Section):
    """Where history and results are kept."""

    path: Text | None = Field(
        default=None,
        description="Folder. Default: `./lpot_workspace/<framework>/<name>/`.",
        examples=["./lpot_workspace/onnx/my_model/"],
    )
    resume: Text | None = Field(
        default=None,
        description="History to resume from.",
        examples=["./lpot_workspace/onnx/my_model/history.jsonl"],
    )
    trust_history: Flag = Field(
        default=False,
        description="Use the scores of an earlier run without evaluating FP32 again.",
    )


class RayOptions(Section):
    """What a trial asks of a Ray cluster."""

    num_cpus: Annotated[Number, Field(gt=0)] = Field(
        default=1.0, description="CPUs of one trial; its frameworks use as many threads."
    )
    resources: Arguments = Field(
        default=FrozenDict(),
        description="Other resources of one trial, as the nodes were started with.",
        examples=[{"big_memory": 1}],
    )
    labels: Arguments = Field(
        default=FrozenDict(),
        description="Labels that the node of a trial must have.",
        examples=[{"ray.io/node-group": "spot"}],
    )
    timed_labels: Arguments = Field(
        default=FrozenDict(),
        description="Labels of the nodes with the target CPU. If given, models are timed there, "
        "each with a node to itself, and accuracy is evaluated on the other nodes.",
        examples=[{"cpu": "sapphire-rapids"}],
    )
    runtime_env: Arguments = Field(
        default=FrozenDict(),
        description="Ray's runtime environment, such as `working_dir` and `pip`. If omitted, "
        "workers look for modules where the driver finds them.",
        examples=[{"working_dir": ".", "pip": ["lpot[onnx]"]}],
    )
    wait: Annotated[Number, Field(ge=0)] = Field(
        default=30.0,
        description="Seconds to wait for room in the cluster before giving up; more where nodes "
        "are started on demand.",
    )

    @model_validator(mode="after")
    def _sound(self) -> RayOptions:
        for key, value in self.resources.items():
            if isinstance(value, bool) or not isinstance(value, int | float) or value < 0:
                raise wrong(f"given {key}: {show(value)}, expected a number", key="resources")
        for where, labels in (("labels", self.labels), ("timed_labels", self.timed_labels)):
            for key, value in labels.items():
                if not isinstance(value, str):
                    raise wrong(f"given {key}: {show(value)}, expected text in quotes", key=where)
        return self


class Executor(Section):
    """Where trials run."""

    name: Literal["serial", "process", "ray"] = Field(
        default="serial",
        description="`serial`: in this process, one after another. `process`: in separate "
        "processes, so that a crash costs only one trial. `ray`: on a Ray cluster.",
    )
    workers: Positive = Field(
        default=1, description="Trials run in parallel, if the strategy proposes several."
    )
    memory: Annotated[Number, Field(ge=0)] = Field(
        default=0.0, description="Memory limit of a trial's process in MiB; 0 for none."
    )
    timeout: Annotated[Number, Field(ge=0)] = Field(
        default=0.0, description="Time limit of a trial in its process, in seconds; 0 for none."
    )
    address: Text | None = Field(
        default=None,
        description="Ray cluster to join. Default: one on this machine.",
        examples=["head:6379"],
    )
    ray: RayOptions = Field(
        default=RayOptions(), description="Resources each trial requests from the Ray cluster."
    )


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class TuningSection(Section):
    """The accuracy bar, the search, and when to stop."""

    strategy: Annotated[
        Strategy, BeforeValidator(_named, json_schema_input_type=Strategy | str)
    ] = Field(default=Strategy(), description="The search strategy.")
    accuracy_criterion: AccuracyCriterion = Field(
        default=AccuracyCriterion(), description="How much accuracy may be lost."
    )
    objective: ObjectiveWord = Field(
        default="performance", description="What to optimize among the models that meet the bar."
    )
    multi_objectives: MultiObjectives | None = Field(
        default=None, description="Several objectives instead of `objective`."
    )
    exit_policy: ExitPolicy = Field(default=ExitPolicy(), description="When to stop.")
    executor: Annotated[
        Executor, BeforeValidator(_named, json_schema_input_type=Executor | str)
    ] = Field(default=Executor(), description="Where trials run.")
    random_seed: Natural = Field(default=1978, description="Seed of all randomness.")
    tensorboard: Flag = Field(
        default=False, description="Write trials and the worst tensors to TensorBoard."
    )
    workspace: Workspace = Field(default=Workspace(), description="Where results are kept.")
    diagnosis: Flag = Field(
        default=False, description="Keep the tensors between ops, of FP32 and of the best model."
    )

    @model_validator(mode="after")
    def _one_objective(self) -> TuningSection:
        if self.multi_objectives is not None and "objective" in self.model_fields_set:
            raise wrong(
                "cannot be combined with objective: use one of them", key="multi_objectives"
            )
        return self
