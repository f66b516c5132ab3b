"""A captured part under one recipe, as steps that hand uint8 values from op to op."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import torch
from torch import fx, nn

from lpot.backends.torch.files.program import Action, Function, Program, assemble, float_action
from lpot.backends.torch.kernels import Affine
from lpot.backends.torch.kernels.codes import add, decode, join, pad
from lpot.backends.torch.kernels.engine import FusedSum
from lpot.backends.torch.layout import plain
from lpot.backends.torch.modules import LowConv
from lpot.backends.torch.passes.capture_graph import Capture
from lpot.backends.torch.passes.find_chains import Chain
from lpot.backends.torch.passes.keep_int8 import (
    Plan,
    acts_in_place,
    is_add,
    is_cat,
    is_new,
    plan,
    zeros_around,
)


class Scales(Protocol):
    """Where a part's scales come from: statistics, or the card of a saved model."""

    @property
    def coded(self) -> bool:
        """Do values go from op to op as uint8?"""
        ...

    def value(self, op: str | None, node: fx.Node, reader: str) -> Affine:
        """How the value of a node (an op's outlet, or a sum) is scaled for the op that reads it."""
        ...

    def is_even(self, node: fx.Node) -> bool:
        """Did both sides of this sum always have the same shape?"""
        ...


class Lowering:
    """Writes one program. Values that nobody reads in int8 are floats, as in the original."""

    def __init__(
        self,
        captured: Capture,
        chains: Mapping[str, Chain],
        modules: Mapping[str, nn.Module],
        scales: Scales,
    ) -> None:
        self.captured = captured
        self.modules = modules
        self.scales = scales
        self.plan: Plan = plan(captured, chains, modules, scales.coded)
        self.order = {node: number for number, node in enumerate(captured.graph.nodes)}
        self.actions: dict[fx.Node, Action | fx.Node | None] = {}
        self.overwritten: set[fx.Node] = set()  # by sums that were fused

    @property
    def pays(self) -> bool:
        """Is there anything that modules called one by one don't do as well?"""
        return bool(self.plan.byte) or any(len(c.nodes) > 1 for c in self.plan.chains.values())

    def program(self) -> Program:
        relus = {
            after: total for total, after in self.plan.relus.items() if total in self.plan.byte
        }
        for node in self.captured.graph.nodes:
            if node in self.actions or not node.op.startswith("call"):
                continue
            if node in relus:
                self.actions[node] = relus[node]
            elif node in self.plan.chains:
                self._op(self.plan.chains[node])
            elif node in self.plan.byte and is_add(node):
                self._add(node)
            elif node in self.plan.byte and is_cat(node):
                self._cat(node)
            else:
                self._other(node)
        returned = [node for node in self.plan.byte if self._is_returned(node)]
        finish = (_plain_floats if self._is_viewed else floats) if returned else None
        return assemble(self.captured, self.modules[self.captured.name], self.actions, finish)

    @property
    def _is_viewed(self) -> bool:
        """Does the code that gets the values want them to lie as FP32's do?"""
        ops = (self.modules[name] for name in self.captured.targets.values())
        return any(isinstance(op, LowConv) and op.settings.plain for op in ops)

    def _is_returned(self, node: fx.Node) -> bool:
        return any(user.op == "output" for user in node.users)

    def _op(self, chain: Chain) -> None:
        """An int8 op and what it swallows: one call."""
        name = str(self.captured.layer_of(chain.first))
        module: Any = self.modules[name]
        run: Function = module
        if chain.first in self.plan.byte:
            outlet = self.scales.value(name, chain.last, self.plan.reader[chain.last])
            run = module.runner(outlet)
            if chain.clip is not None and _largest(outlet) > 1.001 * chain.clip:
                run = _Clipped(run, chain.clip)
        self.actions[chain.first] = Action(run, chain.first.args[:1], {}, name)
        for node in chain.nodes[1:]:
            self.actions[node] = chain.first

    def _add(self, node: fx.Node) -> None:
        end = self.plan.relus.get(node, node)
        outlet = self.scales.value(None, end, self.plan.reader[end])
        relu = end is not node
        fused = self._fused_add(node, outlet, relu) if self.scales.is_even(node) else None
        if fused is not None:
            self.actions[node] = fused
            return
        self.actions[node] = Action(_Sum(outlet, relu), node.args, {})

    def _fused_add(self, node: fx.Node, outlet: Affine, relu: bool) -> Action | None:
        """conv + sum as one call, where the kernel has it and may overwrite the other summand."""
        for side, other in (node.args, node.args[::-1]):
            chain = next((c for c in self.plan.chains.values() if c.last is side), None)
            if chain is None or len(chain.last.users) != 1:
                continue
            name = str(self.captured.layer_of(chain.first))
            module: Any = self.modules[name]
            if not _can_sum(module) or not self._is_free(other, node):
                continue
            if other is chain.first.args[0] or not self._may_wait(chain, node):
                continue
            self.overwritten.add(other)
            for part in chain.nodes:
                self.actions[part] = None
            weights, inlet = module.parts["weight"], module.settings.inlet
            run = FusedSum(weights, module.geometry, inlet, outlet, relu)
            return Action(run, (chain.first.args[0], other), {}, name)
        return None

    def _is_free(self, value: Any, at: fx.Node) -> bool:
        """May this value be overwritten here? Nobody reads it, or a view of it, later."""
        from_op = any(chain.last is value for chain in self.plan.chains.values())
        from_sum = is_add(value) or value in self.plan.relus.values()
        if not (from_op or from_sum or is_new(self.captured, value, self.modules)):
            return False  # perhaps a view of something else
        return all(
            user is at or (self.order[user] < self.order[at] and user in self.plan.chains)
            for user in value.users
        )

    def _may_wait(self, chain: Chain, at: fx.Node) -> bool:
        """Is what the op reads unchanged until the sum, which is when it will run?"""
        node = chain.last.next
        while node is not at:
            if acts_in_place(self.captured, node, self.modules):
                return False
            node = node.next
        return chain.first.args[0] not in self.overwritten

    def _cat(self, node: fx.Node) -> None:
        outlet = self.scales.value(None, node, self.plan.reader[node])
        dim = node.args[1] if len(node.args) > 1 else node.kwargs.get("dim", 0)
        self.actions[node] = Action(_Join(dim, outlet), (list(node.args[0]),), {})

    def _other(self, node: fx.Node) -> None:
        """As in the original; uint8 values become floats first unless the op only moves them."""
        widths = zeros_around(self.captured, node, self.modules)
        if node in self.plan.byte and widths is not None:
            self.actions[node] = Action(_Pad(widths), tuple(node.all_input_nodes), {})
            return
        action = float_action(self.captured, node, self.modules)
        inputs = [source for source in node.all_input_nodes if source in self.plan.byte]
        if inputs and node not in self.plan.byte:
            action = Action(Floated(action.run), action.args, action.kwargs, action.op)
        self.actions[node] = action


def _can_sum(module: Any) -> bool:
    return (
        isinstance(module, LowConv)
        and not module.settings.relu  # it would come after the sum, not before
        and module.settings.kernel in ("onednn", "onednn_float")
        and module.geometry.dims == 2
        and not module.geometry.transposed
        and not module.pads_itself
    )


def floats(value: Any) -> Any:
    """All codes inside become floats."""
    if isinstance(value, torch.Tensor):
        return decode(value)
    if isinstance(value, tuple) and not hasattr(value, "_fields"):
        return tuple(map(floats, value))
    if isinstance(value, list):
        return list(map(floats, value))
    if isinstance(value, dict):
        return {key: floats(item) for key, item in value.items()}
    return value


def _plain_floats(value: Any) -> Any:
    return plain(floats(value))


class Floated:
    """A float function whose coded arguments are turned into floats."""

    def __init__(self, run: Function) -> None:
        self.run = run

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self.run(*floats(args), **floats(kwargs))


def _largest(outlet: Affine) -> float:
    return (255 - outlet.zero_point) * outlet.scale


class _Clipped:
    """Cuts what a 7-bit layout leaves above the bound."""

    def __init__(self, run: Function, bound: float) -> None:
        self.run = run
        self.bound = bound

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return torch.clamp(self.run(x), 0.0, self.bound)


class _Sum:
    def __init__(self, outlet: Affine, relu: bool) -> None:
        self.outlet = outlet
        self.relu = relu

    def __call__(self, left: torch.Tensor, right: torch.Tensor) -> Any:
        return add(left, right, self.outlet, self.relu)


class _Join:
    def __init__(self, dim: int, outlet: Affine) -> None:
        self.dim = dim
        self.outlet = outlet

    def __call__(self, values: list[torch.Tensor]) -> Any:
        return join(values, self.dim, self.outlet)


class _Pad:
    def __init__(self, widths: tuple[int, ...]) -> None:
        self.widths = widths

    def __call__(self, x: torch.Tensor) -> torch.Tensor:
        return pad(x, self.widths)
