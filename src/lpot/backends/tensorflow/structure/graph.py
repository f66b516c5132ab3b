"""A frozen GraphDef as a map of nodes that are never changed in place: what passes work on."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property

import numpy as np

from lpot.backends.tensorflow.runtime import GraphDef, NodeDef, tf
from lpot.backends.tensorflow.structure.nodes import full_name, node_name, tensor_name, value_of

ITERATOR = "MakeIterator"  # starts an in-graph iterator over data the graph reads itself
HEAVY = 4096  # bytes of a constant above which it is no shape or index
ENTER = ("Enter", "RefEnter")
EXIT = ("Exit", "RefExit")
SWITCH = ("Switch", "RefSwitch")
MERGE = ("Merge", "RefMerge")
CONTROL_FLOW = (
    *ENTER,
    *EXIT,
    *SWITCH,
    *MERGE,
    "NextIteration",
    "LoopCond",
)


@dataclass(frozen=True, eq=False)
class Net:
    """One graph. `outputs` and `inputs` are tensors; `keep` are nodes that must survive by name."""

    nodes: Mapping[str, NodeDef]
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    keep: frozenset[str]
    header: GraphDef = field(default_factory=GraphDef)  # library and versions, no nodes

    @classmethod
    def of(
        cls,
        graph_def: GraphDef,
        inputs: Iterable[str],
        outputs: Iterable[str],
        extra: Iterable[str] = (),
    ) -> Net:
        header = GraphDef()
        header.library.CopyFrom(graph_def.library)
        header.versions.CopyFrom(graph_def.versions)
        ins, outs = tuple(map(tensor_name, inputs)), tuple(map(tensor_name, outputs))
        keep = frozenset(map(node_name, (*ins, *outs, *extra)))
        return cls({node.name: node for node in graph_def.node}, ins, outs, keep, header)

    def graph_def(self) -> GraphDef:
        made = GraphDef()
        made.CopyFrom(self.header)
        made.node.extend(self.nodes.values())
        return made

    # -- reading ------------------------------------------------------------------------------

    @cached_property
    def users(self) -> dict[str, list[NodeDef]]:
        """Tensor → nodes that read it; `^name` → nodes that wait for it."""
        found: dict[str, list[NodeDef]] = {}
        for node in self.nodes.values():
            for name in dict.fromkeys(map(tensor_name, node.input)):
                found.setdefault(name, []).append(node)
        return found

    @cached_property
    def pinned(self) -> frozenset[str]:
        """Nodes that something refers to by more than output 0: outputs, control edges."""
        waited = {name[1:] for name in self.users if name.startswith("^")}
        others = {node_name(name) for name in self.users if ":" in name}
        return self.keep | waited | others

    def only_user(self, name: str) -> NodeDef | None:
        """The one node that reads output 0 of `name`, if there is no other way to see it."""
        if name in self.pinned:
            return None
        users = self.users.get(name, [])
        return users[0] if len(users) == 1 else None

    def producer(self, tensor: str) -> NodeDef | None:
        return self.nodes.get(node_name(tensor))

    def is_constant(self, tensor: str) -> bool:
        node = self.nodes.get(tensor_name(tensor))
        return node is not None and node.op == "Const"

    def constant(self, tensor: str) -> np.ndarray | None:
        """The value of a Const; None for anything else."""
        node = self.nodes.get(tensor_name(tensor))
        return None if node is None or node.op != "Const" else value_of(node)

    @cached_property
    def in_loop(self) -> frozenset[str]:
        """Nodes inside v1 while loops: new nodes can't be added there without a frame."""
        return self._between([n for n, node in self.nodes.items() if node.op in ENTER], EXIT)

    @cached_property
    def in_branch(self) -> frozenset[str]:
        """Nodes inside v1 conditionals: they may not run, and then give nothing to observe."""
        forks = [n for n, node in self.nodes.items() if node.op in SWITCH]
        return self._between([name for name in forks if name not in self.in_loop], MERGE)

    def _between(self, front: list[str], ends: Collection[str]) -> frozenset[str]:
        seen: set[str] = set()
        while front:
            name = front.pop()
            if name in seen:
                continue
            seen.add(name)
            if self.nodes[name].op not in ends:
                front.extend(self.heirs.get(name, ()))
        return frozenset(seen)

    @cached_property
    def heirs(self) -> dict[str, list[str]]:
        """Node → nodes that read or wait for any output of it."""
        found: dict[str, list[str]] = {}
        for node in self.nodes.values():
            for name in dict.fromkeys(map(node_name, node.input)):
                found.setdefault(name, []).append(node.name)
        return found

    @cached_property
    def order(self) -> list[str]:
        """Node names so that each comes after its inputs; loops are cut at NextIteration."""
        done: dict[str, bool] = {}
        order: list[str] = []
        for root in self.nodes:
            stack: list[tuple[str, Iterator[str]]] = []
            if root not in done:
                done[root] = False
                stack.append((root, self._before(root)))
            while stack:
                name, rest = stack[-1]
                following = next((item for item in rest if item not in done), None)
                if following is None:
                    stack.pop()
                    order.append(name)
                else:
                    done[following] = False
                    stack.append((following, self._before(following)))
        return order

    def _before(self, name: str) -> Iterator[str]:
        node = self.nodes[name]
        if node.op == "NextIteration":
            return iter(())
        return (item for item in map(node_name, node.input) if item in self.nodes)

    def ancestors(self, names: Iterable[str]) -> set[str]:
        """These nodes and all that they depend on."""
        seen: set[str] = set()
        front = [node_name(name) for name in names]
        while front:
            name = front.pop()
            if name not in seen and name in self.nodes:
                seen.add(name)
                front.extend(map(node_name, self.nodes[name].input))
        return seen

    @cached_property
    def _imported(self) -> tf.Graph:
        """For shapes alone."""
        graph = tf.Graph()
        with graph.as_default():
            tf.graph_util.import_graph_def(lightened(self.header, self.nodes.values()), name="")
        return graph

    def tensor(self, name: str) -> tf.Tensor:
        """Type and shape of a tensor, in a graph without the weights."""
        return self._imported.get_tensor_by_name(full_name(name))

    def shape(self, tensor: str) -> tuple[int | None, ...] | None:
        """As far as it is known without running; None where not even the rank is."""
        shape = self.tensor(tensor).shape
        return None if shape.rank is None else tuple(shape.as_list())

    # -- making others ------------------------------------------------------------------------

    def changed(self, changes: Mapping[str, NodeDef], gone: Collection[str] = ()) -> Net:
        """The same graph with nodes replaced or added, and some taken out."""
        nodes = {name: node for name, node in self.nodes.items() if name not in gone}
        nodes.update(changes)
        return replace(self, nodes=nodes)

    def pruned(self) -> Net:
        """Without the nodes that no output, input or kept node needs."""
        return self.cut((*self.outputs, *self.keep))

    def cut(self, ends: Iterable[str]) -> Net:
        """Only what these nodes need."""
        needed = self.ancestors(ends)
        return replace(self, nodes={n: node for n, node in self.nodes.items() if n in needed})

    def rewired(self, renamed: Mapping[str, str]) -> Net:
        """The same graph where readers of a tensor read another one instead."""
        changes = {}
        for node in self.nodes.values():
            if any(tensor_name(name) in renamed for name in node.input):
                fresh = NodeDef()
                fresh.CopyFrom(node)
                fresh.input[:] = [renamed.get(tensor_name(name), name) for name in node.input]
                changes[node.name] = fresh
        return self.changed(changes)


def lightened(
    header: GraphDef, nodes: Iterable[NodeDef], names: Collection[str] | None = None
) -> GraphDef:
    """The graph with its big constants, or those of these names, left open.

    It has all names and shapes, and costs little to import.
    """
    light = GraphDef(library=header.library, versions=header.versions)
    for node in nodes:
        heavy = _is_heavy(node) if names is None else node.name in names
        light.node.append(_opened(node) if heavy else node)
    return light


def _is_heavy(node: NodeDef) -> bool:
    return bool(node.op == "Const" and node.ByteSize() >= HEAVY)


def _opened(node: NodeDef) -> NodeDef:
    fresh = NodeDef(name=node.name, op="Placeholder")
    fresh.input.extend(node.input)
    fresh.attr["dtype"].CopyFrom(node.attr["dtype"])
    fresh.attr["shape"].shape.CopyFrom(node.attr["value"].tensor.tensor_shape)
    return fresh


def fingerprint(nodes: Iterable[NodeDef]) -> str:
    digest = hashlib.sha256()
    for node in sorted(nodes, key=lambda item: item.name):
        digest.update(node.SerializeToString(deterministic=True))
    return digest.hexdigest()[:32]
