"""One pass over the calibration data: ranges and histograms of every tensor, in bounded memory.

The reductions run inside the graph: what leaves the runtime per tensor and batch is its minimum,
its maximum and at most 64 Ki sampled values, whatever its size.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType

import numpy as np
from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from lpot.backends.onnx.graph import Graph, attribute
from lpot.backends.onnx.model import OnnxModel
from lpot.backends.onnx.passes.correct_bias import mean_inputs
from lpot.backends.onnx.passes.smooth_channels import PRODUCTS
from lpot.backends.onnx.run import ORT_ERRORS
from lpot.backends.onnx.segments import Piece, Segment, Tensors, cut_evenly, piece
from lpot.core.batch import Inputs
from lpot.core.errors import DataError, first_line
from lpot.core.inputs import by_name
from lpot.core.numerics.histogram import TensorStats
from lpot.core.numerics.observations import ChannelStats, Observations, Snapshots, copied

SAMPLED = 65536
SAMPLING: Mapping[str, np.ndarray] = {
    "lpot/sampled": np.array(SAMPLED, np.int64),
    "lpot/one": np.array([1], np.int64),
    "lpot/flat": np.array([-1], np.int64),
    "lpot/start": np.array([0], np.int64),
    "lpot/end": np.array([np.iinfo(np.int64).max], np.int64),
}
DEEP = 256  # tensors that are looked at in one session
EACH, MOST = 64, 64  # of a deep graph: tensors of a part at least, and parts at most


def observe(
    model: OnnxModel, tensors: Sequence[str], batches: Iterable[Inputs], sizes: Sequence[int]
) -> dict[int, Observations]:
    """A snapshot for each size; size 0 stands for everything the loader gives."""
    model.rest()
    stretches = list(_stretches(model.prepared, tensors))
    stats = {name: TensorStats.empty() for name in tensors}
    channels = ChannelStats()
    found = Snapshots(
        sizes,
        lambda seen, probe: Observations(
            seen, copied(stats), probe, channels=channels.extremes(), means=channels.means()
        ),
    )
    for inputs in batches:
        feeds = by_name(model.inputs, inputs)
        count = _count(feeds)
        values = dict(feeds)
        for stretch in stretches:
            outputs = stretch.run(values)
            for name in stretch.tensors:
                low, high, sample = (next(outputs) for _ in range(3))
                if sample.size:
                    stats[name].update(sample, float(low), float(high))
            for name in stretch.products:
                channels.widen(name, next(outputs), next(outputs))
            for name in stretch.averaged:
                channels.average(name, next(outputs), count / (found.seen + count))
        found.add(feeds, count)
        if found.is_complete:
            break
    return found.all()


def _count(feeds: Mapping[str, np.ndarray]) -> int:
    return next((array.shape[0] for array in feeds.values() if array.ndim), 1)


@dataclass(eq=False)
class _Stretch:
    """A part of the graph with what is looked at in it; the whole graph, unless it is deep."""

    graph: Graph
    tensors: Sequence[str]
    products: Mapping[str, int]
    averaged: Mapping[str, int]
    leaves: tuple[str, ...] = ()  # what the next stretch reads
    opened: Piece | None = None

    def run(self, values: Tensors) -> Iterator[np.ndarray]:
        """What is asked of the tensors; `values` become what the next stretch reads."""
        if self.opened is None:
            made = [name for name in self.leaves if name not in values]
            asked = [*made, *self.graph.outputs]
            self.opened = piece(self.graph, self.graph.nodes, values, asked, self.graph.weights)
        found: Tensors = {}
        if self.opened.outputs:
            try:
                (found,) = self.opened.run([values])
            except ORT_ERRORS as error:
                shapes = {name: value.shape for name, value in values.items()}
                raise DataError(
                    f"ONNX Runtime failed on a batch of {shapes}: {first_line(error)}"
                ) from error
        passed = {name: found[name] if name in found else values[name] for name in self.leaves}
        values.clear()
        values |= passed
        return (found[name] for name in self.graph.outputs)


def _stretches(graph: Graph, tensors: Sequence[str]) -> Iterator[_Stretch]:
    """Graphs to run one after the other.

    The runtime takes the square of a graph's size to open it: deep ones are looked at in parts.
    """
    wanted = dict.fromkeys(tensors)
    products = product_inputs(graph, wanted)
    averaged = {name: rank for name, rank in mean_inputs(graph).items() if name in wanted}
    parts = [Segment(graph.nodes, graph.inputs, ())] if tensors else []
    if len(tensors) > DEEP:
        parts = cut_evenly(graph, wanted, max(EACH, len(tensors) // MOST))
    for index, part in enumerate(parts):
        made = [name for node in part.nodes for name in node.output]
        own = [name for name in (*([] if index else graph.inputs), *made) if name in wanted]
        lengths = {name: products[name] for name in own if name in products}
        ranks = {name: averaged[name] for name in own if name in averaged}
        bare = replace(graph, nodes=part.nodes)
        yield _Stretch(augment(bare, own, lengths, ranks), own, lengths, ranks, part.leaves)


def product_inputs(graph: Graph, tensors: Collection[str]) -> dict[str, int]:
    """Inputs of matrix products with a constant weight, and how many channels each has."""
    found: dict[str, int] = {}
    for node in graph.nodes:
        if node.op_type in PRODUCTS and node.input[0] in tensors:
            weight = graph.weights.get(node.input[1])
            if weight is not None and weight.ndim == 2 and not attribute(node, "transA", 0):
                found[node.input[0]] = weight.shape[1 if attribute(node, "transB", 0) else 0]
    return found


def augment(
    graph: Graph,
    tensors: Sequence[str],
    products: Mapping[str, int],
    averaged: Mapping[str, int] = MappingProxyType({}),
) -> Graph:
    """The graph whose outputs are, per tensor: minimum, maximum, a strided sample.

    Behind them, for each input of a matrix product, the extremes of each of its channels; then the
    means of the channels of the tensors in `averaged`, which have so many axes.
    """
    nodes: list[NodeProto] = list(graph.nodes)
    outputs: list[ValueInfoProto] = []
    constants = dict(SAMPLING)
    for index, name in enumerate(tensors):
        stem = f"lpot/{index}"
        nodes += _reductions(stem, name)
        outputs += [
            helper.make_tensor_value_info(f"{stem}/{part}", TensorProto.FLOAT, None)
            for part in ("min", "max", "sample")
        ]
    for index, (name, width) in enumerate(products.items()):
        stem = f"lpot/channels/{index}"
        constants[f"{stem}/rows"] = np.array([-1, width], np.int64)
        nodes += _by_channel(stem, name, graph.opset)
        outputs += [
            helper.make_tensor_value_info(f"{stem}/{part}", TensorProto.FLOAT, None)
            for part in ("low", "high")
        ]
    for index, (name, rank) in enumerate(averaged.items()):
        output = f"lpot/means/{index}"
        axes = np.array([axis for axis in range(rank) if axis != 1], np.int64)
        constants[f"{output}/axes"] = axes
        nodes.append(_reduce("ReduceMean", name, output, f"{output}/axes", axes, graph.opset))
        outputs.append(helper.make_tensor_value_info(output, TensorProto.FLOAT, None))
    header = type(graph.header)()
    header.CopyFrom(graph.header)
    del header.graph.output[:]
    header.graph.output.extend(outputs)
    return Graph(
        header,
        tuple(nodes),
        {**graph.weights, **constants},
        graph.opaque,
        graph.types,
        graph.shapes,
    )


def sampled(stem: str, name: str) -> list[NodeProto]:
    """`stem`/sample: every so many-th value of a tensor; needs the constants in SAMPLING."""

    def make(kind: str, inputs: list[str], output: str, **attributes: object) -> NodeProto:
        return helper.make_node(
            kind, inputs, [f"{stem}/{output}"], name=f"{stem}/{output}", **attributes
        )

    # The stride is one more than needed: a stride equal to a power of two would visit few channels.
    return [
        make("Reshape", [name, "lpot/flat"], "all"),
        make("Size", [name], "size"),
        make("Div", [f"{stem}/size", "lpot/sampled"], "whole"),
        make("Add", [f"{stem}/whole", "lpot/one"], "stride"),
        make(
            "Slice",
            [f"{stem}/all", "lpot/start", "lpot/end", "lpot/start", f"{stem}/stride"],
            "sample",
        ),
    ]


def _reductions(stem: str, name: str) -> list[NodeProto]:
    return [
        *sampled(stem, name),
        *(
            helper.make_node(
                kind, [f"{stem}/all"], [f"{stem}/{word}"], name=f"{stem}/{word}", keepdims=0
            )
            for kind, word in (("ReduceMin", "min"), ("ReduceMax", "max"))
        ),
    ]


def _by_channel(stem: str, name: str, opset: int) -> list[NodeProto]:
    def reduce(kind: str, output: str) -> NodeProto:
        first = np.zeros(1, np.int64)
        return _reduce(kind, f"{stem}/all", f"{stem}/{output}", "lpot/start", first, opset)

    rows = helper.make_node("Reshape", [name, f"{stem}/rows"], [f"{stem}/all"], name=f"{stem}/all")
    return [rows, reduce("ReduceMin", "low"), reduce("ReduceMax", "high")]


def _reduce(
    kind: str, source: str, output: str, name: str, axes: np.ndarray, opset: int
) -> NodeProto:
    # The axes moved from an attribute to an input, whose constant goes by `name`.
    inputs = [source, name] if opset >= 18 else [source]
    old = {} if opset >= 18 else {"axes": axes.tolist()}
    return helper.make_node(kind, inputs, [output], name=output, keepdims=0, **old)
