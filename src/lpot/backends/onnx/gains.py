"""What each op saves in INT8 on this machine: its kernels timed alone, once for each shape."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from onnx import AttributeProto, NodeProto, TensorProto, ValueInfoProto, helper

from lpot.backends.onnx.abilities import COMPUTE, Kernels
from lpot.backends.onnx.build import build_graph, weight_axis
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.model import OnnxModel
from lpot.backends.onnx.plan import plan
from lpot.backends.onnx.run import run_session, session
from lpot.core.backend import Observations
from lpot.core.measure import latency
from lpot.core.ptq.gains import identity, kernel_times
from lpot.core.recipe import OpConfig, OpKey, Recipe

SECONDS = 0.05  # for one op in one precision


def gains(
    model: OnnxModel, recipe: Recipe, observations: Observations, versions: Mapping[str, str]
) -> dict[OpKey, float]:
    """Seconds a batch that each compute op saves: static ones between INT8 neighbours."""
    if not observations.probe:
        return {}
    nodes = {node.name: node for node in model.prepared.nodes}
    keys = [
        key for key in recipe.low_ops if key.name in nodes and nodes[key.name].op_type in COMPUTE
    ]
    shapes = shapes_of(model, observations, [nodes[key.name].input[0] for key in keys])
    ops = {
        key: _Lone(model.prepared, node, shapes[node.input[0]], recipe.ops[key])
        for key in keys
        for node in [nodes[key.name]]
    }
    return {key: slow - quick for key, (slow, quick) in kernel_times(ops, versions).items()}


def shapes_of(
    model: OnnxModel, observations: Observations, names: list[str]
) -> dict[str, tuple[int, ...]]:
    """The sizes that tensors have on the first batch of the probe."""
    wanted = list(dict.fromkeys(names))
    graph = model.prepared
    header = type(graph.header)()
    header.CopyFrom(graph.header)
    del header.graph.output[:]
    nodes = list(graph.nodes)
    for index, name in enumerate(wanted):
        output = f"lpot/shape/{index}"
        nodes.append(helper.make_node("Shape", [name], [output], name=output))
        header.graph.output.append(helper.make_tensor_value_info(output, TensorProto.INT64, None))
    watched = Graph(header, tuple(nodes), graph.weights, graph.opaque, graph.types, graph.shapes)
    sizes = run_session(session(watched), model.inputs, observations.probe[0])
    return {name: tuple(map(int, size)) for name, size in zip(wanted, sizes, strict=True)}


@dataclass(frozen=True, eq=False)
class _Lone:
    """One op of a graph by itself, with an input of its own."""

    graph: Graph
    node: NodeProto
    shape: tuple[int, ...]
    config: OpConfig

    @property
    def name(self) -> str:
        attributes = sorted(map(_text, self.node.attribute))
        sizes = [self.graph.weights[name].shape for name in self.node.input[1:] if name]
        return identity(self.node.op_type, self.shape, sizes, attributes)

    @property
    def parts(self) -> tuple[str, str]:
        return "fp32", "dynamic" if self.config.mode == "dynamic" else "int8"

    def seconds(self, part: str) -> float:
        forms = {
            "fp32": self.in_float,
            "int8": self.in_int8,
            "dynamic": self.in_dynamic_int8,
        }
        return _time(self.shape, forms[part]())

    def in_float(self) -> Graph:
        names = [name for name in self.node.input[1:] if name]
        weights = {name: self.graph.weights[name] for name in names}
        return self._alone([self._op(["x", *names])], weights, TensorProto.FLOAT, TensorProto.FLOAT)

    def in_int8(self) -> Graph:
        """INT8 comes in; it goes out too, unless the kernel gives floats."""
        weight = self.graph.weights[self.node.input[1]]
        axis = weight_axis(self.graph, self.node)
        scales = np.full(weight.shape[axis], 0.01, np.float32)
        weights: dict[str, Any] = {
            "scale": np.float32(0.05),
            "zero": np.uint8(128),
            "w": np.random.default_rng(0).integers(-63, 64, weight.shape, np.int8),
            "w/scale": scales,
            "w/zero": np.zeros(scales.shape, np.int8),
        }
        stored = ["w", "w/scale", "w/zero"]
        nodes = [
            helper.make_node("DequantizeLinear", ["x", "scale", "zero"], ["x/float"]),
            helper.make_node("DequantizeLinear", stored, ["w/float"], axis=axis),
        ]
        inputs = ["x/float", "w/float"]
        if len(self.node.input) > 2 and self.node.input[2]:
            weights |= {
                "b": np.zeros(scales.shape, np.int32),
                "b/scale": scales * np.float32(0.05),
                "b/zero": np.zeros(scales.shape, np.int32),
            }
            parts = ["b", "b/scale", "b/zero"]
            nodes.append(helper.make_node("DequantizeLinear", parts, ["b/float"], axis=0))
            inputs.append("b/float")
        if self.node.op_type in Kernels().float_output:
            nodes.append(self._op(inputs))
            return self._alone(nodes, weights, TensorProto.UINT8, TensorProto.FLOAT)
        nodes.append(self._op(inputs, "y/float"))
        nodes.append(helper.make_node("QuantizeLinear", ["y/float", "scale", "zero"], ["y"]))
        return self._alone(nodes, weights, TensorProto.UINT8, TensorProto.UINT8)

    def in_dynamic_int8(self) -> Graph:
        """Floats come in and go out, with what the builder writes between them."""
        graph = self.in_float()
        (node,) = graph.nodes
        recipe = Recipe({OpKey(node.name, node.op_type): self.config})
        return build_graph(graph, plan(graph, recipe), {}, {})

    def _op(self, inputs: list[str], output: str = "y") -> NodeProto:
        twin = NodeProto()
        twin.CopyFrom(self.node)
        twin.input[:], twin.output[:] = inputs, [output]
        return twin

    def _alone(
        self, nodes: list[NodeProto], weights: dict[str, Any], given: int, made: int
    ) -> Graph:
        header = type(self.graph.header)()
        header.CopyFrom(self.graph.header)
        _only(header.graph.input, helper.make_tensor_value_info("x", given, self.shape))
        _only(header.graph.output, helper.make_tensor_value_info("y", made, None))
        for index, node in enumerate(nodes):
            node.name = f"{node.op_type}/{index}"
        return Graph(header, tuple(nodes), {k: np.asarray(v) for k, v in weights.items()})


def _only(values: list[ValueInfoProto], value: ValueInfoProto) -> None:
    del values[:]
    values.append(value)


def _text(attribute: AttributeProto) -> str:
    return f"{attribute.name}={helper.get_attribute_value(attribute)}"


def _time(shape: tuple[int, ...], graph: Graph) -> float:
    low = graph.header.graph.input[0].type.tensor_type.elem_type == TensorProto.UINT8
    rng = np.random.default_rng(0)
    data = (
        rng.integers(0, 256, shape, np.uint8)
        if low
        else rng.standard_normal(shape).astype(np.float32)
    )
    running = session(graph)
    return latency(lambda: running.run(None, {"x": data}), warmup=2, seconds=SECONDS).median
