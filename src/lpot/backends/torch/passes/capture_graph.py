"""Find the parts of a model whose data flow can be read off with torch.fx, the largest first.

A captured part is used only after its float output was compared with the original's on calibration
data (see observe.py): reading code with stand-ins for tensors can go wrong in silence.
"""

from __future__ import annotations

import hashlib
import logging
import operator
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from inspect import signature
from typing import Any

import torch
from torch import fx, nn
from torch.fx._symbolic_trace import _assert_is_none
from torch.nn import functional

from lpot.backends.torch.kinds import CALLS, Layer, is_frozen_norm, is_fused
from lpot.backends.torch.passes.trace_calls import TRACE_ERRORS, Tracer

logger = logging.getLogger(__name__)

MOMENTUM = 6  # among the arguments of batch_norm

_CONSTANT = "_tensor_constant"  # how torch.fx names a tensor that it found in the code

_CHECKS = (torch._assert, _assert_is_none)
_QUESTIONS = ("size", "dim", "numel", "stride", "is_contiguous", "get_device", "is_floating_point")
_PURE = (
    *(getattr, len, operator.getitem, operator.eq, operator.ne, operator.lt, operator.le),
    *(operator.gt, operator.ge, operator.add, operator.sub, operator.mul, operator.mod),
    *(operator.floordiv, operator.truediv, operator.and_, operator.or_, operator.not_),
)


@dataclass(frozen=True, eq=False)
class Capture:
    """One captured module: its name in the model and the graph of its forward.

    `targets` maps a called module's path inside the part to its name in the model, `owners` does so
    for modules whose tensors are read. `constants` are tensors that the code took from elsewhere
    than the module (a global, a literal), `defaults` the optional arguments, read as left out.
    """

    name: str
    graph: fx.Graph
    targets: Mapping[str, str]
    constants: Mapping[str, torch.Tensor] = field(default_factory=dict)
    owners: Mapping[str, str] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def digest(self) -> str:
        """Identity of the data flow: the same code gives the same string."""
        return self._hash(_inference)

    def is_known_as(self, digest: str) -> bool:
        """Older files counted a batch norm's momentum, too."""
        return digest in (self.digest, self._hash(lambda node: (node.args, node.kwargs)))

    def _hash(self, arguments: Callable[[fx.Node], tuple[Any, Any]]) -> str:
        lines = []
        for node in self.graph.nodes:
            args, kwargs = arguments(node)
            lines.append(f"{node.name} {node.op} {_target(node)} {args} {sorted(kwargs.items())}")
        return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:16]

    def layer_of(self, node: fx.Node) -> str | None:
        """The model-wide name of the module that a node calls."""
        return self.targets[node.target] if node.op == "call_module" else None

    def owner_of(self, node: Any) -> str | None:
        """The model-wide name of the module that a tensor belongs to."""
        if not isinstance(node, fx.Node) or node.op != "get_attr":
            return None
        return self.owners.get(str(node.target).rpartition(".")[0])


def _inference(node: fx.Node) -> tuple[Any, Any]:
    """The arguments without a batch norm's momentum, which counts in training alone."""
    if node.target is not functional.batch_norm:
        return node.args, node.kwargs
    kwargs = {name: value for name, value in node.kwargs.items() if name != "momentum"}
    return (*node.args[:MOMENTUM], *node.args[MOMENTUM + 1 :]), kwargs


def capture(root: nn.Module, layers: Mapping[str, Layer]) -> tuple[Capture, ...]:
    """Every part that holds an op and can be read; parts inside a captured part are not listed.

    `root` is a copy made for this: its modules change their classes.
    """
    ops = {id(layer.module) for layer in layers.values()}
    names = {id(module): name for name, module in root.named_modules()}
    found: list[Capture] = []
    seen: set[int] = set()
    stack = [root]
    while stack:
        module = stack.pop()
        inner = list(module.modules())
        if id(module) in seen or id(module) in ops or is_fused(module):
            continue
        seen.add(id(module))
        if not any(id(part) in ops for part in inner):
            continue
        graph = _trace(module, ops) if not any(map(_is_changed, inner)) else None
        if graph is None:
            stack.extend(reversed(list(module.children())))
            continue
        seen.update(map(id, inner))
        called = {str(node.target) for node in graph.nodes if node.op == "call_module"}
        reads = {str(node.target) for node in graph.nodes if node.op == "get_attr"}
        # A module registered twice is known by its first name in the model.
        targets = {path: names[id(module.get_submodule(path))] for path in called}
        owners = {
            path: names[id(module.get_submodule(path))]
            for path in {tensor.rpartition(".")[0] for tensor in reads} - {""}
        }
        constants, defaults = _constants(module, graph), _defaults(module)
        found.append(Capture(names[id(module)], graph, targets, constants, owners, defaults))
    return tuple(found)


def _constants(module: nn.Module, graph: fx.Graph) -> dict[str, torch.Tensor]:
    """What torch.fx has put on the module that it read, which other copies of it lack."""
    names = {str(node.target) for node in graph.nodes if node.op == "get_attr"}
    return {name: getattr(module, name) for name in names if name.startswith(_CONSTANT)}


def _is_changed(module: nn.Module) -> bool:
    """Does it do more than its class says? torch.fx reads the class."""
    hooks = module._forward_hooks or module._forward_pre_hooks
    return bool(hooks) or "forward" in module.__dict__ or _calls_layers(module)


def _calls_layers(module: nn.Module) -> bool:
    """Are there calls in it that other calls take the place of? What has no other modules inside is
    read as one op."""
    routes = module.__dict__.get(CALLS, ())
    return bool(routes) and len(routes) < len(module._modules)


class _Tracer(Tracer):
    """Stops at ops; walks into containers and the user's own modules."""

    def __init__(self, ops: Collection[int]) -> None:
        super().__init__()
        self._ops = ops

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        if id(m) in self._ops or is_fused(m) or is_frozen_norm(m) or CALLS in m.__dict__:
            return True
        return bool(super().is_leaf_module(m, module_qualified_name))


def _trace(module: nn.Module, ops: Collection[int]) -> fx.Graph | None:
    defaults = _defaults(module)
    try:
        graph = _Tracer(ops).trace(module, defaults)
        _drop_defaults(graph, defaults)
        _place_inputs(module, graph, ops)
    except TRACE_ERRORS as error:
        logger.debug("%s can't be captured: %s", type(module).__name__, error)
        return None
    present = {node.op for node in graph.nodes}
    if not {"placeholder", "call_module"} <= present or any(map(_acts_aside, graph.nodes)):
        return None
    return graph


def _place_inputs(module: nn.Module, graph: fx.Graph, ops: Collection[int]) -> None:
    """layer(input=x) is layer(x)."""
    for node in graph.nodes:
        named = node.op == "call_module" and not node.args and list(node.kwargs) == ["input"]
        if named and id(module.get_submodule(str(node.target))) in ops:
            node.args, node.kwargs = (node.kwargs["input"],), {}


def _defaults(module: nn.Module) -> dict[str, Any]:
    """Optional arguments are read as left out; a call that gives others takes the original
    forward."""
    try:
        known = signature(module.forward).parameters
    except (TypeError, ValueError):
        return {}
    return {
        name: item.default
        for name, item in known.items()
        if item.default is None or isinstance(item.default, bool | int | float | str)
    }


def _acts_aside(node: fx.Node) -> bool:
    """A call for its side effect: x.add_(1) with the result thrown away."""
    return node.op.startswith("call") and not node.users


def _only_asks(node: fx.Node) -> bool:
    """A question that changes nothing: a shape, a number, a comparison, a check."""
    if node.op == "call_method":
        return node.target in _QUESTIONS
    return node.op == "call_function" and node.target in (*_CHECKS, *_PURE)


def _drop_defaults(graph: fx.Graph, defaults: Mapping[str, Any]) -> None:
    """Take out checks, what was asked for them alone, and the stand-ins of optional arguments."""
    for node in reversed(list(graph.nodes)):
        if not node.users and _only_asks(node):
            graph.erase_node(node)
    for node in list(graph.nodes):
        # torch.fx numbers the stand-ins of fixed arguments: flag becomes flag_1.
        if node.op == "placeholder" and str(node.target).rpartition("_")[0] in defaults:
            graph.erase_node(node)


def _target(node: fx.Node) -> str:
    target: Any = node.target
    return target if isinstance(target, str) else torch.typename(target) + "." + target.__name__
