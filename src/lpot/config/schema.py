"""The whole configuration, frozen. Each section has its own file, schema_<section>.py."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PrivateAttr

from lpot.config.fields import Arguments, Flag, read_number, wrong
from lpot.config.scalar import show
from lpot.config.schema_evaluation import EvaluationSection
from lpot.config.schema_model import (
    GraphOptimization,
    MixedPrecision,
    ModelConversion,
    ModelSection,
)
from lpot.config.schema_pruning import Distillation, Pruning
from lpot.config.schema_quantization import QuantizationSection
from lpot.config.schema_tuning import TuningSection
from lpot.config.section import Section

VERSIONS = (1.0, 2.0)


def _read_version(value: Any) -> float:
    number = read_number(value)
    if number not in VERSIONS:
        raise wrong(f"given {show(value)}, allowed: {' | '.join(map(str, VERSIONS))}")
    return number


@dataclass(frozen=True)
class Source:
    """Where a configuration came from. Two that say the same are equal wherever they came from."""

    file: str = field(default="", compare=False)
    lines: Mapping[str, int] = field(default_factory=dict, compare=False)

    def where(self, path: str) -> str:
        """`file:line` of a key, or of the nearest section around it."""
        if not self.file:
            return ""
        while path and path not in self.lines:
            path = path.rpartition(".")[0]
        return f"{self.file}:{self.lines[path]}" if path else self.file


class Config(Section):
    """All that a yaml file may say. Made by `lpot.config.load`."""

    model: ModelSection = Field(default=ModelSection(), description="Which model.")
    version: Annotated[
        float, BeforeValidator(_read_version, json_schema_input_type=float | str)
    ] = Field(
        default=1.0, description="Version of the file format: 1.0 or 2.0, which are equivalent."
    )
    device: Literal["cpu", "gpu"] = Field(default="cpu", description="Where the model runs.")
    quantization: QuantizationSection = Field(
        default=QuantizationSection(), description="How to quantize, and what is allowed."
    )
    use_bf16: Flag = Field(
        default=True, description="Allow ops to run in BF16 where the CPU and framework support it."
    )
    graph_optimization: GraphOptimization | None = Field(
        default=None, description="Lower-precision floating point, without quantization."
    )
    mixed_precision: MixedPrecision | None = Field(
        default=None, description="Newer name of `graph_optimization`."
    )
    model_conversion: ModelConversion | None = Field(
        default=None,
        description="Convert a model trained with fake quantization to a quantized one.",
    )
    tuning: TuningSection = Field(
        default=TuningSection(), description="The accuracy bar, the search, and when to stop."
    )
    evaluation: EvaluationSection = Field(
        default=EvaluationSection(), description="How accuracy and speed are measured."
    )
    pruning: Pruning | None = Field(
        default=None, description="Remove weights or channels while training."
    )
    distillation: Distillation | None = Field(
        default=None, description="Train a small model from a large one."
    )
    auto_distillation: Arguments | None = Field(
        default=None, description="Search for a small model, then distill into it."
    )
    nas: Arguments | None = Field(default=None, description="Search for an architecture.")

    _source: Source = PrivateAttr(default=Source())

    def model_post_init(self, context: Any) -> None:
        source = (context or {}).get("source")
        if source is not None:
            self._source = source

    @property
    def source(self) -> Source:
        """Which file it was read from, and the line of every key."""
        return self._source

    def where(self, path: str) -> str:
        """`file:line` of a key such as 'tuning.strategy'; empty when no file was read."""
        return self._source.where(path)
