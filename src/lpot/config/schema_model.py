"""`model`: which model, of which framework, and between which tensors."""

from __future__ import annotations

from importlib.metadata import entry_points
from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from lpot.config.fields import Known, Text, Texts, check_known
from lpot.config.section import Section

ENTRY_POINTS = "lpot.backends"

FRAMEWORKS = Known(
    (
        "tensorflow",
        "tensorflow_itex",
        "pytorch",
        "pytorch_fx",
        "pytorch_ipex",
        "onnxrt_qlinearops",
        "onnxrt_integerops",
        "onnx",
        "mxnet",
    )
)


def installed_frameworks() -> tuple[str, ...]:
    """Names that other packages registered under our entry point group."""
    return tuple(entry.name for entry in entry_points(group=ENTRY_POINTS))


Framework = Annotated[
    Text,
    AfterValidator(check_known("frameworks", FRAMEWORKS, installed_frameworks)),
    WithJsonSchema({"anyOf": [{"enum": list(FRAMEWORKS.words)}, {"type": "string"}]}),
    FRAMEWORKS,
]


class ModelSection(Section):
    """Which model. In a file `name` must be given: it decides where history is kept."""

    name: Text = Field(
        default="model",
        description="Name of the model. With the framework it decides where history and results "
        "are kept: `./lpot_workspace/<framework>/<name>/`. A file must give it.",
    )
    framework: Framework | None = Field(
        default=None,
        description="Framework that serves the model. Absent: found out from the model itself. "
        "Other packages may add names.",
        examples=["onnx"],
    )
    inputs: Texts = Field(
        default=(), description="Names of the input tensors, in the order they are fed."
    )
    outputs: Texts = Field(default=(), description="Names of the output tensors.")
