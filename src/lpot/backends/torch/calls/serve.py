"""While a forward runs, a mode of its thread hands calls to the layers that were made of them."""

from __future__ import annotations

import copy
import functools
import operator
from collections import defaultdict
from collections.abc import Callable, Mapping
from inspect import Signature, signature
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode

from lpot.backends.torch.calls.product import Product, Route
from lpot.backends.torch.kinds import CALLS
from lpot.backends.torch.modules.base import PICKLE, LowModule
from lpot.backends.torch.modules.by_hand import WeightByHand
from lpot.core.errors import UnsupportedModel


def routes_of(module: nn.Module) -> tuple[Route, ...]:
    found: tuple[Route, ...] = module.__dict__.get(CALLS, ())
    return found


class _Router(TorchFunctionMode):  # type: ignore[misc]
    """While a forward runs, the calls that belong to its layers go there."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self._module = module
        self._known: dict[int, list[Route]] = defaultdict(list)
        self._computed: list[Route] = []
        for route in routes_of(module):
            if route.weight is None:
                self._computed.append(route)
            else:
                self._known[id(operator.attrgetter(route.weight)(module))].append(route)

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        product = Product.of(func, args, kwargs or {})
        if product is not None:
            known = self._known.get(id(product.weight), self._computed)
            for number, route in enumerate(known):
                if route.takes(product):
                    if torch.compiler.is_compiling() and known is self._computed:
                        del known[number]  # in the order in which they were found
                    return self._module._modules[route.layer](product.x)
        return func(*args, **(kwargs or {}))


class Routed:
    """Stands in place of a module's forward."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        with _Router(self.module):
            return type(self.module).forward(self.module, *args, **kwargs)

    @property
    def __signature__(self) -> Signature:
        return signature(type(self.module).forward.__get__(self.module))

    def __deepcopy__(self, memo: dict[int, Any]) -> Routed:
        twin = Routed.__new__(Routed)
        memo[id(self)] = twin
        twin.module = copy.deepcopy(self.module, memo)
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UnsupportedModel(PICKLE)


@functools.cache
def _class(kind: type[nn.Module]) -> Any:
    plain: Any = kind.forward

    @functools.wraps(plain)
    def forward(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        with _Router(self):
            return plain(self, *args, **kwargs)

    return type(kind.__name__, (kind,), {"forward": forward, "__module__": kind.__module__})


def settle(root: nn.Module) -> None:
    """As `route`, by classes with such a forward: torch.export asks for a function's code."""
    for module in root.modules():
        if routes_of(module):
            module.__dict__.pop("forward", None)
            kind: Any = type(module)
            module.__class__ = _class(kind)


def route(root: nn.Module) -> None:
    """Let the forwards of a copy use their layers."""
    for module in root.modules():
        if routes_of(module):
            module.forward = Routed(module)


def release(root: nn.Module, wanted: Callable[[nn.Module], bool]) -> None:
    """Take out the layers that are not wanted: their calls run as they are written. A weight that
    only INT8 layers use is taken out as well."""
    for module in list(root.modules()):
        routes = routes_of(module)
        if not routes:
            continue
        kept = tuple(item for item in routes if wanted(module._modules[item.layer]))
        for name in {item.layer for item in routes} - {item.layer for item in kept}:
            del module._modules[name]
        module.__dict__[CALLS] = kept
        if not kept:
            del module.__dict__[CALLS]
            module.__dict__.pop("forward", None)
        for item in kept:
            _hide(module, item)


def _hide(module: nn.Module, item: Route) -> None:
    layer = module._modules[item.layer]
    if item.weight is None or not item.alone or not isinstance(layer, LowModule):
        return
    path, _, leaf = item.weight.rpartition(".")
    owner = module.get_submodule(path)
    for holder in (owner._parameters, owner._buffers):
        if holder.pop(leaf, None) is not None:
            owner.__dict__[leaf] = WeightByHand.of(layer, item.turned)


def give_routes(root: nn.Module, found: Mapping[str, list[Any]]) -> None:
    """The layers of a saved model, with the architecture's weights."""
    for name, items in found.items():
        module = root.get_submodule(name)
        routes = tuple(map(Route.from_json, items))
        for item in routes:
            weight = (
                torch.zeros(item.shape, dtype=torch.float32)
                if item.weight is None
                else operator.attrgetter(item.weight)(module)
            )
            bias = torch.zeros(item.outputs, dtype=torch.float32) if item.bias else None
            module._modules[item.layer] = item.make(weight, bias)
        module.__dict__[CALLS] = routes


def saved_routes(root: nn.Module) -> dict[str, list[dict[str, Any]]]:
    return {
        name: [item.to_json() for item in routes]
        for name, module in root.named_modules()
        if (routes := routes_of(module))
    }


def hidden_names(found: Mapping[str, list[Any]], low: Mapping[str, Any]) -> set[str]:
    """What a saved state has not, since it lies in layers made of calls: their own tensors, and
    weights that are INT8 there."""
    names: set[str] = set()
    for owner, items in found.items():
        prefix = f"{owner}." if owner else ""
        for item in items:
            layer = f"{prefix}{item['layer']}"
            names |= {f"{layer}.weight", f"{layer}.bias"}
            if item["weight"] is not None and layer in low:
                names.add(f"{prefix}{item['weight']}")
    return names
