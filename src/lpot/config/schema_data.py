"""Sections that several others share: dataloader, postprocess, configs, train."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field, field_validator

from lpot.config.fields import (
    Anything,
    Flag,
    Natural,
    Number,
    Positive,
    Text,
    Whole,
    read_entries,
    wrong,
)
from lpot.config.frozen import FrozenDict
from lpot.config.section import OneOf, Section


def _check_squad(steps: dict[str, Any]) -> dict[str, Any]:
    for name in ("SquadV1", "SquadV1ModelZoo"):
        given = steps.get(name) or {}
        needed = [key for key in ("label_file", "vocab_file") if key not in given]
        if name in steps and needed:
            raise wrong(f"{name} needs {' and '.join(needed)}", key=name)
    return steps


def _check_iteration(value: int) -> int:
    if value < 1 and value != -1:
        raise wrong(f"given {value}, expected a number of batches, or -1 for all")
    return value


Iteration = Annotated[Whole, AfterValidator(_check_iteration)]
# Order matters: steps are applied as they are written.
Steps = Annotated[
    dict[str, Anything],
    BeforeValidator(read_entries, json_schema_input_type=dict[str, Any]),
    AfterValidator(FrozenDict),
]
PostSteps = Annotated[Steps, AfterValidator(_check_squad)]


class Dataset(OneOf):
    """One dataset's name and its arguments; a class of your own works too."""

    what: ClassVar[str] = "dataset"


class BalanceArguments(Section):
    size: Natural = Field(description="The number of boxes.")


class Filter(OneOf):
    """One filter's name and its arguments."""

    what: ClassVar[str] = "filter"
    LabelBalance: BalanceArguments | None = Field(
        default=None, description="Keep images that have exactly this many boxes."
    )


class Dataloader(Section):
    """Where batches come from if the program provides no loader."""

    batch_size: Positive = Field(default=1, description="Samples per batch.")
    last_batch: Literal["rollover", "discard"] = Field(
        default="rollover", description="Whether a short last batch is kept or dropped."
    )
    shuffle: Flag = Field(
        default=False, description="Shuffle the samples, seeded by tuning.random_seed."
    )
    num_workers: Natural = Field(default=0, description="Prefetching threads; 0 for none.")
    distributed: Flag = Field(
        default=False, description="Accepted, but each process loads the whole dataset."
    )
    dataset: Dataset = Field(
        description="Exactly one dataset: its name, with its arguments below it.",
        examples=[{"CIFAR10": {"root": "/path/to/data"}}],
    )
    filter: Filter | None = Field(default=None, description="Which samples of the dataset to use.")
    transform: Steps = Field(
        default=FrozenDict(),
        description="Steps applied to each sample, in order: a name with its arguments.",
        examples=[{"Resize": {"size": 256}, "CenterCrop": {"size": 224}}],
    )


class Postprocess(Section):
    """How the model's outputs are processed before the metric sees them."""

    transform: PostSteps = Field(
        default=FrozenDict(),
        description="Steps in order, such as `LabelShift: 1` or "
        "`SquadV1: {label_file: dev.json, vocab_file: vocab.txt}`.",
        examples=[{"LabelShift": 1}],
    )


class Configs(Section):
    """How a measurement uses the CPU."""

    cores_per_instance: Positive | None = Field(default=None, description="Cores per instance.")
    num_of_instance: Positive = Field(default=1, description="Instances that run in parallel.")
    inter_num_of_threads: Positive | None = Field(
        default=None, description="Threads across ops, where the framework supports them."
    )
    intra_num_of_threads: Positive | None = Field(default=None, description="Threads within an op.")
    kmp_blocktime: Natural | None = Field(
        default=None,
        description="Milliseconds an idle OpenMP thread keeps spinning (KMP_BLOCKTIME).",
    )
    kmp_affinity: Text | None = Field(
        default=None,
        description="How OpenMP threads are bound to cores (KMP_AFFINITY).",
        examples=["granularity=fine,verbose,compact,1,0"],
    )


class SgdArguments(Section):
    learning_rate: Number = Field(description="Step size.", examples=[0.001])
    momentum: Number = Field(default=0.0, description="Momentum.")
    nesterov: Flag = Field(default=False, description="Use Nesterov momentum.")
    weight_decay: Number = Field(default=0.0, description="Weight decay.")


class AdamArguments(Section):
    learning_rate: Number = Field(default=1e-3, gt=0, description="Step size.")
    weight_decay: Number = Field(default=0.0, ge=0, description="Weight decay.")


class Optimizer(OneOf):
    """One optimizer's name and its arguments; one that you registered works too."""

    what: ClassVar[str] = "optimizer"
    SGD: SgdArguments | None = Field(default=None, description="Stochastic gradient descent.")
    Adam: AdamArguments | None = Field(default=None, description="Adam.")
    AdamW: AdamArguments | None = Field(default=None, description="Adam with decoupled decay.")


def _lowered(value: Any) -> Any:
    """The original's own examples write `None`."""
    return "none" if value is None else value.lower() if isinstance(value, str) else value


class CrossEntropyArguments(Section):
    reduction: Annotated[Literal["mean", "none", "sum"], BeforeValidator(_lowered)] = Field(
        default="mean", description="How the losses of a batch are combined."
    )


class DistillationArguments(Section):
    temperature: Number = Field(
        default=1.0, gt=0, description="Temperature of the softened outputs."
    )
    loss_types: tuple[Literal["CE", "KL"], ...] = Field(
        default=("CE", "KL"),
        description="No effect: the loss is always CE for the labels and KL for the teacher.",
    )
    loss_weights: tuple[Number, ...] = Field(
        default=(0.5, 0.5), description="Weights of the label loss and the teacher loss."
    )

    @field_validator("loss_weights")
    @classmethod
    def _two(cls, value: tuple[float, ...]) -> tuple[float, ...]:
        if len(value) != 2 or min(value) < 0 or not sum(value):
            raise wrong(f"given {list(value)}, expected two weights, e.g. [0.5, 0.5]")
        return value


class Criterion(OneOf):
    """One loss's name and its arguments; one that you registered works too."""

    what: ClassVar[str] = "criterion"
    CrossEntropyLoss: CrossEntropyArguments | None = Field(
        default=None, description="Cross entropy."
    )
    KnowledgeDistillationLoss: DistillationArguments | None = Field(
        default=None, description="Labels and the teacher's softened outputs, for `distillation`."
    )


class Train(Section):
    """Training, for approaches that need it."""

    optimizer: Optimizer | None = Field(default=None, description="Exactly one optimizer.")
    criterion: Criterion | None = Field(default=None, description="Exactly one loss.")
    dataloader: Dataloader | None = Field(default=None, description="Training batches.")
    start_epoch: Natural = Field(default=0, description="First epoch.")
    end_epoch: Natural | None = Field(default=None, description="Last epoch.")
    iteration: Positive | None = Field(default=None, description="Batches per epoch.")
    frequency: Positive | None = Field(default=None, description="Epochs between steps.")
    learning_rate_decay: Literal["cosine"] | None = Field(
        default=None,
        description="How the learning rate falls: `cosine` takes it to zero at `end_epoch`. "
        "Default: it stays constant.",
    )
    hostfile: Text | None = Field(default=None, description="Hosts for distributed training.")
