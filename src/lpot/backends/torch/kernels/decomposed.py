"""The rounding ops that torch.compile's x86 backend recognises in an exported program."""

from __future__ import annotations

import importlib
from typing import Any

import torch

from lpot.core.errors import UnsupportedModel

_HOME = "torch.ao.quantization.fx._decomposed"  # importing it registers them


def decomposed_ops() -> Any:
    try:
        importlib.import_module(_HOME)
        torch.ops.quantized_decomposed.quantize_per_tensor  # noqa: B018
    except (ImportError, AttributeError) as error:
        raise UnsupportedModel(
            f"torch {torch.__version__} has no quantized_decomposed ops, which a .pt2 program "
            "needs: export to .onnx"
        ) from error
    return torch.ops.quantized_decomposed
