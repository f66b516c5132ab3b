"""`pruning`: weights set to zero, as the original has it, and channels removed for good;
`distillation`: a small model trained after a large one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from lpot.config.fields import (
    Arguments,
    Flag,
    Natural,
    Number,
    Positive,
    Text,
    Texts,
    read_entries,
    split,
    wrong,
)
from lpot.config.frozen import FrozenDict
from lpot.config.schema_data import Train
from lpot.config.section import Section

PruneType = Literal["basic_magnitude", "pattern_lock", "gradient_sensitivity", "group_lasso"]
Sparsity = Annotated[Number, Field(ge=0, lt=1)]


def _shares(value: Any) -> Any:
    if isinstance(value, str):
        return split(value)
    return value if isinstance(value, list | tuple) else [value]


def _some(values: tuple[float, ...]) -> tuple[float, ...]:
    bad = [value for value in values if not 0 < value < 1]
    if bad or not values:
        given = bad[0] if bad else "none"
        raise wrong(f"given {given}, expected shares of the latency between 0 and 1, e.g. 0.35")
    return values


Shares = Annotated[
    tuple[Number, ...],
    BeforeValidator(_shares, json_schema_input_type=float | list[float] | str),
    AfterValidator(_some),
]


def _in_order(section: Any) -> None:
    """What is set must not contradict itself."""
    start, end = section.start_epoch, section.end_epoch
    if start is not None and end is not None and start > end:
        raise wrong(
            f"given {end}, before start_epoch ({start}): expected {start} or later", key="end_epoch"
        )
    low, high = section.initial_sparsity, section.target_sparsity
    if low is not None and high is not None and low > high:
        raise wrong(
            f"given {high:g}, below initial_sparsity ({low:g}): expected a share of zeros from "
            f"{low:g} to below 1",
            key="target_sparsity",
        )


class Pruner(Section):
    """One pruner; in files it may carry the tag !Pruner. What it leaves out is as above it."""

    start_epoch: Natural | None = Field(default=None, description="First epoch.")
    end_epoch: Natural | None = Field(default=None, description="Last epoch.")
    initial_sparsity: Sparsity | None = Field(
        default=None, description="Share of zeros at the start."
    )
    target_sparsity: Sparsity | None = Field(default=None, description="Share of zeros at the end.")
    update_frequency: Number | None = Field(
        default=None, gt=0, description="Epochs between steps; a fraction counts as 1."
    )
    prune_type: PruneType = Field(default="basic_magnitude", description="Criterion for pruning.")
    method: Text = Field(default="per_tensor", description="Scope over which sparsity is computed.")
    names: Texts = Field(
        default=(),
        description="Weights to prune: their names, those of layers or of parts of the model, `*` "
        "for any one part of a name. Default: all of them.",
    )
    parameters: Arguments = Field(default=FrozenDict(), description="Options of the prune type.")

    @model_validator(mode="after")
    def _checked(self) -> Pruner:
        _in_order(self)
        return self


class WeightCompression(Section):
    """Weights set to zero while the model is trained."""

    initial_sparsity: Sparsity = Field(default=0.0, description="Share of zeros at the start.")
    target_sparsity: Sparsity = Field(default=0.97, description="Share of zeros at the end.")
    start_epoch: Natural = Field(default=0, description="First epoch.")
    end_epoch: Positive = Field(default=4, description="Last epoch.")
    frequency: Positive = Field(default=1, description="Epochs between steps.")
    refit: Flag = Field(
        default=True,
        description="Whether the weights that are left are fitted to the outputs of the full "
        "model's layers, whenever more became zero. PyTorch, with `pruning.train`.",
    )
    pruners: tuple[Pruner, ...] = Field(
        default=(),
        description="A list of pruners.",
        examples=[
            [
                {
                    "start_epoch": 0,
                    "end_epoch": 4,
                    "initial_sparsity": 0.0,
                    "target_sparsity": 0.9,
                    "update_frequency": 1,
                    "prune_type": "basic_magnitude",
                    "method": "per_tensor",
                    "names": ["conv1.weight"],
                    "parameters": {"pattern": "tile_pattern_1x1"},
                }
            ]
        ],
    )

    @model_validator(mode="after")
    def _checked(self) -> WeightCompression:
        _in_order(self)
        return self


class StructuredPruning(Section):
    """Channels, heads and blocks of layers removed for good, chosen by sensitivity per latency
    gained; what is left is trained after the FP32 model and quantized, under one accuracy bar."""

    ratio: Shares = Field(
        default=(0.5, 0.35, 0.2),
        description="Shares of the latency to remove. Each is tried, the largest first; the first "
        "that meets the bar wins.",
    )
    blocks: Flag = Field(
        default=True, description="Whether whole residual blocks and encoder layers may be removed."
    )
    samples: Positive = Field(default=128, description="Samples that sensitivity is measured on.")
    batch_size: Positive | None = Field(
        default=None,
        description="Batch size at which latency is measured. Default: a training batch.",
    )
    epochs: Positive = Field(default=10, description="Epochs of fine-tuning with distillation.")
    learning_rate: Number = Field(
        default=1e-3,
        gt=0,
        description="Peak learning rate: of Muon (convolutions) and AdamW (all else) in PyTorch, "
        "of AdamW for Keras models.",
    )
    temperature: Number = Field(
        default=4.0, gt=0, description="Temperature of the softened outputs."
    )
    logits: Number = Field(
        default=1.0,
        ge=0,
        description="Weight of the loss on softened outputs. 0 compares intermediate layers alone, "
        "which overfits less on few images.",
    )
    features: Number = Field(
        default=1.0, ge=0, description="Weight of the loss on intermediate layers."
    )
    labels: Number = Field(
        default=0.0, ge=0, description="Weight of the cross entropy with the labels."
    )
    mixup: Flag = Field(
        default=True, description="Blend images within a batch, for both teacher and student."
    )


class PruningApproach(Section):
    """What is pruned: weights, which stay in their places as zeros, or whole channels."""

    weight_compression: WeightCompression | None = Field(
        default=None, description="Weights set to zero."
    )
    structured: StructuredPruning | None = Field(
        default=None,
        description="Channels, heads and blocks of layers permanently removed (torch modules, "
        "Keras models).",
    )

    @model_validator(mode="before")
    @classmethod
    def _named_alone(cls, value: Any) -> Any:
        """A way that is named and nothing else: all its defaults."""
        if not isinstance(value, Mapping):
            return value
        return {key: {} if one is None else one for key, one in value.items()}


class MagnitudePruner(Section):
    """One pruner of the oldest files."""

    weights: Texts = Field(default=(), description="Weights to prune. Default: all of them.")
    target_sparsity: Sparsity | None = Field(default=None, description="Share of zeros at the end.")
    init_sparsity: Sparsity | None = Field(default=None, description="Share of zeros at the start.")
    start_epoch: Natural | None = Field(default=None, description="First epoch.")
    end_epoch: Natural | None = Field(default=None, description="Last epoch.")


Pruners = Annotated[
    dict[str, MagnitudePruner],
    BeforeValidator(read_entries, json_schema_input_type=dict[str, MagnitudePruner]),
    AfterValidator(FrozenDict),
]


class Pruning(Section):
    """Remove weights while training."""

    train: Train | None = Field(default=None, description="Training while pruning.")
    approach: PruningApproach = Field(default=PruningApproach(), description="What to prune.")
    magnitude: Pruners = Field(
        default=FrozenDict(),
        description="Pruners by name, as in the oldest files.",
        examples=[{"prune1": {"weights": ["conv1.weight"], "target_sparsity": 0.3}}],
    )
    start_epoch: Natural = Field(default=0, description="First epoch, for `magnitude`.")
    end_epoch: Positive = Field(default=4, description="Last epoch, for `magnitude`.")
    frequency: Positive = Field(default=1, description="Epochs between steps, for `magnitude`.")
    init_sparsity: Sparsity = Field(
        default=0.0, description="Share of zeros at the start, for `magnitude`."
    )
    target_sparsity: Sparsity = Field(
        default=0.97, description="Share of zeros at the end, for `magnitude`."
    )


class Distillation(Section):
    """Train a small model from a large one."""

    train: Train | None = Field(default=None, description="Training of the small model.")
