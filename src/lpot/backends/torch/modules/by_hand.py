"""Weights that code takes from a linear and multiplies with: `F.linear(x, self.qkv.weight)`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch.nn import functional
from torch.overrides import TorchFunctionMode

if TYPE_CHECKING:
    from lpot.backends.torch.modules.base import LowModule

# Answered without the values.
QUESTIONS = {
    *(
        getattr(torch.Tensor, name).__get__
        for name in ("shape", "dtype", "device", "ndim", "layout")
    ),
    *(torch.Tensor.size, torch.Tensor.dim, torch.Tensor.numel, torch.Tensor.is_floating_point),
}


class WeightByHand(torch.Tensor):  # type: ignore[misc]
    """The weight of an INT8 linear as others see it: a product with it is that linear's own; for
    all else it is the float tensor that the integers stand for, made when somebody asks."""

    op: Any
    turned: bool  # a weight that has its inputs first

    @classmethod
    def of(cls, op: LowModule, turned: bool = False) -> WeightByHand:
        nothing = torch.zeros((), dtype=torch.float32).expand(op.parts["weight"].values.shape)
        made: WeightByHand = torch.Tensor._make_subclass(cls, nothing.t() if turned else nothing)
        made.op, made.turned = op, turned
        return made

    @classmethod
    def __torch_function__(
        cls, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        given = kwargs or {}
        if func is functional.linear:
            x, weight, bias = product(args, given)
            if _is_linear(weight) and not isinstance(x, WeightByHand):
                return weight.op.by_hand(x, bias)
        if func in QUESTIONS:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **given)
        return func(*map(_plain, args), **{name: _plain(item) for name, item in given.items()})

    def __deepcopy__(self, memo: dict[int, Any]) -> Any:
        return WeightByHand.of(copy.deepcopy(self.op, memo), self.turned)


def product(args: tuple[Any, ...], given: Mapping[str, Any]) -> tuple[Any, Any, Any]:
    """Input, weight and bias of a call of F.linear."""
    named = {**dict(zip(("input", "weight", "bias"), args, strict=False)), **given}
    return named.get("input"), named.get("weight"), named.get("bias")


def _is_linear(weight: Any) -> bool:
    return isinstance(weight, WeightByHand) and hasattr(weight.op, "by_hand") and not weight.turned


def _plain(value: Any) -> Any:
    if isinstance(value, WeightByHand):
        real = value.op.real("weight")
        return real.t() if value.turned else real
    if isinstance(value, list | tuple) and any(isinstance(v, WeightByHand) for v in value):
        return type(value)(map(_plain, value))
    return value


class HandObserver(TorchFunctionMode):  # type: ignore[misc]
    """Tells `see` of every product with one of these weights, known by id."""

    def __init__(self, weights: Mapping[int, str], see: Callable[[str, Any], None]) -> None:
        super().__init__()
        self._weights = weights
        self._see = see
        self.needed = False  # has there been one? Watching costs something in each batch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is functional.linear:
            x, weight, _ = product(args, kwargs or {})
            name = self._weights.get(id(weight))
            if name is not None:
                self._see(name, x)
        return func(*args, **(kwargs or {}))
