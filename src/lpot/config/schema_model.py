"""`model`: which model, in which framework, between which tensors."""

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
