"""Other floating-point formats, and the conversion of models trained with fake quantization."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field

from lpot.config.fields import Several
from lpot.config.frozen import FrozenDict
from lpot.config.schema_quantization import OpRules
from lpot.config.section import Section

PrecisionWord = Literal["fp32", "bf16", "fp16"]
Precisions = Several[PrecisionWord]


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
