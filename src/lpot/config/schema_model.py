"""`model`: which model, of which framework, and between which tensors."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field, WithJsonSchema

from lpot.config.fields import Known, Text, Texts, check_known
from lpot.config.section import Section
from lpot.core.framework import NAMES, known

FRAMEWORKS = Known(NAMES)
Framework = Annotated[
    Text,
    AfterValidator(check_known("frameworks", FRAMEWORKS, known)),
    WithJsonSchema({"anyOf": [{"enum": list(NAMES)}, {"type": "string"}]}),
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
