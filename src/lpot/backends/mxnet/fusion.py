"""The graph as MXNet fuses it for INT8, and the way back to the user's layer names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from lpot.backends.mxnet.abilities import FOLLOWERS, FUSED
from lpot.backends.mxnet.graph import Graph, Node
from lpot.backends.mxnet.network import Network
from lpot.backends.mxnet.runtime import BACKEND, mx
from lpot.core.recipe import OpKey

IDENTITIES = ("Dropout", "_copy", "identity", "BlockGrad")
QUANTIZED = ("_contrib_quantize", "_contrib_dequantize", "_contrib_requantize")


@dataclass(frozen=True, eq=False)
class Layer:
    """What goes to INT8 as one: a fused node, or a lone op. `key` is the user's op it answers to.

    `reads` are the activations it takes, in order; `gives` is its first output.
    """

    key: OpKey
    node: Node
    reads: tuple[str, ...]
    gives: str
    weight: str = ""
    bias: str = ""

    @property
    def summand(self) -> str:
        """The tensor that the fused kernel adds to its own result, in place; empty without one."""
        return self.reads[-1] if self.node.flag("with_sum") else ""

    @property
    def ends_in_relu(self) -> bool:
        """The kernels give unsigned integers behind a ReLU, and signed ones otherwise."""
        return self.ends_in_clip or self._last.attrs.get("act_type") == "relu"

    @property
    def ends_in_clip(self) -> bool:
        """The kernels do not clip: they leave it to the end of the range."""
        return self._last.kind == "clip"

    @property
    def _last(self) -> Node:
        return self.node.members[-1] if self.node.members else self.node


@dataclass(frozen=True, eq=False)
class Fusion:
    """`units` by the name of their node in the fused graph."""

    symbol: mx.sym.Symbol
    graph: Graph
    units: Mapping[str, Layer]
    inside: Mapping[str, OpKey]  # the user's op → the op whose precision it shares
    lost: tuple[str, ...] = ()  # ops that MXNet's fusion forgot: then nothing of it is trusted

    @cached_property
    def by_key(self) -> Mapping[OpKey, tuple[Layer, ...]]:
        """A layer that is used twice has one name and two units."""
        found: dict[OpKey, tuple[Layer, ...]] = {}
        for unit in self.units.values():
            found[unit.key] = (*found.get(unit.key, ()), unit)
        return found

    @cached_property
    def tensors(self) -> tuple[str, ...]:
        """Everything that some recipe could quantize."""
        names = [name for unit in self.units.values() for name in (*unit.reads, unit.gives)]
        return tuple(dict.fromkeys(names))


def is_quantized(graph: Graph) -> bool:
    return any(node.kind.startswith(QUANTIZED) for node in graph.ops)


def fuse(network: Network) -> Fusion:
    given = Graph.of(network.symbol)
    if is_quantized(given):  # MXNet would quantize it a second time
        return Fusion(network.symbol, given, {}, {})
    symbol = network.symbol.get_backend_symbol(BACKEND)
    graph = Graph.of(symbol)
    params = {*network.args, *network.auxs}
    units: dict[str, Layer] = {}
    inside: dict[str, OpKey] = {}
    for number, node in enumerate(graph.nodes):
        key = _key(node)
        if key is None:
            continue
        names = [graph.producer(entry).name for entry in node.inputs]
        reads = [
            graph.tensor(entry)
            for entry, name in zip(node.inputs, names, strict=True)
            if name not in params
        ]
        twin = units.get(node.name)  # a layer without weights that is used twice
        weight, bias = [*names[1:3], "", ""][:2] if node.kind in FUSED else ("", "")
        units[node.name] = Layer(
            key,
            node,
            (*(twin.reads if twin is not None else ()), *reads),
            graph.tensor((number, 0)),
            weight if weight in params else "",
            bias if bias in params else "",
        )
        inside.update((member.name, key) for member in node.members if member.name != key.name)
    kept = {
        *(node.name for node in graph.ops),
        *inside,
        *(unit.key.name for unit in units.values()),
    }
    lost = tuple(n.name for n in given.ops if n.name not in kept and not _is_nothing(n))
    return Fusion(symbol, graph, {} if lost else units, {} if lost else inside, lost)


def _key(node: Node) -> OpKey | None:
    """The user's op that a node of the fused graph answers to; None for what can't be INT8."""
    if node.kind in FUSED:
        leaders = [OpKey(m.name, m.kind) for m in node.members if m.kind == FUSED[node.kind]]
        return leaders[0] if len(leaders) == 1 else None
    return OpKey(node.name, node.kind) if node.kind in FOLLOWERS else None


def _is_nothing(node: Node) -> bool:
    """Does it give what it takes when nobody trains? Then the fusion may well drop it."""
    return node.kind in IDENTITIES and node.attrs.get("mode", "training") == "training"
