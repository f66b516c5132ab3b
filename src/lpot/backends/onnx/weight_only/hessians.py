"""What the inputs of products look like: the mean of x xᵀ, gathered a few tensors at a time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import NodeProto, TensorProto, helper

from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.run import feed, input_specs, session
from lpot.core.batch import Inputs

BUDGET = 1 << 29  # bytes of matrices that are gathered in one pass over the data


def chunks(widths: Sequence[tuple[str, int]], budget: int = BUDGET) -> Iterator[list[str]]:
    """Tensors that are gathered together, in the graph's order: (name, columns) of each."""
    chunk: list[str] = []
    size = 0
    for name, columns in widths:
        needed = 4 * columns * columns
        if chunk and size + needed > budget:
            yield chunk
            chunk, size = [], 0
        chunk.append(name)
        size += needed
    if chunk:
        yield chunk


@dataclass(frozen=True, eq=False)
class Seen:
    """Of one tensor: the mean of x xᵀ, and the mean step of 8 bits over a batch's own range."""

    hessian: np.ndarray
    step: float


def gather(
    graph: Graph,
    names: Sequence[str],
    widths: Sequence[int],
    batches: Sequence[Inputs],
    tick: Callable[[], None] = lambda: None,
) -> dict[str, Seen]:
    """What each tensor looks like over all rows of the batches, reduced inside the graph.

    `tick` is called behind each batch.
    """
    opened = session(_watching(graph, names, widths))
    specs = input_specs(graph)
    wanted = {value.name for value in opened.get_inputs()}
    sums = [np.zeros((columns, columns), np.float32) for columns in widths]
    rows, steps = np.zeros(len(names)), np.zeros(len(names))
    for batch in batches:
        fed = {name: value for name, value in feed(specs, batch).items() if name in wanted}
        found = opened.run(None, fed)
        for at in range(len(names)):
            product, shape, least, most = found[4 * at : 4 * at + 4]
            sums[at] += product
            rows[at] += int(shape[0])
            steps[at] += (max(float(most), 0.0) - min(float(least), 0.0)) / 255 / len(batches)
        del found
        tick()
    return {
        name: Seen(sums[at] / max(rows[at], 1.0), float(steps[at])) for at, name in enumerate(names)
    }


def _watching(graph: Graph, names: Sequence[str], widths: Sequence[int]) -> Graph:
    """The graph that gives x xᵀ and the number of rows; what these do not need is never run."""
    header = type(graph.header)()
    header.CopyFrom(graph.header)
    del header.graph.output[:]
    nodes: list[NodeProto] = list(graph.nodes)
    weights = dict(graph.weights)
    for at, (name, columns) in enumerate(zip(names, widths, strict=True)):
        stem = f"lpot/hessian/{at}"
        weights[f"{stem}/shape"] = np.array([-1, columns], np.int64)
        flat, turned = f"{stem}/flat", f"{stem}/turned"
        steps: tuple[tuple[str, list[str], str, dict[str, Any]], ...] = (
            ("Reshape", [name, f"{stem}/shape"], flat, {}),
            ("Transpose", [flat], turned, {"perm": [1, 0]}),
            ("MatMul", [turned, flat], stem, {}),
            ("Shape", [flat], f"{stem}/rows", {}),
            ("ReduceMin", [flat], f"{stem}/least", {"keepdims": 0}),
            ("ReduceMax", [flat], f"{stem}/most", {"keepdims": 0}),
        )
        nodes += [
            helper.make_node(kind, given, [made], name=f"{made}:{kind}", **settings)
            for kind, given, made, settings in steps
        ]
        header.graph.output.append(helper.make_tensor_value_info(stem, TensorProto.FLOAT, None))
        rows = helper.make_tensor_value_info(f"{stem}/rows", TensorProto.INT64, None)
        header.graph.output.append(rows)
        for end in ("least", "most"):
            value = helper.make_tensor_value_info(f"{stem}/{end}", TensorProto.FLOAT, None)
            header.graph.output.append(value)
    return Graph(header, tuple(nodes), weights, graph.opaque, graph.types, graph.shapes)
