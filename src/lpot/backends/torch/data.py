"""Batches on their way into a module, and outputs on their way out."""

from __future__ import annotations

import copy
import inspect as python_inspect
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from lpot.backends.torch.kernels.codes import decode
from lpot.core.batch import Inputs, plain
from lpot.core.errors import DataError


def to_tensor(value: Any) -> Any:
    """Arrays and lists of numbers as CPU tensors; doubles of numpy as float32."""
    if isinstance(value, torch.Tensor):
        return value if value.device.type == "cpu" else value.cpu()
    if isinstance(value, np.ndarray | np.generic):
        return _from_numpy(plain(value))
    if isinstance(value, list) and value and _is_numbers(value):
        return _from_numpy(plain(value))
    if isinstance(value, list | tuple):
        return type(value)(map(to_tensor, value)) if type(value) in (list, tuple) else value
    if isinstance(value, Mapping):
        made = {name: to_tensor(item) for name, item in value.items()}
        # An encoding or the like stays what it is: forward may read its attributes.
        same = all(made[name] is item for name, item in value.items())
        return value if same and type(value) is not dict else made
    return value


def _from_numpy(array: np.ndarray) -> torch.Tensor:
    if array.dtype == object or array.dtype.kind in "USV":
        raise DataError(
            f"an input of numpy type {array.dtype} can't be passed to a torch model: give numbers"
        )
    if array.dtype == np.float64:
        array = array.astype(np.float32)
    if not array.flags.writeable or any(step < 0 for step in array.strides):
        array = array.copy()
    return torch.from_numpy(array)


def _is_numbers(value: Any) -> bool:
    while isinstance(value, list | tuple) and value:
        value = value[0]
    return isinstance(value, int | float | np.number)


def arguments(module: nn.Module, inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Positional and keyword arguments; keys that `forward` does not know are left out."""
    if not isinstance(inputs, Mapping):
        return tuple(map(to_tensor, inputs)), {}
    known = parameters(module)
    if known is None:
        return (), {name: to_tensor(value) for name, value in inputs.items()}
    taken = {name: to_tensor(value) for name, value in inputs.items() if name in known}
    if not taken:
        raise DataError(
            f"the batch has the keys {sorted(map(str, inputs))}, but "
            f"{type(module).__name__}.forward takes {', '.join(known) or 'nothing'}: "
            "use the same names, or give a tuple"
        )
    return (), taken


_CONSTANT = (str, bytes, int, float, complex, bool, type(None), type)


def owned(value: Any) -> Any:
    """A copy of a batch: forward may write into its inputs, caches among them grow, and loaders may
    write the next batch into the same memory."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if type(value) in (list, tuple):
        return type(value)(map(owned, value))
    if type(value) is dict:
        return {name: owned(item) for name, item in value.items()}
    return value if isinstance(value, _CONSTANT) else copy.deepcopy(value)


def parameters(module: nn.Module) -> dict[str, python_inspect.Parameter] | None:
    """The arguments of `forward` by name; None when it takes any (`**kwargs`)."""
    try:
        signature = python_inspect.signature(module.forward)
    except (TypeError, ValueError):
        return None
    found = dict(signature.parameters)
    if any(item.kind is item.VAR_KEYWORD for item in found.values()):
        return None
    return found


def required_names(module: nn.Module) -> tuple[str, ...] | None:
    """The inputs' names where `forward` leaves no doubt: all are needed, none is optional."""
    found = parameters(module)
    if not found:
        return None
    plain = (
        python_inspect.Parameter.POSITIONAL_ONLY,
        python_inspect.Parameter.POSITIONAL_OR_KEYWORD,
    )
    if any(item.kind not in plain or item.default is not item.empty for item in found.values()):
        return None
    return tuple(found)


def tensors(output: Any) -> Iterator[torch.Tensor]:
    """Every tensor of an output, in order, whatever it is wrapped in."""
    known = isinstance(output, torch.Tensor | Mapping | list | tuple) or is_dataclass(output)
    yield from _tensors(output if known else getattr(output, "__dict__", output))


def _tensors(output: Any) -> Iterator[torch.Tensor]:
    if isinstance(output, torch.Tensor):
        yield decode(output)
    elif isinstance(output, Mapping):
        for value in output.values():
            yield from _tensors(value)
    elif isinstance(output, list | tuple):
        for value in output:
            yield from _tensors(value)
    elif is_dataclass(output) and not isinstance(output, type):
        for item in fields(output):
            yield from _tensors(getattr(output, item.name))
    elif isinstance(output, bool | int | float):
        yield torch.tensor(output)
    elif isinstance(output, Iterator):
        for value in output:
            yield from _tensors(value)


Example = list[list[Any]]  # name or None, dtype, shape: one entry for each input


def sketch(inputs: Inputs | None) -> Example | None:
    """What a batch looks like, to draw another one by; None where it is not plain tensors."""
    if inputs is None:
        return None
    pairs = inputs.items() if isinstance(inputs, Mapping) else ((None, value) for value in inputs)
    given = [(name, to_tensor(value)) for name, value in pairs]
    if not all(isinstance(x, torch.Tensor) and _is_dense(x) for _, x in given):
        return None
    return [[n, str(v.dtype).removeprefix("torch."), list(v.shape)] for n, v in given]


def _is_dense(value: torch.Tensor) -> bool:
    return value.layout == torch.strided and not value.is_nested


def drawn(example: Example | None) -> Inputs | None:
    """Inputs of the same looks: noise, ids of 0, masks of 1."""
    if not example:
        return None
    made = [
        (name, _draw(str(name), getattr(torch, dtype), shape)) for name, dtype, shape in example
    ]
    if any(name is None for name, _ in made):
        return tuple(value for _, value in made)
    return dict(made)


def _draw(name: str, dtype: torch.dtype, shape: list[int]) -> torch.Tensor:
    if dtype.is_floating_point:
        return torch.randn(
            shape, generator=torch.Generator().manual_seed(0), dtype=torch.float32
        ).to(dtype)
    return torch.ones(shape, dtype=dtype) if "mask" in name else torch.zeros(shape, dtype=dtype)


def describe(inputs: Inputs) -> str:
    """Types and shapes of a batch, for messages."""
    pairs = inputs.items() if isinstance(inputs, Mapping) else enumerate(inputs)
    return ", ".join(f"{name}: {_words(value)}" for name, value in pairs) or "nothing"


def _words(value: Any) -> str:
    if isinstance(value, torch.Tensor) and value.is_nested:
        return f"a nested tensor of {value.size(0)}"
    shape = getattr(value, "shape", None)
    if shape is None:
        return type(value).__name__
    return f"{str(value.dtype).removeprefix('torch.')}{list(shape)}"
