"""Turn ConvTranspose into a Conv with more channels, DepthToSpace and a crop.

The runtime has no INT8 kernel for ConvTranspose. With stride s each output pixel of phase
(i mod s) is a plain convolution of the input: all phases together are one Conv with s*s times the
channels, whose channels are then laid out in space. The arithmetic is the same.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
from onnx import NodeProto, helper

from lpot.backends.onnx.graph import DERIVED, Graph, attribute, ints

END = np.iinfo(np.int64).max


def spread_transposed_conv(graph: Graph) -> Graph:
    weights = dict(graph.weights)
    nodes: list[NodeProto] = []
    for node in graph.nodes:
        if node.op_type == "ConvTranspose" and _fits(graph, node):
            nodes += _spread(graph, node, weights)
        else:
            nodes.append(node)
    return graph if len(nodes) == len(graph.nodes) else graph.replaced(nodes, weights)


def _fits(graph: Graph, node: NodeProto) -> bool:
    if not all(graph.is_constant(name) for name in node.input[1:] if name):
        return False
    if (
        graph.weights[node.input[1]].ndim != 4
        or attribute(node, "auto_pad", b"NOTSET") != b"NOTSET"
    ):
        return False
    if int(attribute(node, "group", 1) or 1) != 1 or attribute(node, "output_shape") is not None:
        return False
    stride = ints(node, "strides") or [1, 1]
    spare = [cut for _, cut in _crops(graph, node, stride[0])] if stride[0] == stride[1] else [-1]
    return max(ints(node, "dilations") or [1]) == 1 and stride[0] > 1 and min(spare) >= 0


def _crops(graph: Graph, node: NodeProto, stride: int) -> list[tuple[int, int]]:
    """For each spatial axis: what to cut at the beginning and at the end."""
    pads = ints(node, "pads") or [0, 0, 0, 0]
    extra = ints(node, "output_padding") or [0, 0]
    sizes = graph.weights[node.input[1]].shape[2:]
    return [
        (pads[axis], -size % stride + pads[axis + 2] - extra[axis])
        for axis, size in enumerate(sizes)
    ]


def _spread(graph: Graph, node: NodeProto, weights: dict[str, np.ndarray]) -> Iterator[NodeProto]:
    stride = ints(node, "strides")[0]
    weight, name, output = graph.weights[node.input[1]], node.name, node.output[0]
    inputs, outputs, height, width = weight.shape
    taps = (-(-height // stride), -(-width // stride))
    grown = np.zeros((inputs, outputs, taps[0] * stride, taps[1] * stride), np.float32)
    grown[:, :, :height, :width] = weight
    # (in, out, tap, phase, tap, phase) → (out, phase, phase, in, tap, tap), taps turned around
    phases = grown.reshape(inputs, outputs, taps[0], stride, taps[1], stride)
    kernel = phases[:, :, ::-1, :, ::-1, :].transpose(1, 3, 5, 0, 2, 4)
    names = [node.input[0], graph.fresh(f"{name}/spread_weight")]
    weights[names[1]] = np.ascontiguousarray(kernel.reshape(-1, inputs, *taps))
    if len(node.input) > 2 and node.input[2]:
        names.append(graph.fresh(f"{name}/spread_bias"))
        weights[names[2]] = np.repeat(graph.weights[node.input[2]], stride * stride)
    pads = [taps[0] - 1, taps[1] - 1] * 2
    wide, whole = graph.fresh(f"{output}/phases"), graph.fresh(f"{output}/whole")
    crops = _crops(graph, node, stride)
    cropped = any(begin or end for begin, end in crops)
    yield helper.make_node("Conv", names, [wide], name=name, kernel_shape=list(taps), pads=pads)
    yield _derived(
        "DepthToSpace", [wide], whole if cropped else output, blocksize=stride, mode="CRD"
    )
    if cropped:
        ends = [graph.fresh(f"{output}/{part}") for part in ("begins", "ends", "axes")]
        weights[ends[0]] = np.array([begin for begin, _ in crops])
        weights[ends[1]] = np.array([-end if end else END for _, end in crops])
        weights[ends[2]] = np.array([2, 3])
        yield _derived("Slice", [whole, *ends], output)


def _derived(kind: str, inputs: list[str], output: str, **attributes: object) -> NodeProto:
    return helper.make_node(
        kind, inputs, [output], name=f"{output}:{kind}", doc_string=DERIVED, **attributes
    )
