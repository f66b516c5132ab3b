"""`lpot tune-all`: many models, goals and targets in one file."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, ValidationError, model_validator

from lpot.config.fields import Number, Positive, Text, Texts, wrong
from lpot.config.mistakes import ConfigMistakes, mistakes_of
from lpot.config.read import read
from lpot.config.schema_tuning import RayOptions
from lpot.config.section import Section
from lpot.core.files.workspace import safe_name


class MatrixModel(Section):
    """One model, and what it is calibrated and evaluated with."""

    name: Text = Field(description="Its name in the table, and its folder in the workspace.")
    model: Text = Field(description="A file, or `pkg.mod:factory`.")
    config: Text | None = Field(default=None, description="A yaml file with all other settings.")
    calib: Text | None = Field(default=None, description="A data loader: `pkg.mod:name`.")
    eval: Text | None = Field(default=None, description="The evaluation: `pkg.mod:function`.")
    goals: Texts = Field(default=(), description="Its own goals instead of the common ones.")
    targets: Texts = Field(default=(), description="Its own targets instead of the common ones.")
    priority: Annotated[Number, Field(gt=0)] = Field(
        default=1.0,
        description="Models with a higher priority come first and get more of the time.",
    )


class Matrix(Section):
    """Every model is tuned for every goal on every target."""

    workspace: Text = Field(default="lpot_matrix", description="Folder or URL of all results.")
    models: tuple[MatrixModel, ...] = Field(description="The models.")
    goals: Texts = Field(default=("1%",), description="Accuracy losses allowed: `1%`, `0.1%` …")
    targets: Texts = Field(default=("this",), description="CPUs: this, avx2, vnni, amx.")
    timeout: Annotated[Number, Field(ge=0)] = Field(
        default=0.0,
        description="Seconds in total; 0 stops each at the first model that meets the bar.",
    )
    workers: Positive = Field(default=1, description="Models tuned in parallel.")
    executor: Literal["process", "ray"] = Field(default="process", description="Where they run.")
    address: Text | None = Field(default=None, description="The Ray cluster to join.")
    ray: RayOptions = Field(
        default=RayOptions(), description="Resources each model needs on a node."
    )
    measure_speed: bool = Field(default=True, description="Measure the speed of each result.")

    @model_validator(mode="after")
    def _names_differ(self) -> Matrix:
        if not self.models:
            raise wrong("given none, expected at least one model", key="models")
        twice = [name for name, count in Counter(m.name for m in self.models).items() if count > 1]
        if twice:
            raise wrong(
                f"given the name {twice[0]!r} twice: their results would be mixed up", key="models"
            )
        places: dict[str, str] = {}
        for model in self.models:
            for goal in model.goals or self.goals:
                for target in model.targets or self.targets:
                    told = f"{model.name} · {goal} · {target}"
                    other = places.setdefault(place_of(model.name, goal, target).casefold(), told)
                    if other is not told:
                        raise wrong(
                            f"given {other!r} and {told!r}, which would share a folder: "
                            "give names that differ in letters or digits",
                            key="models",
                        )
        return self


def place_of(model: str, goal: str, target: str) -> str:
    """The folder of a result, inside of the workspace.

    >>> place_of("net/1", "1%", "this")
    'net_1/1_-this'
    """
    return f"{safe_name(model)}/{safe_name(goal)}-{safe_name(target)}"


def load_matrix(path: Path) -> Matrix:
    """The file as a Matrix, or one error that tells every mistake with its line."""
    document = read(path)
    if document.mistakes:
        raise ConfigMistakes(document, list(document.mistakes))
    data: Any = document.data
    try:
        return Matrix.model_validate(data)
    except ValidationError as error:
        raise ConfigMistakes(document, mistakes_of(error, document, Matrix)) from None
