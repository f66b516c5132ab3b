"""What is handed to a benchmark, as contestants: files, model handles, factories."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from itertools import count
from pathlib import Path

from lpot.core.errors import ConfigError, UnsupportedModel, did_you_mean
from lpot.core.model import Model
from lpot.jobs.benchmark.contestant import Contestant
from lpot.jobs.execute.dump import DUMP_ERRORS, dump

Source = str | Path | Model | Contestant

_FACTORY = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def contestants(models: Sequence[Source], folder: Path) -> list[Contestant]:
    """Everything as a contestant with a label of its own: the file's name where that is enough."""
    found = [_contestant(model, folder / f"model{index}") for index, model in enumerate(models)]
    names = [Path(one.source).name for one in {one.source: one for one in found}.values()]
    made: list[Contestant] = []
    for one in found:
        name = Path(one.source).name
        label = one.label or (name if names.count(name) == 1 else one.source)
        made.append(replace(one, label=fresh(label, [other.label for other in made])))
    return made


def fresh(label: str, taken: Sequence[str]) -> str:
    """The label, numbered where another has it already."""
    words = (f"{label} #{number}" if number > 1 else label for number in count(1))
    return next(word for word in words if word not in taken)


def _contestant(model: Source, folder: Path) -> Contestant:
    if isinstance(model, Contestant):
        return model
    if isinstance(model, Model):
        return saved(model, folder)
    path = Path(model)
    if path.exists() or path.with_name(f"{path.name}-symbol.json").exists():  # MXNet's prefix
        return Contestant(str(model))
    if _FACTORY.fullmatch(str(model)):
        return Contestant(str(model), "callable")
    names = [other.name for other in path.parent.iterdir()] if path.parent.is_dir() else []
    raise ConfigError(
        f"{str(model)!r} is neither a file or folder that exists nor pkg.mod:factory"
        f"{did_you_mean(path.name, names)}",
        "models",
    )


def saved(model: Model, folder: Path) -> Contestant:
    """A model in memory, written down for its processes unless it lies in a file already."""
    label = "FP32" if model.recipe is None else "tuned"
    if model.file is not None:
        return Contestant(str(model.file), label=label, framework=model.framework)
    folder.mkdir()
    skeleton, place = model.skeleton, None
    if skeleton is not None:
        place = folder / "skeleton"
        try:
            place.write_bytes(dump(skeleton))
        except DUMP_ERRORS as error:
            raise UnsupportedModel(
                f"{type(skeleton).__name__} can't be sent to another process ({error}): define its "
                "class at the top of a module"
            ) from error
    path = model.save(folder / "saved" if skeleton is not None else folder)
    if skeleton is None and not model.describes_itself(path):
        raise UnsupportedModel(
            "the FP32 module that the model was made from is gone, and another process needs its "
            "architecture: keep it, or save the model and open it again with the FP32 module"
        )
    return Contestant(
        str(path),
        label=label,
        framework=model.framework,
        skeleton=None if place is None else str(place),
    )
