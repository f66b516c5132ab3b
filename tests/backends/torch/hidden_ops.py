"""A pytest plugin: torch as it will be once its quantized tensors are removed.

`pytest -p backends.torch.hidden_ops` takes away, or makes raise, every name of torch's
deprecated quantization before lpot is imported.
"""

from __future__ import annotations

import importlib.abc
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

import torch

GONE = "removed from this torch, for a test"
FUNCTIONS = (
    "quantize_per_tensor",
    "quantize_per_tensor_dynamic",
    "quantize_per_channel",
    "_make_per_tensor_quantized_tensor",
    "_make_per_channel_quantized_tensor",
    "_empty_affine_quantized",
    "dequantize",
    "quantized_lstm",
    "quantized_gru",
)
# Of the package itself: the folder of a checkout may have its name, too.
_LPOT = f"{Path(str(importlib.util.find_spec('lpot').origin)).parent}{os.sep}"
METHODS = ("dequantize", "int_repr", "q_scale", "q_zero_point", "qscheme")


def _gone(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError(GONE)


def _is_quantized(tensor: torch.Tensor) -> bool:
    """torch's own Python asks this; lpot must not."""
    if sys._getframe(1).f_code.co_filename.startswith(_LPOT):
        raise RuntimeError(GONE)
    return False


class _NoOps:
    def __getattr__(self, name: str) -> Any:
        raise AttributeError(f"torch.ops.quantized.{name} is {GONE}")


class _NoAo(importlib.abc.MetaPathFinder):
    def find_spec(self, fullname: str, path: Any, target: Any = None) -> None:
        if fullname == "torch.ao" or fullname.startswith("torch.ao."):
            raise ImportError(f"{fullname} is {GONE}")


def hide() -> None:
    os.environ["LPOT_HIDDEN_OPS"] = "1"
    for name in FUNCTIONS:
        setattr(torch, name, _gone)
    for name in METHODS:
        setattr(torch.Tensor, name, _gone)
    torch.Tensor.is_quantized = property(_is_quantized)  # type: ignore[assignment]
    torch.ops.quantized = _NoOps()
    del torch.backends.quantized
    sys.meta_path.insert(0, _NoAo())
    _forget("codes", "has_codes")
    _forget("engine", "supported_engines")


def _forget(room: str, question: str) -> None:
    """A child may have asked already."""
    module = sys.modules.get(f"lpot.backends.torch.kernels.{room}")
    if module is not None:
        getattr(module, question).cache_clear()


hide()
