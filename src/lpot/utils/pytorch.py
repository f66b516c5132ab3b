"""Door: `lpot.utils.pytorch`, where old scripts open the checkpoint of a tuning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lpot.jobs.component.checkpoint import load_checkpoint, save_weights


def load(checkpoint_dir: str | Path, model: Any, **kwargs: Any) -> Any:
    """The quantized module from `<workspace>/checkpoint`; `model` is the FP32 module."""
    return load_checkpoint(checkpoint_dir, model).native


__all__ = ["load", "save_weights"]
