"""Opening a checkpoint that holds weights only, on the architecture the user has."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lpot.backends import get_backend
from lpot.core.model import Model
from lpot.jobs.component.records import as_model


def load_checkpoint(folder: str | Path, model: Any, framework: str = "pytorch") -> Model:
    """The quantized model of `folder` (or of the workspace around it); `model` stays as it is."""
    backend: Any = get_backend(framework)
    found: Model = backend.load_checkpoint(Path(folder), as_model(model))
    return found


def save_weights(folder: str | Path, framework: str = "pytorch") -> Path:
    """Add the original's best_model_weights.pt to a checkpoint, for tools that read that file.

    It holds the tensors of model.safetensors once more, so that it is made on request only.
    """
    backend: Any = get_backend(framework)
    made: Path = backend.save_weights(Path(folder))
    return made
