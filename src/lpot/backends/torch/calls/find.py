"""One batch shows which functions a forward calls with its own weights: `F.linear(x, self.weight)`.

Each becomes a layer below the module whose forward calls it. A weight may also be computed anew in
each call, from parameters alone.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.weak import WeakIdKeyDictionary

from lpot.backends.torch.calls.product import Product, Route, probe_of
from lpot.backends.torch.calls.serve import release, route
from lpot.backends.torch.files.trust import same_outputs
from lpot.backends.torch.kinds import CALLS, is_op
from lpot.backends.torch.modules.by_hand import QUESTIONS
from lpot.backends.torch.run import CALL_ERRORS, call
from lpot.core.batch import Inputs


def find_calls(root: nn.Module, inputs: Inputs) -> bool:
    """Give a model that nobody else has the layers that its functions come to on a batch.

    False if there are none, or if the model computes something else with them.
    """
    seen = [_Seen(root), _Seen(root)]
    outputs = []
    try:
        for one in seen:
            with one.watching():
                outputs.append(call(root, inputs))
    except CALL_ERRORS:
        return False  # calibration tells what is wrong with the batch
    found = {
        id(owner): routes
        for owner in root.modules()
        if (routes := _agreed(owner, *(one.calls.get(id(owner), {}) for one in seen)))
    }
    names = {id(module): module for module in root.modules()}
    for key, made in found.items():
        module = names[key]
        for item, layer in made:
            module._modules[item.layer] = layer
        module.__dict__[CALLS] = tuple(item for item, _ in made)
    if not found:
        return False
    route(root)
    try:
        same = same_outputs(outputs[-1], call(root, inputs)) or not same_outputs(*outputs)
    except CALL_ERRORS:
        same = False
    for key in found:
        del names[key].__dict__["forward"]
    if not same:
        release(root, lambda layer: False)
    return same


def _agreed(owner: nn.Module, first: Any, second: Any) -> list[tuple[Route, nn.Module]]:
    """The calls that came with the same weight both times."""
    made: list[tuple[Route, nn.Module]] = []
    for key, (item, weight, bias) in first.items():
        again = second.get(key)
        if again is None or again[0] != item or not torch.equal(weight, again[1]):
            continue
        name, number = item.function, 2
        while hasattr(owner, name) or any(other.layer == name for other, _ in made):
            name, number = f"{item.function}_{number}", number + 1
        item = replace(item, layer=name)
        made.append((item, item.make(weight, bias)))
    return made


class _Seen(TorchFunctionMode):  # type: ignore[misc]
    """Notes the products with weights that no input has a part in, by the forward that calls."""

    def __init__(self, root: nn.Module) -> None:
        super().__init__()
        self._root = root
        self._fixed: Any = WeakIdKeyDictionary()  # tensors that come of parameters alone
        self._stack: list[nn.Module] = []
        self._read: set[int] = set()  # parameters that are read otherwise
        self._raw: list[tuple[nn.Module, Product]] = []
        self._skipped: set[int] = set()
        for module in root.modules():
            if is_op(module) or isinstance(module, torch.jit.ScriptModule):
                self._skipped.update(map(id, module.modules()))
        for tensor in (*root.parameters(), *root.buffers()):
            self._fixed[tensor] = True

    @contextmanager
    def watching(self) -> Iterator[None]:
        handles = []
        for module in self._root.modules():
            if isinstance(module, torch.jit.ScriptModule):
                continue
            handles.append(module.register_forward_pre_hook(self._enter))
            handles.append(module.register_forward_hook(self._leave, always_call=True))
        try:
            with self:
                yield
        finally:
            for handle in handles:
                handle.remove()

    def _enter(self, module: nn.Module, args: Any) -> None:
        self._stack.append(module)

    def _leave(self, module: nn.Module, args: Any, output: Any) -> None:
        self._stack.pop()

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        given = kwargs or {}
        product = self._product(func, args, given)
        inside = [v for v in pytree.tree_leaves((args, given)) if isinstance(v, torch.Tensor)]
        if product is None and func not in QUESTIONS:
            self._read.update(id(value) for value in inside if value in self._fixed)
        result = func(*args, **given)
        # What is made of no tensor (arange) is fixed, too, where two runs show the same.
        fixed = all(value in self._fixed for value in inside)
        for value in pytree.tree_leaves(result):
            if isinstance(value, torch.Tensor):
                if fixed:
                    self._fixed[value] = True
                else:
                    self._fixed.pop(value, None)
        return result

    def _product(self, func: Any, args: Any, given: Any) -> Product | None:
        if not self._stack or id(self._stack[-1]) in self._skipped:
            return None
        owner = self._stack[-1]
        if "forward" in owner.__dict__ or isinstance(owner, torch.fx.GraphModule):
            return None
        product = Product.of(func, args, given)
        if product is None or product.weight not in self._fixed or product.x in self._fixed:
            return None
        if product.bias is not None and product.bias not in self._fixed:
            return None
        if product.x.dtype != torch.float32 or product.weight.dtype != torch.float32:
            return None
        self._raw.append((owner, product))
        return product

    @property
    def calls(self) -> dict[int, dict[Any, tuple[Route, torch.Tensor, Any]]]:
        """By the caller's id; the same call made several times is one."""
        found: dict[int, dict[Any, tuple[Route, torch.Tensor, Any]]] = defaultdict(dict)
        for owner, item in self._raw:
            path = _path(owner, item.weight)
            if path is not None and _is_layers(owner, path):
                continue  # `modules/by_hand.py` serves these
            probe = () if path is not None else tuple(probe_of(item.weight).tolist())
            made = Route(
                layer="",
                function=item.function,
                weight=path,
                shape=tuple(item.weight.shape),
                turned=item.turned,
                bias=item.bias is not None,
                options=dict(item.options),
                probe=probe,
                alone=path is not None and id(item.weight) not in self._read,
            )
            key = (item.function, path, str(item.options), made.bias, item.turned, probe)
            found[id(owner)].setdefault(key, (made, item.weight, item.bias))
        return found


def _path(owner: nn.Module, weight: torch.Tensor) -> str | None:
    own = (*owner.named_parameters(), *owner.named_buffers())
    return next((name for name, value in own if value is weight), None)


def _is_layers(owner: nn.Module, path: str) -> bool:
    holder = owner.get_submodule(path.rpartition(".")[0])
    return type(holder) is nn.Linear
