"""A symbol's graph as plain values, read from MXNet's JSON, and written back after small edits."""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from lpot.backends.mxnet.runtime import mx

Entry = tuple[int, int]  # (node, number of its output)
VARIABLE = "null"


@dataclass(frozen=True)
class Node:
    """One op or variable; `members` are the ops that a fused one holds, in order."""

    kind: str
    name: str
    inputs: tuple[Entry, ...] = ()
    attrs: Mapping[str, str] = field(default_factory=dict, hash=False)
    members: tuple[Node, ...] = ()
    outputs: int = 1

    @property
    def is_variable(self) -> bool:
        return self.kind == VARIABLE

    def flag(self, name: str) -> bool:
        """A yes or no among the attributes; MXNet spells them in several ways."""
        return self.attrs.get(name, "False") in ("True", "true", "1")


@dataclass(frozen=True, eq=False)
class Graph:
    """The nodes of a symbol in the order they run."""

    nodes: tuple[Node, ...]
    listed: frozenset[str]  # every tensor name that MXNet knows
    heads: tuple[Entry, ...] = ()  # what the graph gives

    @classmethod
    def of(cls, symbol: mx.sym.Symbol) -> Graph:
        return cls.read(symbol, json.loads(symbol.tojson()))

    @classmethod
    def read(cls, symbol: mx.sym.Symbol, raw: Mapping[str, Any]) -> Graph:
        """From the symbol's JSON, where that is at hand already."""
        ends = raw["node_row_ptr"]
        counts = [after - before for before, after in itertools.pairwise(ends)]
        nodes = tuple(_node(item, count) for item, count in zip(raw["nodes"], counts, strict=True))
        heads = tuple((entry[0], entry[1]) for entry in raw["heads"])
        return cls(nodes, frozenset(symbol.get_internals().list_outputs()), heads)

    @property
    def ops(self) -> tuple[Node, ...]:
        return tuple(node for node in self.nodes if not node.is_variable)

    def tensor(self, entry: Entry) -> str:
        """The name MXNet gives a tensor in its calibration table."""
        node = self.nodes[entry[0]]
        if node.is_variable:
            return node.name
        numbered = f"{node.name}_output{entry[1]}"
        return numbered if numbered in self.listed else f"{node.name}_output"

    def producer(self, entry: Entry) -> Node:
        return self.nodes[entry[0]]

    @cached_property
    def readers(self) -> Mapping[str, tuple[tuple[Node, int], ...]]:
        """Tensor → the ops that read it, and in which place."""
        found: dict[str, list[tuple[Node, int]]] = {}
        for node in self.nodes:
            for place, entry in enumerate(node.inputs):
                found.setdefault(self.tensor(entry), []).append((node, place))
        return {name: tuple(items) for name, items in found.items()}


def _node(raw: Mapping[str, Any], outputs: int) -> Node:
    inside = [node for part in raw.get("subgraphs", ()) for node in part["nodes"]]
    members = [_node(node, 1) for node in inside if node["op"] != VARIABLE]
    return Node(
        kind=raw["op"],
        name=raw["name"],
        inputs=tuple((entry[0], entry[1]) for entry in raw["inputs"]),
        attrs=raw.get("attrs") or {},
        members=tuple(members),
        outputs=outputs,
    )


def grouped(symbol: mx.sym.Symbol) -> frozenset[str]:
    """Names of the convolutions in groups, those inside fused ops included."""
    ops = Graph.of(symbol).ops
    return frozenset(
        node.name
        for op in ops
        for node in (op, *op.members)
        if node.kind == "Convolution" and int(node.attrs.get("num_group", 1)) > 1
    )


class Draft:
    """A symbol's JSON under the pencil; `graph` is the symbol as it was."""

    def __init__(self, symbol: mx.sym.Symbol) -> None:
        self._raw = json.loads(symbol.tojson())
        self.graph = Graph.read(symbol, self._raw)
        self.nodes: list[dict[str, Any]] = self._raw["nodes"]

    def variable(self, name: str) -> int:
        """The number of a variable, made where there is none of this name."""
        for number, node in enumerate(self.nodes):
            if node["op"] == VARIABLE and node["name"] == name:
                return number
        return self.add(VARIABLE, name, ())

    def add(self, kind: str, name: str, entries: Iterable[Entry]) -> int:
        self.nodes.append({"op": kind, "name": name})
        self.set_inputs(len(self.nodes) - 1, entries)
        return len(self.nodes) - 1

    def set_inputs(self, number: int, entries: Iterable[Entry]) -> None:
        self.nodes[number]["inputs"] = [[node, output, 0] for node, output in entries]

    def symbol(self) -> mx.sym.Symbol:
        variables = (n for n, node in enumerate(self.nodes) if node["op"] == VARIABLE)
        self._raw["arg_nodes"] = list(variables)
        self._raw.pop("node_row_ptr", None)  # MXNet counts again
        return mx.sym.load_json(json.dumps(self._raw))
