"""Sections that several others share: dataloader, postprocess, configs, train."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, BeforeValidator, Field

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
        raise wrong(f"given {value}, expected a number of batches, or -1 for all of them")
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
    """One dataset's name and its arguments; the name of a class of your own will do too."""

    what: ClassVar[str] = "dataset"


class BalanceArguments(Section):
    size: Natural = Field(description="The number of boxes.")


class Filter(OneOf):
    """One filter's name and its arguments."""

    what: ClassVar[str] = "filter"
    LabelBalance: BalanceArguments | None = Field(
        default=None, description="Keeps the images that have exactly so many boxes."
    )


class Dataloader(Section):
    """Where batches come from when the program gives no loader of its own."""

    batch_size: Positive = Field(default=1, description="Samples a batch.")
    last_batch: Literal["rollover", "discard"] = Field(
        default="rollover", description="What becomes of a short last batch: kept, or left out."
    )
    shuffle: Flag = Field(default=False, description="Shuffle the samples, by tuning.random_seed.")
    num_workers: Natural = Field(default=0, description="Threads that read ahead; 0: none.")
    distributed: Flag = Field(
        default=False, description="Accepted; each process loads the whole dataset."
    )
    dataset: Dataset = Field(
        description="Exactly one dataset: its name, and below it its arguments.",
        examples=[{"CIFAR10": {"root": "/path/to/data"}}],
    )
    filter: Filter | None = Field(default=None, description="Which samples of the dataset to use.")
    transform: Steps = Field(
        default=FrozenDict(),
        description="Steps applied to each sample, in the order written: name, and its arguments.",
        examples=[{"Resize": {"size": 256}, "CenterCrop": {"size": 224}}],
    )


class Postprocess(Section):
    """What is done with the model's outputs before the metric sees them."""

    transform: PostSteps = Field(
        default=FrozenDict(),
        description="Steps in the order written, such as `LabelShift: 1` or "
        "`SquadV1: {label_file: dev.json, vocab_file: vocab.txt}`.",
        examples=[{"LabelShift": 1}],
    )


class Configs(Section):
    """How a measurement uses the processor."""

    cores_per_instance: Positive | None = Field(default=None, description="Cores of an instance.")
    num_of_instance: Positive = Field(default=1, description="Instances that run side by side.")
    inter_num_of_threads: Positive | None = Field(
        default=None, description="Threads between ops, where the framework has them."
    )
    intra_num_of_threads: Positive | None = Field(default=None, description="Threads inside an op.")
    kmp_blocktime: Natural | None = Field(
        default=None, description="Milliseconds an idle OpenMP thread spins (KMP_BLOCKTIME)."
    )
    kmp_affinity: Text | None = Field(
        default=None,
        description="How OpenMP threads are bound to cores (KMP_AFFINITY).",
        examples=["granularity=fine,verbose,compact,1,0"],
    )


class SgdArguments(Section):
    learning_rate: Number = Field(description="Step width.", examples=[0.001])
    momentum: Number = Field(default=0.0, description="Share of the last step that is kept.")
    nesterov: Flag = Field(default=False, description="Look ahead by the momentum.")
    weight_decay: Number = Field(default=0.0, description="Pull of the weights towards zero.")


class Optimizer(OneOf):
    """One optimizer's name and its arguments."""

    what: ClassVar[str] = "optimizer"
    SGD: SgdArguments | None = Field(default=None, description="Stochastic gradient descent.")


class CrossEntropyArguments(Section):
    reduction: Literal["mean", "none", "sum"] = Field(
        default="mean", description="How the losses of a batch become one."
    )


class Criterion(OneOf):
    """One loss's name and its arguments."""

    what: ClassVar[str] = "criterion"
    CrossEntropyLoss: CrossEntropyArguments | None = Field(
        default=None, description="Cross entropy."
    )


class Train(Section):
    """Training, where an approach needs it."""

    optimizer: Optimizer | None = Field(default=None, description="Exactly one optimizer.")
    criterion: Criterion | None = Field(default=None, description="Exactly one loss.")
    dataloader: Dataloader | None = Field(default=None, description="Training batches.")
    start_epoch: Natural = Field(default=0, description="First epoch.")
    end_epoch: Natural | None = Field(default=None, description="Last epoch.")
    iteration: Positive | None = Field(default=None, description="Batches an epoch.")
    frequency: Positive | None = Field(default=None, description="Epochs between two steps.")
    hostfile: Text | None = Field(default=None, description="Hosts of a distributed training.")
