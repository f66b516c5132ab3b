"""From rounded weights to nodes: MatMulNBits for products, GatherBlockQuantized for tables."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from onnx import ModelProto, NodeProto, helper

from lpot.backends.onnx.graph import Graph
from lpot.core.weight_only.grid import Format, Rounded
from lpot.core.weight_only.pack import pack_bits, pack_matmul_nbits

MICROSOFT = "com.microsoft"
# Sums of 8-bit products. The runtime's default computes in float, several times slower.
ACCURACY_LEVEL = 4
LONGEST_BLOCK = 256


@dataclass(frozen=True, eq=False)
class Stored:
    """A rounded weight, and what its inputs are multiplied by first (AWQ), if anything."""

    rounded: Rounded
    input_scales: np.ndarray | None = None

    def values(self) -> np.ndarray:
        """[N, K], as the product with the unscaled input sees it."""
        values: np.ndarray = self.rounded.values()
        return values if self.input_scales is None else values * self.input_scales


def emit(graph: Graph, weights: Mapping[str, Stored]) -> Graph:
    """The graph with the named nodes' weights stored as given."""
    nodes: list[NodeProto] = []
    arrays = dict(graph.weights)
    shared = shared_tables(graph, weights)
    for node in graph.nodes:
        stored = weights.get(node.name)
        if stored is None:
            nodes.append(node)
        elif node.name in shared:
            nodes += _shared_table(graph, node, shared[node.name], weights, arrays)
        elif node.op_type == "Gather":
            nodes.append(_table(graph, node, stored.rounded, arrays))
        else:
            nodes += _product(graph, node, stored, arrays)
    made = graph.replaced(nodes, arrays)
    return Graph(
        with_domain(graph.header), made.nodes, made.weights, made.opaque, graph.types, graph.shapes
    )


def with_domain(header: ModelProto) -> ModelProto:
    """The header with the domain that these ops are of."""
    if any(item.domain == MICROSOFT for item in header.opset_import):
        return header
    changed = ModelProto()
    changed.CopyFrom(header)
    changed.opset_import.append(helper.make_opsetid(MICROSOFT, 1))
    return changed


def _product(
    graph: Graph, node: NodeProto, stored: Stored, arrays: dict[str, np.ndarray]
) -> list[NodeProto]:
    rounded = in_blocks(widened(stored.rounded))
    packed, scales, zeros = pack_matmul_nbits(rounded)
    rows, columns = rounded.codes.shape
    stem = _stem(graph, node, rounded)
    parts: dict[str, np.ndarray] = {"": packed, "/scales": scales.reshape(-1)}
    if zeros is not None:
        parts["/zeros"] = zeros.reshape(-1)
    arrays |= {f"{stem}{end}": array for end, array in parts.items()}
    nodes, source = [], node.input[0]
    if stored.input_scales is not None:
        arrays[f"{stem}/input_scales"] = stored.input_scales
        scaled = graph.fresh(f"{node.name}/scaled_input")
        pair = [source, f"{stem}/input_scales"]
        nodes.append(helper.make_node("Mul", pair, [scaled], name=f"{scaled}:Mul"))
        source = scaled
    nodes.append(
        helper.make_node(
            "MatMulNBits",
            [source, *(f"{stem}{end}" for end in parts)],
            list(node.output),
            name=node.name,
            domain=MICROSOFT,
            K=columns,
            N=rows,
            bits=rounded.format.bits,
            block_size=rounded.format.group_size,
            accuracy_level=ACCURACY_LEVEL,
        )
    )
    return nodes


def _table(
    graph: Graph, node: NodeProto, rounded: Rounded, arrays: dict[str, np.ndarray]
) -> NodeProto:
    fmt = rounded.format
    stem = graph.fresh(f"{node.input[0]}/q{fmt.bits}")
    arrays |= {stem: pack_bits(rounded.codes, fmt.bits), f"{stem}/scales": rounded.scales}
    return _lookup(node, [stem, f"{stem}/scales"], fmt)


def _lookup(node: NodeProto, parts: Sequence[str], fmt: Format) -> NodeProto:
    codes, *rest = parts
    return helper.make_node(
        "GatherBlockQuantized",
        [codes, node.input[1], *rest],
        list(node.output),
        name=node.name,
        domain=MICROSOFT,
        gather_axis=0,
        quantize_axis=1,
        bits=fmt.bits,
        block_size=fmt.group_size,
    )


def _stem(graph: Graph, product: NodeProto, rounded: Rounded) -> str:
    return graph.fresh(f"{product.input[1]}/q{rounded.format.bits}")


def shared_tables(graph: Graph, weights: Mapping[str, Stored]) -> dict[str, NodeProto]:
    """Tables whose rows can be looked up in the codes of a product with the same matrix, by node.

    That is a decoder's head where it is tied to the embedding. The table is then no less exact than
    it was asked to be, and costs nothing.
    """
    named = [node for node in graph.nodes if node.name in weights]
    return {
        table.name: product
        for table in named
        for product in named
        if table.op_type == "Gather"
        and product.op_type == "MatMul"
        and _serves(weights[product.name], weights[table.name])
        and _is_turned(graph.weights[table.input[0]], graph.weights[product.input[1]])
    }


def _serves(product: Stored, table: Stored) -> bool:
    fmt, columns = product.rounded.format, product.rounded.codes.shape[1]
    return (
        product.input_scales is None
        and fmt.bits in (4, 8)
        and fmt.bits >= table.rounded.format.bits
        and bool(fmt.group_size)
        and columns % fmt.group_size == 0
    )


def _is_turned(table: np.ndarray, matrix: np.ndarray) -> bool:
    """The first rows tell most pairs apart."""
    if table.shape != matrix.shape[::-1]:
        return False
    return np.array_equal(table[:8], matrix.T[:8]) and np.array_equal(table, matrix.T)


def _shared_table(
    graph: Graph,
    node: NodeProto,
    product: NodeProto,
    weights: Mapping[str, Stored],
    arrays: dict[str, np.ndarray],
) -> list[NodeProto]:
    """The codes, scales and zero points of the product in the shape of a table."""
    rounded = weights[product.name].rounded
    stem = _stem(graph, product, rounded)
    (rows, columns), blocks, bits = (
        rounded.codes.shape,
        rounded.scales.shape[1],
        rounded.format.bits,
    )
    widths = {"": columns * bits // 8, "/scales": blocks}
    if rounded.zeros is not None:
        widths["/zeros"] = -(-blocks * bits // 8)
    nodes = []
    for end, width in widths.items():
        shape, made = f"{stem}{end}/table_shape", f"{stem}{end}/table"
        arrays[shape] = np.array([rows, width], np.int64)
        name = f"{made}:Reshape"
        nodes.append(helper.make_node("Reshape", [f"{stem}{end}", shape], [made], name=name))
    parts = [f"{stem}{end}/table" for end in widths]
    return [*nodes, _lookup(node, parts, rounded.format)]


def widened(rounded: Rounded) -> Rounded:
    """Three bits have no kernel: their codes are stored in four, with the same values."""
    fmt = rounded.format
    if fmt.bits != 3:
        return rounded
    wide = Format(4, fmt.group_size, fmt.symmetric)
    shift = np.uint8(wide.middle - fmt.middle)
    zeros = None if rounded.zeros is None else rounded.zeros + shift
    return Rounded(wide, rounded.codes + shift, rounded.scales, zeros)


def in_blocks(rounded: Rounded) -> Rounded:
    """One scale a row is written as the same scale for each of its blocks: kernels know blocks."""
    fmt = rounded.format
    if fmt.group_size:
        return rounded
    columns = rounded.codes.shape[1]
    size = min(LONGEST_BLOCK, max(16, 1 << (columns - 1).bit_length()))
    blocks = Format(fmt.bits, size, fmt.symmetric)
    count = blocks.groups(columns)
    zeros = None if rounded.zeros is None else np.repeat(rounded.zeros, count, axis=1)
    return Rounded(blocks, rounded.codes, np.repeat(rounded.scales, count, axis=1), zeros)
