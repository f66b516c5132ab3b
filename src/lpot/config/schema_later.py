"""Sections whose work is still to come: they are read in full, and said to be not available yet."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, model_validator

from lpot.config.fields import Arguments, Natural, Number, Positive, Text, Texts, split, wrong
from lpot.config.frozen import FrozenDict
from lpot.config.schema_data import Train
from lpot.config.schema_quantization import OpRules
from lpot.config.section import Section

PrecisionWord = Literal["fp32", "bf16", "fp16"]
PruneType = Literal["basic_magnitude", "pattern_lock", "gradient_sensitivity"]
Precisions = Annotated[
    tuple[PrecisionWord, ...],
    BeforeValidator(split, json_schema_input_type=PrecisionWord | list[PrecisionWord] | str),
]
Sparsity = Annotated[Number, Field(ge=0, lt=1)]


def lowered(value: Any) -> Any:
    """The original writes QAT."""
    return value.lower() if isinstance(value, str) else value


class GraphOptimization(Section):
    """Lower-precision floating point, without quantization."""

    precisions: Precisions = Field(default=("fp32",), description="Allowed data types.")
    op_wise: OpRules = Field(
        default=FrozenDict(),
        description="Allowed settings for single ops.",
        examples=[{"conv1": {"activation": {"dtype": ["fp32"]}}}],
    )


class MixedPrecision(Section):
    """Newer name of `graph_optimization`."""

    precisions: Precisions = Field(default=("fp32",), description="Allowed data types.")


class ModelConversion(Section):
    """Convert a model trained with fake quantization to a quantized one."""

    source: Annotated[Literal["qat"], BeforeValidator(lowered)] = Field(
        default="qat", description="Source format."
    )
    destination: Literal["default"] = Field(default="default", description="Target format.")


class Pruner(Section):
    """One pruner; in files it may carry the tag !Pruner."""

    start_epoch: Natural | None = Field(default=None, description="First epoch.")
    end_epoch: Natural | None = Field(default=None, description="Last epoch.")
    initial_sparsity: Sparsity | None = Field(
        default=None, description="Share of zeros at the start."
    )
    target_sparsity: Sparsity | None = Field(default=None, description="Share of zeros at the end.")
    update_frequency: Positive = Field(default=1, description="Epochs between steps.")
    prune_type: PruneType = Field(default="basic_magnitude", description="Criterion for pruning.")
    method: Text = Field(default="per_tensor", description="Scope over which sparsity is computed.")
    names: Texts = Field(default=(), description="Weights to prune. Default: all of them.")
    parameters: Arguments = Field(default=FrozenDict(), description="Options of the prune type.")


class WeightCompression(Section):
    """Pruning by weights."""

    initial_sparsity: Sparsity = Field(default=0.0, description="Share of zeros at the start.")
    target_sparsity: Sparsity = Field(default=0.97, description="Share of zeros at the end.")
    start_epoch: Natural = Field(default=0, description="First epoch.")
    end_epoch: Natural = Field(default=4, description="Last epoch.")
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
    def _in_order(self) -> WeightCompression:
        if self.start_epoch > self.end_epoch:
            raise wrong(f"given {self.end_epoch}, before start_epoch", key="end_epoch")
        if self.initial_sparsity > self.target_sparsity:
            raise wrong(
                f"given {self.target_sparsity:g}, below initial_sparsity", key="target_sparsity"
            )
        return self


class PruningApproach(Section):
    weight_compression: WeightCompression | None = Field(
        default=None, description="Pruning by weights."
    )


class Pruning(Section):
    """Set weights to zero."""

    train: Train | None = Field(default=None, description="Training while pruning.")
    approach: PruningApproach = Field(default=PruningApproach(), description="What to prune.")
    magnitude: Arguments | None = Field(default=None, description="Pruners of the oldest files.")


class Distillation(Section):
    """Train a small model from a large one."""

    train: Train | None = Field(default=None, description="Training of the small model.")
