"""`model`: which model, in which framework, between which tensors."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, WithJsonSchema

from lpot.config.fields import Known, Several, Text, Texts, check_known
from lpot.config.frozen import FrozenDict
from lpot.config.schema_quantization import OpRules
from lpot.config.section import Section
from lpot.core.framework import NAMES, RUNTIMES, known, known_runtimes

FRAMEWORKS = Known(NAMES)
Framework = Annotated[
    Text,
    AfterValidator(check_known("frameworks", FRAMEWORKS, known)),
    WithJsonSchema({"anyOf": [{"enum": list(NAMES)}, {"type": "string"}]}),
    FRAMEWORKS,
]


KNOWN_RUNTIMES = Known(("native", "auto", *RUNTIMES))
Runtime = Annotated[
    Text,
    AfterValidator(
        check_known("runtimes", KNOWN_RUNTIMES, lambda: ("native", "auto", *known_runtimes()))
    ),
    WithJsonSchema({"anyOf": [{"enum": ["native", "auto", *RUNTIMES]}, {"type": "string"}]}),
    KNOWN_RUNTIMES,
]


class ModelSection(Section):
    """Which model. A file must give `name`, which sets where history is kept."""

    name: Text = Field(
        default="model",
        description="Name of the model. Together with the framework it sets where history and "
        "results are kept: `./lpot_workspace/<framework>/<name>/`. Required in a file.",
    )
    framework: Framework | None = Field(
        default=None,
        description="Framework of the model. Detected from the model if omitted. Other packages "
        "may add names.",
        examples=["onnx"],
    )
    runtime: Runtime = Field(
        default="native",
        description="What runs the tuned model: the framework's own runtime (`native`), another "
        "one, or the fastest of those that are installed (`auto`). In another runtime the model "
        "is tuned, evaluated and delivered as ONNX.",
        examples=["openvino"],
    )
    inputs: Texts = Field(
        default=(), description="Names of the input tensors, in the order they are passed."
    )
    outputs: Texts = Field(default=(), description="Names of the output tensors.")
    signature: Text = Field(
        default="",
        description="Which signature of a SavedModel to tune, where it has several and none is "
        "`serving_default`.",
        examples=["serve"],
    )
    trust: bool = Field(
        default=False,
        description="Whether to trust the model's file: it may read and write files or call Python "
        "while it runs, as some ops of TensorFlow do. Without it such a model is refused.",
    )


# -- Other floating-point formats, and the conversion of models trained with fake quantization.


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
