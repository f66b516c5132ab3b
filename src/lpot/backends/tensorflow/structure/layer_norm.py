"""Recognising layer normalization by what it computes, however the graph spells it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lpot.backends.tensorflow.runtime import NodeDef
from lpot.backends.tensorflow.structure.affine import is_float32
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.nodes import data_inputs, has_control

BINARY: Mapping[str, Callable[..., Any]] = {
    "Mul": np.multiply,
    "Add": np.add,
    "AddV2": np.add,
    "BiasAdd": np.add,
    "Sub": np.subtract,
    "RealDiv": np.divide,
    "SquaredDifference": lambda x, y: (x - y) ** 2,
    "Maximum": np.maximum,
}
UNARY: Mapping[str, Callable[..., Any]] = {
    "Neg": np.negative,
    "Square": np.square,
    "Sqrt": np.sqrt,
    "Rsqrt": lambda x: 1.0 / np.sqrt(x),
    "Identity": np.asarray,
    "StopGradient": np.asarray,
}
MOST_NODES = 20
ROWS = 5
NEAR = 1e-9
Values = dict[str, np.ndarray]


@dataclass(frozen=True, eq=False)
class LayerNorm:
    """`out` is `x` brought to mean 0 and variance 1 over its last axis, times scale plus offset."""

    x: str
    out: str
    scale: np.ndarray
    offset: np.ndarray
    epsilon: float


def match_layer_norms(net: Net) -> list[LayerNorm]:
    found: dict[str, LayerNorm] = {}
    for name in net.order:
        node = net.nodes[name]
        if node.op == "Mean" and data_inputs(node)[0] not in found:
            norm = _match(net, node)
            if norm is not None:
                found[norm.x] = norm
    return list(found.values())


def _match(net: Net, mean: NodeDef) -> LayerNorm | None:
    """From the first mean on, node by node, until the values are those of a layer norm."""
    x = data_inputs(mean)[0]
    shape = net.shape(x)
    if shape is None or not 2 <= len(shape) <= 3 or not shape[-1] or mean.name in net.in_loop:
        return None
    random = np.random.default_rng(0)
    points = random.normal(1.0, 2.0, (*[1] * (len(shape) - 2), ROWS, shape[-1]))
    values: Values = {x: points}
    epsilons: list[float] = []
    front = [mean]
    while front and len(values) <= MOST_NODES:
        node = next((node for node in front if _computable(net, node, values)), None)
        if node is None:
            return None
        front.remove(node)
        values[node.name] = _value(net, node, values)
        epsilons += [e for e in (_scalar(net, n) for n in data_inputs(node)) if e and 0 < e < 0.1]
        norm = _norm(x, node.name, points, values[node.name], epsilons)
        if norm is not None and _is_closed(net, values, x, node.name):
            return _whole(net, norm, values, points, epsilons)
        known = {one.name for one in front} | set(values)
        users = [user for user in net.users.get(node.name, ()) if user.name not in known]
        front += [user for user in users if _computable(net, user, values)]
    return None


def _whole(
    net: Net, norm: LayerNorm, values: Values, points: np.ndarray, epsilons: list[float]
) -> LayerNorm:
    """With the scale and offset behind it, as far as nobody else sees what is between."""
    while (user := net.only_user(norm.out)) is not None and _computable(net, user, values):
        values[user.name] = _value(net, user, values)
        more = _norm(norm.x, user.name, points, values[user.name], epsilons)
        if more is None:
            break
        norm = more
    return norm


def _norm(
    x: str, out: str, points: np.ndarray, value: np.ndarray, epsilons: list[float]
) -> LayerNorm | None:
    if value.shape != points.shape:
        return None
    centred = points - points.mean(-1, keepdims=True)
    for epsilon in dict.fromkeys(epsilons):
        plain = centred / np.sqrt(points.var(-1, keepdims=True) + epsilon)
        rows, seen = plain.reshape(ROWS, -1), value.reshape(ROWS, -1)
        spread = rows[0] - rows[1]
        scale = (seen[0] - seen[1]) / spread
        offset = seen[0] - scale * rows[0]
        if np.isfinite(scale).all() and scale.any():
            error = np.abs(rows * scale + offset - seen).max()
            # A scale that is not the same for all rows would not fit all five of them.
            if error < NEAR * max(1.0, float(np.abs(seen).max())) * 1e3:
                return LayerNorm(x, out, scale, offset, epsilon)
    return None


def _computable(net: Net, node: NodeDef, values: Values) -> bool:
    if has_control(node) or not is_float32(node):
        return False
    if node.op == "Mean":
        return _averages_last(net, node, values)
    known = node.op in BINARY or node.op in UNARY
    return known and all(name in values or net.is_constant(name) for name in data_inputs(node))


def _averages_last(net: Net, node: NodeDef, values: Values) -> bool:
    source, axes = data_inputs(node)
    axis = net.constant(axes)
    if source not in values or axis is None or axis.size != 1 or not node.attr["keep_dims"].b:
        return False
    return int(axis.reshape(-1)[0]) in (-1, values[source].ndim - 1)


def _value(net: Net, node: NodeDef, values: Values) -> np.ndarray:
    if node.op == "Mean":
        return np.asarray(values[data_inputs(node)[0]].mean(-1, keepdims=True))
    inputs = [values[n] if n in values else _constant(net, n) for n in data_inputs(node)]
    with np.errstate(all="ignore"):
        result = BINARY[node.op](*inputs) if node.op in BINARY else UNARY[node.op](*inputs)
    return np.asarray(result)


def _constant(net: Net, name: str) -> np.ndarray:
    value = net.constant(name)
    assert value is not None
    return value.astype(np.float64)


def _scalar(net: Net, name: str) -> float | None:
    value = net.constant(name) if net.is_constant(name) else None
    return float(value.reshape(-1)[0]) if value is not None and value.size == 1 else None


def _is_closed(net: Net, values: Values, x: str, last: str) -> bool:
    """No node on the way is seen from outside."""
    within: set[str] = {x}
    front = [last]
    while front:
        name = front.pop()
        if name in values and name not in within:
            within.add(name)
            front += data_inputs(net.nodes[name])
    return all(
        name not in net.pinned and all(user.name in within for user in net.users[name])
        for name in within - {x, last}
    )
