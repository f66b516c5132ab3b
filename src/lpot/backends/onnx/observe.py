"""One pass over the calibration data: ranges and histograms of every tensor, in bounded memory.

The reductions run inside the graph: what leaves the runtime per tensor and batch is its minimum,
its maximum and at most 64 Ki sampled values, whatever its size.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType

import numpy as np
from onnx import NodeProto, TensorProto, ValueInfoProto, helper

from lpot.backends.onnx.graph import Graph, attribute
from lpot.backends.onnx.model import OnnxModel
from lpot.backends.onnx.passes.correct_bias import mean_inputs
from lpot.backends.onnx.passes.smooth_channels import PRODUCTS
from lpot.backends.onnx.run import run_session, session
from lpot.core.batch import Inputs
from lpot.core.inputs import by_name
from lpot.core.numerics.histogram import TensorStats
from lpot.core.numerics.observations import ChannelStats, Observations, Snapshots, copied

SAMPLED = 65536


def observe(
    model: OnnxModel, tensors: Sequence[str], batches: Iterable[Inputs], sizes: Sequence[int]
) -> dict[int, Observations]:
    """A snapshot for each size; size 0 stands for everything the loader gives."""
    products = product_inputs(model.prepared, tensors)
    averaged = {name: rank for name, rank in mean_inputs(model.prepared).items() if name in tensors}
    graph = augment(model.prepared, tensors, products, averaged) if tensors else None
    watched = session(graph) if graph is not None else None
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
        if watched is not None:
            outputs = run_session(watched, model.inputs, feeds)
            _update(stats, tensors, outputs)
            rest = iter(outputs[3 * len(tensors) :])
            for name in products:
                channels.widen(name, next(rest), next(rest))
            for name in averaged:
                channels.average(name, next(rest), count / (found.seen + count))
        found.add(feeds, count)
        if found.is_complete:
            break
    return found.all()


def _count(feeds: Mapping[str, np.ndarray]) -> int:
    return next((array.shape[0] for array in feeds.values() if array.ndim), 1)


def _update(
    stats: Mapping[str, TensorStats], tensors: Sequence[str], outputs: list[np.ndarray]
) -> None:
    for index, name in enumerate(tensors):
        low, high, values = outputs[3 * index : 3 * index + 3]
        if values.size:
            stats[name].update(values, float(low), float(high))


def product_inputs(graph: Graph, tensors: Sequence[str]) -> dict[str, int]:
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
    constants: dict[str, np.ndarray] = {
        "lpot/sampled": np.array(SAMPLED, np.int64),
        "lpot/one": np.array([1], np.int64),
        "lpot/flat": np.array([-1], np.int64),
        "lpot/start": np.array([0], np.int64),
        "lpot/end": np.array([np.iinfo(np.int64).max], np.int64),
    }
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


def _reductions(stem: str, name: str) -> list[NodeProto]:
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
        make("ReduceMin", [f"{stem}/all"], "min", keepdims=0),
        make("ReduceMax", [f"{stem}/all"], "max", keepdims=0),
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
