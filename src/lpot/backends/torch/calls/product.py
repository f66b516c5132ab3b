"""Calls that come to a linear or a convolution, and which layer each of them goes to."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

import torch
from torch import nn
from torch.nn import functional

PROBED = 16  # values by which a weight that was computed is known again
_LINEAR = "linear"
_LAYERS: Mapping[str, type[nn.Module]] = {
    "conv1d": nn.Conv1d,
    "conv2d": nn.Conv2d,
    "conv3d": nn.Conv3d,
    "conv_transpose1d": nn.ConvTranspose1d,
    "conv_transpose2d": nn.ConvTranspose2d,
    "conv_transpose3d": nn.ConvTranspose3d,
}
_PLAIN_CONV = ("input", "weight", "bias", "stride", "padding", "dilation", "groups")
_TURNED_CONV = (
    *("input", "weight", "bias", "stride", "padding", "output_padding", "groups", "dilation"),
)
_CONVS = {getattr(functional, name): name for name in _LAYERS}
_PRODUCTS = {
    torch.matmul: ("input", "other"),
    torch.mm: ("input", "mat2"),
    torch.Tensor.matmul: ("input", "tensor2"),
    torch.Tensor.mm: ("input", "mat2"),
    torch.Tensor.__matmul__: ("input", "other"),
    torch.addmm: ("bias", "mat1", "mat2"),
}


@dataclass(frozen=True, eq=False)
class Product:
    """One call, in the words of the layer that computes it."""

    function: str
    x: torch.Tensor
    weight: torch.Tensor
    bias: Any = None
    turned: bool = False  # the weight has its inputs first
    options: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def of(cls, func: Any, args: tuple[Any, ...], given: Mapping[str, Any]) -> Product | None:
        if func is functional.linear:
            named = {**dict(zip(("input", "weight", "bias"), args, strict=False)), **given}
            made = cls(_LINEAR, named["input"], named["weight"], named.get("bias"))
        elif func in _CONVS:
            made = cls._convolution(_CONVS[func], args, given)
        elif func in _PRODUCTS and not given:
            bias, x, weight = (args if func is torch.addmm else (None, *args))[:3]
            made = cls(_LINEAR, x, weight, bias, turned=True)
        elif func is torch.einsum and len(args) == 3 and isinstance(args[0], str):
            turned = _turned(args[0])
            if turned is None:
                return None
            made = cls(_LINEAR, args[1], args[2], None, turned)
        else:
            return None
        fits = isinstance(made.x, torch.Tensor) and isinstance(made.weight, torch.Tensor)
        return made if fits and (made.function != _LINEAR or made.weight.dim() == 2) else None

    @classmethod
    def _convolution(cls, name: str, args: tuple[Any, ...], given: Mapping[str, Any]) -> Product:
        words = _TURNED_CONV if "transpose" in name else _PLAIN_CONV
        named = {**dict(zip(words, args, strict=False)), **given}
        dims = int(name[-2])
        usual = {"stride": 1, "padding": 0, "dilation": 1, "output_padding": 0}
        options = {
            word: _sizes(named.get(word, default), dims)
            for word, default in usual.items()
            if word in words
        }
        options["groups"] = int(named.get("groups", 1))
        return cls(name, named["input"], named["weight"], named.get("bias"), False, options)


def _sizes(value: Any, dims: int) -> Any:
    if isinstance(value, str):
        return value
    found = list(value) if isinstance(value, list | tuple) else [value]
    return [int(size) for size in (found * dims if len(found) == 1 else found)]


def _turned(equation: str) -> bool | None:
    """Is it x times a matrix along x's last axis, and has the matrix its inputs first?"""
    left, arrow, out = equation.replace(" ", "").partition("->")
    first, comma, second = left.partition(",")
    if not (arrow and comma) or len(second) != 2 or not first or second[0] == second[1]:
        return None
    for turned, inner, outer in ((True, second[0], second[1]), (False, second[1], second[0])):
        if first[-1] == inner and out == first[:-1] + outer and outer not in first:
            return turned
    return None


@dataclass(frozen=True, kw_only=True)
class Route:
    """Which calls of a forward go to one of its layers.

    `weight` is the parameter's path below the module; None if it is computed anew in each call,
    from parameters alone: then `probe` tells it.
    """

    layer: str
    function: str
    weight: str | None
    shape: tuple[int, ...]
    turned: bool = False
    bias: bool = False
    options: Mapping[str, Any] = field(default_factory=dict)
    probe: tuple[float, ...] = ()
    alone: bool = False  # nothing else reads the parameter

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Route:
        tuples = {name: tuple(raw[name]) for name in ("shape", "probe")}
        return cls(**{**raw, **tuples})

    def takes(self, product: Product) -> bool:
        alike = product.function == self.function and product.turned == self.turned
        if not alike or (product.bias is not None) != self.bias:
            return False
        if dict(product.options) != dict(self.options) or tuple(product.weight.shape) != self.shape:
            return False
        # While torch.export reads the code there are no values.
        is_known = self.weight is not None or torch.compiler.is_compiling()
        return is_known or _is_probed(product.weight, self.probe)

    @property
    def outputs(self) -> int:
        if self.function == _LINEAR:
            return self.shape[1 if self.turned else 0]
        grouped = "transpose" in self.function
        return self.shape[1] * int(self.options["groups"]) if grouped else self.shape[0]

    def make(self, weight: torch.Tensor, bias: torch.Tensor | None) -> nn.Module:
        """The layer, in which the module's own parameter lies where it is one."""
        if self.function == _LINEAR:
            weight = weight.t() if self.turned else weight
            outputs, inputs = weight.shape
            made: nn.Module = nn.Linear(inputs, outputs, bias=self.bias, device="meta")
        else:
            groups = self.options["groups"]
            first, second = weight.shape[0], weight.shape[1] * groups
            sides = (first, second) if "transpose" in self.function else (second, first)
            made = _LAYERS[self.function](
                *sides, tuple(weight.shape[2:]), bias=self.bias, device="meta", **self._sizes()
            )
        for name, value in (("weight", weight), ("bias", bias)):
            if value is not None:
                own = isinstance(value, nn.Parameter)
                made._parameters[name] = value if own else nn.Parameter(value.detach(), False)
        return made.eval()

    def _sizes(self) -> dict[str, Any]:
        return {n: tuple(v) if isinstance(v, list) else v for n, v in self.options.items()}


def probe_of(weight: torch.Tensor) -> torch.Tensor:
    flat = weight.detach().reshape(-1)
    found: torch.Tensor = flat[:: max(1, flat.numel() // PROBED)][:PROBED].float()
    return found


def _is_probed(weight: torch.Tensor, probe: tuple[float, ...]) -> bool:
    # It may have been computed with another number of threads.
    known = torch.tensor(probe, dtype=torch.float32)
    return bool(torch.allclose(probe_of(weight), known, 1e-4, 1e-6))
