"""Lookup tables: their contents become part of the graph, so that a frozen one needs no files.

A table is a resource that somebody filled before the model ran. Here it is filled from constants,
and every op that reads it waits for that: the first run fills it, later ones find it full.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lpot.backends.tensorflow.runtime import GraphDef, NodeDef, tf, v1
from lpot.backends.tensorflow.structure.nodes import Namer, make_node, node_name
from lpot.core.errors import UnsupportedModel

TABLES = (
    "HashTable",
    "HashTableV2",
    "MutableHashTable",
    "MutableHashTableV2",
    "MutableDenseHashTableV2",
    "AnonymousHashTable",
    "AnonymousMutableHashTable",
)
EXPORTED = tuple(op for op in TABLES if op.endswith("V2"))
READERS = ("LookupTableFindV2", "LookupTableSizeV2", "LookupTableFind", "LookupTableSize")
FILLERS = ("InitializeTableV2", "InitializeTable", "LookupTableImportV2")


@dataclass(frozen=True, eq=False)
class Contents:
    """What a table holds, and of which types."""

    keys: np.ndarray
    values: np.ndarray
    key_dtype: tf.DType
    value_dtype: tf.DType


def captured_tables(function: Any, graph_def: GraphDef) -> dict[str, Contents]:
    """Placeholder → the table that a ConcreteFunction holds behind it."""
    names = {node.name for node in graph_def.node if node.op == "Placeholder"}
    found = {}
    for outer, inner in function.graph.captures:
        name = node_name(inner.name)
        if outer.dtype != tf.resource or name not in names:
            continue
        finder = next((node for node in _readers(graph_def, name) if "Tin" in node.attr), None)
        if finder is None:
            raise UnsupportedModel(
                f"the model holds {name!r}, a resource that is neither a variable nor a lookup "
                "table read in its main graph: it can't be frozen"
            )
        types = [tf.as_dtype(finder.attr[key].type) for key in ("Tin", "Tout")]
        held = tf.raw_ops.LookupTableExportV2(table_handle=outer, Tkeys=types[0], Tvalues=types[1])
        found[name] = Contents(held.keys.numpy(), held.values.numpy(), *types)
    return found


def session_tables(session: v1.Session, graph_def: GraphDef) -> dict[str, Contents]:
    """Table nodes of a session's graph and what was loaded into them.

    Those that the graph fills itself, as ours do, are left alone.
    """
    filled = {node_name(node.input[0]) for node in graph_def.node if node.op in FILLERS}
    found = {}
    for node in graph_def.node:
        if node.op not in EXPORTED or node.name in filled:
            continue
        types = [tf.as_dtype(node.attr[key].type) for key in ("key_dtype", "value_dtype")]
        handle = session.graph.get_tensor_by_name(f"{node.name}:0")
        with session.graph.as_default():
            export = tf.raw_ops.LookupTableExportV2(
                table_handle=handle, Tkeys=types[0], Tvalues=types[1]
            )
        try:
            keys, values = session.run([export.keys, export.values])
        except tf.errors.OpError as error:
            raise _empty(node.name) from error
        found[node.name] = Contents(keys, values, *types)
    return found


def with_tables(graph_def: GraphDef, tables: Mapping[str, Contents]) -> GraphDef:
    """The graph with each table made and filled where a placeholder or empty table stood."""
    if not tables:
        return graph_def
    fresh = Namer(node.name for node in graph_def.node)
    made = GraphDef()
    made.library.CopyFrom(graph_def.library)
    made.versions.CopyFrom(graph_def.versions)
    fillers: dict[str, str] = {}
    for name, contents in tables.items():
        nodes = _table(name, contents, fresh)
        fillers[name] = nodes[-1].name
        made.node.extend(nodes)
    made.node.extend(node for node in graph_def.node if node.name not in tables)
    _let_wait(made, fillers)
    return made


def settle_tables(graph_def: GraphDef) -> GraphDef:
    """Readers of tables wait for what fills them; a table that nothing fills is refused."""
    kinds = {node.name: node.op for node in graph_def.node}
    read = {name for _, name in _read(graph_def) if kinds.get(name) in TABLES}
    fillers = {node_name(node.input[0]): node.name for node in graph_def.node if node.op in FILLERS}
    if missing := sorted(read - set(fillers)):
        raise _empty(missing[0])
    _let_wait(graph_def, {name: fillers[name] for name in read})
    return graph_def


def _table(name: str, contents: Contents, fresh: Namer) -> list[NodeDef]:
    digest = hashlib.sha256(repr((contents.keys.tolist(), contents.values.tolist())).encode())
    types = {"key_dtype": contents.key_dtype, "value_dtype": contents.value_dtype}
    shared = f"lpot_{digest.hexdigest()[:24]}"  # equal tables may be one, others must not
    table = make_node("HashTableV2", name, [], shared_name=shared, **types)
    keys = _constant(fresh(f"{name}/keys"), contents.keys, contents.key_dtype)
    values = _constant(fresh(f"{name}/values"), contents.values, contents.value_dtype)
    filler = make_node(
        "InitializeTableV2",
        fresh(f"{name}/fill"),
        [name, keys.name, values.name],
        Tkey=contents.key_dtype,
        Tval=contents.value_dtype,
    )
    return [table, keys, values, filler]


def _constant(name: str, array: np.ndarray, dtype: tf.DType) -> NodeDef:
    node = NodeDef(name=name, op="Const")
    node.attr["dtype"].type = dtype.as_datatype_enum
    node.attr["value"].tensor.CopyFrom(tf.make_tensor_proto(array, dtype))
    return node


def _readers(graph_def: GraphDef, name: str) -> list[NodeDef]:
    return [node for node, table in _read(graph_def) if table == name]


def _read(graph_def: GraphDef) -> Iterator[tuple[NodeDef, str]]:
    """Each op that reads a table, and the table's node, which may stand behind identities."""
    nodes = {node.name: node for node in graph_def.node}
    for node in graph_def.node:
        if node.op in READERS and node.input:
            name = node_name(node.input[0])
            while name in nodes and nodes[name].op == "Identity":
                name = node_name(nodes[name].input[0])
            yield node, name


def _let_wait(graph_def: GraphDef, fillers: Mapping[str, str]) -> None:
    if fillers:
        for node, name in _read(graph_def):
            filler = fillers.get(name)
            if filler is not None and f"^{filler}" not in node.input:
                node.input.append(f"^{filler}")


def _empty(name: str) -> UnsupportedModel:
    return UnsupportedModel(
        f"the lookup table {name!r} has no contents in this graph: give the SavedModel or the "
        "Keras model, which hold them"
    )
