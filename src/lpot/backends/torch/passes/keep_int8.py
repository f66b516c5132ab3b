"""Decide which values between the ops of a captured part stay uint8."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import signature
from types import FunctionType
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from lpot.backends.torch.modules import LowConv, LowLinear
from lpot.backends.torch.passes.capture_graph import Capture
from lpot.backends.torch.passes.find_chains import Chain, is_relu, swallowed

_ADD_FUNCTIONS = (operator.add, operator.iadd, torch.add)
_ADD_METHODS = ("add", "add_")
_IN_PLACE = ("iadd", "isub", "imul", "itruediv")
_CAT_FUNCTIONS = (torch.cat, torch.concat)
# These take quint8 and give quint8 of the same scale: values only move or are averaged.
_MOVING_FUNCTIONS = (
    functional.max_pool2d,
    torch.max_pool2d,
    functional.adaptive_avg_pool2d,
    functional.avg_pool2d,
    torch.flatten,
    functional.relu,
    torch.relu,
    functional.relu6,
    operator.getitem,
    torch.chunk,
    torch.split,
)
_MOVING_METHODS = (
    *("flatten", "view", "reshape", "contiguous", "permute", "transpose", "relu"),
    *("unsqueeze", "squeeze", "chunk", "split"),
)
_MOVING_MODULES = (
    nn.MaxPool2d,
    nn.AdaptiveAvgPool2d,
    nn.AvgPool2d,
    nn.ReLU,
    nn.ReLU6,
    nn.Flatten,
    nn.Dropout,
    nn.Dropout2d,
    nn.Identity,
    nn.ZeroPad2d,
    nn.PixelShuffle,
    nn.ChannelShuffle,
)


def is_add(node: fx.Node) -> bool:
    """A sum of two values, not of a value and a number."""
    if node.op == "call_function":
        fits = node.target in _ADD_FUNCTIONS
    else:
        fits = node.op == "call_method" and node.target in _ADD_METHODS
    return fits and not node.kwargs and len(node.args) == 2 and len(node.all_input_nodes) == 2


def is_cat(node: fx.Node) -> bool:
    return (
        node.op == "call_function"
        and node.target in _CAT_FUNCTIONS
        and isinstance(node.args[0], list | tuple)
        and all(isinstance(item, fx.Node) for item in node.args[0])
    )


def is_moving(captured: Capture, node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    if len(node.all_input_nodes) != 1:
        return False
    if node.op == "call_module":
        return type(modules[captured.targets[str(node.target)]]) in _MOVING_MODULES
    if node.op == "call_function":
        return node.target in _MOVING_FUNCTIONS or zeros_around(captured, node, modules) is not None
    return node.op == "call_method" and node.target in _MOVING_METHODS


def zeros_around(
    captured: Capture, node: fx.Node, modules: Mapping[str, nn.Module]
) -> tuple[int, ...] | None:
    """The widths by which a value is padded with zeros, if that is what happens here."""
    if node.op == "call_module":
        module = modules[captured.targets[str(node.target)]]
        return tuple(module.padding) if type(module) is nn.ZeroPad2d else None
    if node.target is not functional.pad:
        return None
    given = dict(zip(("input", "pad", "mode", "value"), node.args, strict=False)) | node.kwargs
    widths = given.get("pad")
    zeros = given.get("mode", "constant") == "constant" and given.get("value") in (None, 0, 0.0)
    known = isinstance(widths, list | tuple) and all(type(width) is int for width in widths)
    return tuple(widths) if zeros and known else None


def is_new(captured: Capture, node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    """Does this op, which only moves values, make a tensor of its own, no view?"""
    if zeros_around(captured, node, modules) is not None:
        return True
    if node.op == "call_module":
        return type(modules[captured.targets[str(node.target)]]) is nn.MaxPool2d
    return node.op == "call_function" and node.target in (functional.max_pool2d, torch.max_pool2d)


def relu_after(
    captured: Capture, node: fx.Node, modules: Mapping[str, nn.Module]
) -> fx.Node | None:
    """The relu that is the only user of a sum, and is swallowed by it."""
    users = list(node.users)
    if is_add(node) and len(users) == 1 and is_relu(captured, users[0], modules):
        return users[0]
    return None


def points(captured: Capture, modules: Mapping[str, nn.Module]) -> set[fx.Node]:
    """The nodes besides ops whose values may be rounded to uint8: statistics are wanted there."""
    joints = [node for node in captured.graph.nodes if is_add(node) or is_cat(node)]
    return {relu_after(captured, node, modules) or node for node in joints}


@dataclass(frozen=True, eq=False)
class Plan:
    """For one captured part under one recipe.

    `chains` are those of static int8 ops, by first node. `byte` holds the nodes whose value is
    uint8, `reader` the op that decides how a uint8 value made there is scaled.
    """

    chains: Mapping[fx.Node, Chain]
    byte: frozenset[fx.Node]
    reader: Mapping[fx.Node, str]
    relus: Mapping[fx.Node, fx.Node]  # sum → the relu it swallows


def plan(
    captured: Capture,
    chains: Mapping[str, Chain],
    modules: Mapping[str, nn.Module],
    coded: bool = True,
) -> Plan:
    """`modules` is the trial's: ops already replaced. Unless `coded`, all values are floats."""
    low = {chain.first: chain for name, chain in chains.items() if _is_static(modules.get(name))}
    relus = {
        node: after
        for node in captured.graph.nodes
        if (after := relu_after(captured, node, modules)) is not None
    }
    inner = swallowed(low.values())
    able = _able(captured, modules, inner) if coded else set()
    reader = _readers(captured, modules, low, able)
    byte: set[fx.Node] = set()
    for node in captured.graph.nodes:
        if node in inner:
            chain = inner[node]
            if chain.last in reader:
                byte.add(node)
        elif is_add(node) or is_cat(node):
            if node in able and node in reader:
                byte.add(node)
        elif is_moving(captured, node, modules) and node.all_input_nodes[0] in byte:
            byte.add(node)
    return Plan(low, frozenset(byte), reader, relus)


def _is_static(module: nn.Module | None) -> bool:
    return isinstance(module, LowConv | LowLinear) and module.settings.inlet is not None


def _wants_floats(module: nn.Module) -> bool:
    return isinstance(module, LowLinear) and module.smooth is not None


def _able(
    captured: Capture, modules: Mapping[str, nn.Module], inner: Mapping[fx.Node, Chain]
) -> set[fx.Node]:
    """Nodes whose value could be uint8, if somebody wants it so."""
    able: set[fx.Node] = set()
    overwritten = _overwritten(captured, modules)
    for node in captured.graph.nodes:
        if node in overwritten:
            continue
        keeps = is_add(node) or is_cat(node) or is_moving(captured, node, modules)
        if node in inner or (keeps and able.issuperset(node.all_input_nodes)):
            able.add(node)
    return able


def _overwritten(captured: Capture, modules: Mapping[str, nn.Module]) -> set[fx.Node]:
    """Values changed in place while they, or views of them, are still read: copies would not show
    that."""
    order = {node: number for number, node in enumerate(captured.graph.nodes)}
    sharing: dict[fx.Node, list[fx.Node]] = {}  # one list for a value and all its views
    for node in captured.graph.nodes:
        view = is_moving(captured, node, modules) and not acts_in_place(captured, node, modules)
        sharing[node] = sharing[node.all_input_nodes[0]] if view else []
        sharing[node].append(node)
    found: set[fx.Node] = set()
    for node, views in sharing.items():
        if node is not views[0]:
            continue
        users = sorted({user for view in views for user in view.users}, key=order.__getitem__)
        if any(acts_in_place(captured, user, modules) for user in users[:-1]):
            found.update(views)
    return found


def acts_in_place(captured: Capture, node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    target: Any = node.target
    if node.op == "call_module":
        return bool(getattr(modules[captured.targets[target]], "inplace", False))
    if node.op == "call_method":
        return str(target).endswith("_") and not str(target).endswith("__")
    if node.op != "call_function":
        return False
    name = getattr(target, "__name__", "")
    return name.endswith("_") or name in _IN_PLACE or _is_told_to(node)


def _is_told_to(node: fx.Node) -> bool:
    """relu(x, inplace=True), or relu(x, True)."""
    if not isinstance(node.target, FunctionType):
        return False
    known = list(signature(node.target).parameters)
    given = {**dict(zip(known, node.args, strict=False)), **node.kwargs}
    return bool(given.get("inplace"))


def _readers(
    captured: Capture,
    modules: Mapping[str, nn.Module],
    low: Mapping[fx.Node, Chain],
    able: set[fx.Node],
) -> dict[fx.Node, str]:
    """Node → the first int8 op downstream that wants its value in uint8."""
    reader: dict[fx.Node, str] = {}
    for node in reversed(list(captured.graph.nodes)):
        if node not in able:
            continue
        for user in node.users:
            name = captured.layer_of(user) if user in low else None
            if name is not None and _wants_floats(modules[name]):
                continue
            if name is None and user in able and user not in low:
                name = reader.get(user)
            if name is not None:
                reader.setdefault(node, name)
    return reader
