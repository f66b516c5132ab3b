"""Writing a model as plain tensors and JSON, and making the same model from them again.

The folder also holds the original tool's two files (see checkpoint.py), for the scripts that look
for them.
"""

from __future__ import annotations

import importlib
import json
import logging
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import nn

from lpot.backends.torch.abilities import worst_error
from lpot.backends.torch.checkpoint import write_checkpoint
from lpot.backends.torch.describe import Described, describe, rebuild
from lpot.backends.torch.load import empty_module
from lpot.backends.torch.model import TorchModel
from lpot.core.card import compare_card, read_card, write_card
from lpot.core.errors import BackendUnavailable, UnsupportedModel, WorkspaceError
from lpot.core.overflow import overflow_of

if TYPE_CHECKING:
    from lpot.backends.torch import TorchBackend

logger = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"
FACTS = "lpot.json"


def save(model: TorchModel, path: Path) -> Path:
    """A folder: model.safetensors, lpot.json (how ops run), the original's two files, and
    transformers' config.json; the card lies beside it."""
    if path.is_file():
        raise WorkspaceError(f"{path} is a file: a torch model is saved as a folder")
    described = describe(model)
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".lpot-", dir=path) as folder:
            draft = Path(folder)
            write(described, model.native, draft)
            write_checkpoint(described, model.recipe, draft)
            _verify(model, draft)
            for piece in sorted(draft.iterdir()):
                with piece.open("rb") as stream:
                    os.fsync(stream.fileno())
                piece.replace(path / piece.name)
    except OSError as error:
        raise WorkspaceError(
            f"{path}: can't write the model ({error.strerror or error})"
        ) from error
    write_card(model, path)
    return path


def write(described: Described, native: nn.Module, folder: Path) -> None:
    _safetensors().torch.save_file(described.tensors, folder / WEIGHTS, metadata={"format": "pt"})
    (folder / FACTS).write_text(json.dumps(described.facts, indent=1) + "\n", encoding="utf-8")
    config = getattr(native, "config", None)
    if _is_transformers(native) and config is not None:
        config.architectures = [type(native).__name__]
        config.save_pretrained(folder)


def _is_transformers(native: nn.Module) -> bool:
    return type(native).__module__.startswith("transformers.")


def _verify(model: TorchModel, draft: Path) -> None:
    """Make the model again from what was written and compare outputs, bit for bit."""
    if model.probe is None or model.origin is None:
        return
    again = read(model.backend, draft, model.origin.root)
    expected = model.backend.run(model, model.probe)
    found = model.backend.run(again, model.probe)
    same = len(expected) == len(found) and all(map(_equal, expected, found))
    if not same:
        raise WorkspaceError(
            "the saved model gives other outputs than the one in memory; it was not kept. "
            "Does its forward draw random numbers? Otherwise please report this with the model"
        )


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def restore(backend: TorchBackend, path: Path, module: nn.Module | None = None) -> TorchModel:
    """The model that `save` wrote; of `module` only the architecture matters."""
    if not (path / FACTS).is_file():
        raise UnsupportedModel(
            f"{path}: no {FACTS} in it, so it is no folder written by lpot for torch"
        )
    if module is None:
        if not (path / "config.json").is_file():
            name = _read_facts(path).get("class", "the model")
            raise UnsupportedModel(
                f"{path}: tensors alone don't say what to compute: give the architecture too, "
                f"restore(path, module) with a freshly made {name}"
            )
        module = empty_module(path)
    model = read(backend, path, module)
    card = read_card(path)
    compare_card(card, path, backend.versions())
    model.met = card.get("met")
    if trouble := overflow_of(model.recipe, lambda kind: worst_error()):
        logger.warning("%s: %s", path, trouble)
    return model


def read(backend: TorchBackend, path: Path, module: nn.Module) -> TorchModel:
    facts = _read_facts(path)
    package = _safetensors()
    try:
        tensors = package.torch.load_file(path / WEIGHTS)
    except (OSError, package.SafetensorError) as error:
        raise UnsupportedModel(f"{path / WEIGHTS}: not a safetensors file ({error})") from error
    return rebuild(backend, Described(tensors, facts), module, str(path))


def _safetensors() -> Any:
    try:
        importlib.import_module("safetensors.torch")
        return importlib.import_module("safetensors")
    except ImportError as error:
        raise BackendUnavailable("pytorch", "safetensors", str(error)) from error


def _read_facts(path: Path) -> dict[str, Any]:
    try:
        facts = json.loads((path / FACTS).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise UnsupportedModel(f"{path / FACTS}: not readable as JSON ({error})") from error
    if not isinstance(facts, dict):
        raise UnsupportedModel(f"{path / FACTS}: holds no mapping")
    return facts
