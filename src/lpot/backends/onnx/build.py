"""From a plan to a graph with Q and DQ nodes, in milliseconds and without data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from onnx import NodeProto, helper

from lpot.backends.onnx.abilities import RECURRENT, TABLES
from lpot.backends.onnx.by_token import BY_TOKEN, in_one_range
from lpot.backends.onnx.graph import Graph, attribute
from lpot.backends.onnx.passes.correct_bias import Means, bias_shift
from lpot.backends.onnx.plan import Plan, output_of
from lpot.backends.onnx.recurrent import DOMAIN, WEIGHTS, lstm_node, lstm_weight
from lpot.core.errors import CalibrationError
from lpot.core.numerics.histogram import TensorStats
from lpot.core.numerics.rounding import SCALE_FLOOR, QuantParams, affine, quantize_weight
from lpot.core.ptq.bias_correction import corrected_scale
from lpot.core.recipe import OpConfig

WeightCache = dict[tuple[str, int | None, int], tuple[np.ndarray, np.ndarray]]


@dataclass(frozen=True, eq=False)
class Corrections:
    """What is done about rounded weights: `means` of the inputs correct biases, `spread` scales."""

    means: Means = field(default_factory=dict)
    spread: bool = False


def build_graph(
    graph: Graph,
    plan: Plan,
    stats: Mapping[str, TensorStats],
    cache: WeightCache,
    corrections: Corrections | None = None,
) -> Graph:
    return _Emitter(graph, plan, stats, cache, corrections or Corrections()).emit()


class _Emitter:
    """Writes one graph. Node protos of untouched ops are shared with the source graph."""

    def __init__(
        self,
        graph: Graph,
        plan: Plan,
        stats: Mapping[str, TensorStats],
        cache: WeightCache,
        corrections: Corrections,
    ) -> None:
        self.corrections = corrections
        self.graph = graph
        self.fresh = graph.fresh  # every name made up here goes through it
        self.plan = plan
        self.stats = stats
        self.cache = cache
        self.nodes: list[NodeProto] = []
        self.weights: dict[str, np.ndarray] = dict(graph.weights)
        self.params: dict[str, QuantParams] = {}
        self.low_made = self._tensors_made_low()
        self.inside = {inner for inner, _ in plan.silus.values()}
        self.shared: dict[str, tuple[str, str, str]] = {}  # tensor → dynamic quantization of it
        self.ranged: dict[str, tuple[str, str]] = {}  # tensor → its rows in one range, their scales

    def emit(self) -> Graph:
        for name in self.graph.inputs:
            self._quantize_after(name)
        for node in self.graph.nodes:
            if node.name in self.plan.dynamic:
                self._emit_dynamic(node, self.plan.dynamic[node.name])
            elif node.name in self.plan.silus:
                self._emit_silu(node)
            elif node.name in self.inside:
                continue
            elif node.name in self.plan.low and node.name not in self.plan.clamps:
                self._emit_low(node, self.plan.low[node.name])
            else:
                self._emit_float(node)
            for name in node.output:
                self._quantize_after(name)
        return self.graph.replaced(self.nodes, self.weights)

    # -- tensors -----------------------------------------------------------------------------

    def _tensors_made_low(self) -> set[str]:
        return {
            output_of(self.graph, node, self.plan.clamps)
            for node in self.graph.nodes
            if node.name in self.plan.low
        }

    def _renamed(self, name: str) -> bool:
        """A graph output made by an INT8 op: the dequantized tensor takes over its name."""
        return name in self.graph.outputs and name in self.low_made and name in self.plan.tensors

    def _raw(self, name: str) -> str:
        return self.fresh(f"{name}/raw") if self._renamed(name) else name

    def _dequantized(self, name: str) -> str:
        return name if self._renamed(name) else self.fresh(f"{name}/dequantized")

    def _reader(self, name: str, low: bool) -> str:
        """What an op reads for a tensor: floats stay floats unless an INT8 op made them."""
        if name in self.plan.tensors and (low or name in self.low_made):
            return self._dequantized(name)
        return name

    def _quantize_after(self, name: str) -> None:
        if name not in self.plan.tensors:
            return
        params = self._activation(name)
        scale, zero = self.fresh(f"{name}/scale"), self.fresh(f"{name}/zero_point")
        self.weights[scale] = np.array(params.scale, np.float32)
        self.weights[zero] = np.array(params.zero_point, np.uint8)
        quantized = self.fresh(f"{name}/quantized")
        self._add("QuantizeLinear", [self._raw(name), scale, zero], quantized)
        self._add("DequantizeLinear", [quantized, scale, zero], self._dequantized(name))

    def _activation(self, name: str) -> QuantParams:
        root = self.plan.roots.get(name, name)
        if root not in self.params:
            stats = self.stats.get(root)
            if stats is None:
                raise CalibrationError(f"tensor {root!r} was not seen during calibration")
            lo, hi = stats.range(self.plan.tensors.get(root, self.plan.tensors[name]))
            self.params[root] = affine(lo, hi)
        return self.params[root]

    # -- nodes -------------------------------------------------------------------------------

    def _add(self, kind: str, inputs: list[str], output: str, **attributes: object) -> None:
        self.nodes.append(
            helper.make_node(kind, inputs, [output], name=f"{output}:{kind}", **attributes)
        )

    def _emit_float(self, node: NodeProto) -> None:
        swallowed = node.name in self.plan.clamps
        inputs = [name if swallowed else self._reader(name, low=False) for name in node.input]
        outputs = [self._raw(name) for name in node.output]
        self._append(node, inputs, outputs)

    def _append(self, node: NodeProto, inputs: list[str], outputs: list[str]) -> None:
        if list(node.input) == inputs and list(node.output) == outputs:
            self.nodes.append(node)
            return
        twin = NodeProto()
        twin.CopyFrom(node)
        twin.input[:] = inputs
        twin.output[:] = outputs
        self.nodes.append(twin)

    def _emit_low(self, node: NodeProto, config: OpConfig) -> None:
        inputs = [self._reader(name, low=not self.graph.is_constant(name)) for name in node.input]
        if config.weight is not None:
            inputs[1:] = self._emit_weight(node, config)
        self._append(node, inputs, [self._raw(name) for name in node.output])

    def _emit_silu(self, node: NodeProto) -> None:
        """As one op on floats."""
        source = self._reader(self.plan.silus[node.name][1], node.name in self.plan.low)
        attributes = {"name": node.name, "domain": DOMAIN, "alpha": 1.0}
        output = self._raw(node.output[0])
        self.nodes.append(helper.make_node("QuickGelu", [source], [output], **attributes))

    def _emit_weight(self, node: NodeProto, config: OpConfig) -> list[str]:
        """DequantizeLinear on the weight, and on the bias in int32; the names they go by."""
        activation = float(self._activation(node.input[0]).scale)
        bias = self._bias(node)
        # The int32 bias is bias / (scale of input * scale of weight): it must not overflow.
        least = None if bias is None else np.abs(bias) / (activation * 2.0**30)
        stem, axis, scale = self._store_weight(node, config, least)
        weight = self.fresh(f"{node.name}/weight")
        self._add("DequantizeLinear", self._parts(stem), weight, **_axis(axis))
        if bias is None:
            return [weight]
        bias = bias - self._shift(node, stem, axis, scale)
        return [
            weight,
            self._emit_bias(node, bias, activation * scale.astype(np.float64)),
        ]

    def _shift(self, node: NodeProto, stem: str, axis: int | None, scale: np.ndarray) -> Any:
        """What rounding the weight adds to the mean of each output, where that is corrected."""
        mean = self.corrections.means.get(node.input[0])
        if mean is None:
            return 0.0
        data = self.weights[self._parts(stem)[0]]
        exact = self.graph.weights[node.input[1]]
        wide = [-1 if index == axis else 1 for index in range(data.ndim)]
        spread = scale if axis is None else scale.reshape(wide)
        return bias_shift(node, data * spread - exact, mean)

    def _store_weight(
        self, node: NodeProto, config: OpConfig, least: np.ndarray | None = None
    ) -> tuple[str, int | None, np.ndarray]:
        """Quantized once for all recipes and for all ops that share it (tied weights)."""
        assert config.weight is not None
        name, bits = node.input[1], config.weight.bits or 8
        axis = weight_axis(self.graph, node) if config.weight.granularity == "per_channel" else None
        key = (name, axis, bits)
        if key not in self.cache:
            data, params = quantize_weight(self.graph.weights[name], axis, bits=bits)
            scale = np.asarray(params.scale, np.float32)
            if self.corrections.spread:
                scale = corrected_scale(self.graph.weights[name], data, scale, axis)
            self.cache[key] = data, scale
        data, scale = self.cache[key]
        stem = f"{name}/{'tensor' if axis is None else f'axis{axis}'}/{bits}"
        if least is not None:
            floor = least if axis is not None else least.max(initial=0.0)
            if np.any(scale < floor):
                data, params = quantize_weight(
                    self.graph.weights[name], axis, bits=bits, floor=np.maximum(floor, SCALE_FLOOR)
                )
                scale, stem = np.asarray(params.scale, np.float32), f"{stem}/{node.name}"
        self._store(stem, data, scale)
        return stem, axis, scale

    def _parts(self, stem: str) -> list[str]:
        """Where `_store` puts the integers, the scale and the zero point of a constant."""
        return [self.fresh(f"{stem}/{part}") for part in ("data", "scale", "zero")]

    def _store(self, stem: str, data: np.ndarray, scale: np.ndarray) -> None:
        zero = np.zeros(scale.shape, data.dtype)
        self.weights |= zip(self._parts(stem), (data, scale, zero), strict=True)

    def _bias(self, node: NodeProto) -> np.ndarray | None:
        if node.op_type == "MatMul" or len(node.input) < 3 or not node.input[2]:
            return None
        return self.graph.weights[node.input[2]].astype(np.float64).reshape(-1)

    def _emit_bias(self, node: NodeProto, bias: np.ndarray, scale: np.ndarray) -> str:
        stem = self.fresh(f"{node.name}/bias")
        limit = 2.0**31 - 1
        whole = np.clip(np.rint(bias / scale), -limit, limit).astype(np.int32)
        self._store(stem, whole, scale.astype(np.float32))
        self._add("DequantizeLinear", self._parts(stem), stem, **_axis(0 if scale.ndim else None))
        return stem

    # -- dynamic -----------------------------------------------------------------------------

    def _emit_dynamic(self, node: NodeProto, config: OpConfig) -> None:
        """MatMulInteger on an input quantized while running; the runtime fuses the five ops."""
        if node.op_type in TABLES:
            self._emit_table(node)
            return
        if node.op_type in RECURRENT:
            self._emit_recurrent(node, config)
            return
        source, rows = self._reader(node.input[0], low=False), ""
        if config.activation.granularity == BY_TOKEN:
            source, rows = self._in_one_range(source)
        quantized, scale, zero = self._dynamic_input(source)
        stem, _, _ = self._store_weight(node, config)
        data, weight_scale, weight_zero = self._parts(stem)
        if node.op_type == "Gemm" and attribute(node, "transB", 0):
            turned = self.fresh(f"{stem}/transposed")
            self.weights[turned] = self._transposed(data)
            data = turned
        base = node.name
        output = self._raw(node.output[0])
        bias = (
            node.input[2]
            if node.op_type == "Gemm" and len(node.input) > 2 and node.input[2]
            else ""
        )
        product = self.fresh(f"{base}/product") if bias else output
        scaled = self.fresh(f"{base}/scaled") if rows else product
        integer, floats = self.fresh(f"{base}/integer"), self.fresh(f"{base}/float")
        scales = self.fresh(f"{base}/both_scales")
        self._add("MatMulInteger", [quantized, data, zero, weight_zero], integer)
        self._add("Cast", [integer], floats, to=1)
        self._add("Mul", [scale, weight_scale], scales)
        self._add("Mul", [floats, scales], scaled)
        if rows:
            self._add("Mul", [scaled, rows], product)
        if bias:
            self._add("Add", [product, bias], output)

    def _emit_table(self, node: NodeProto) -> None:
        """Rows of integers and their scales are looked up, then multiplied."""
        name, ids = node.input[0], self._reader(node.input[1], low=False)
        key = (name, 0, 8)
        if key not in self.cache:
            data, params = quantize_weight(self.graph.weights[name], 0, bits=8)
            self.cache[key] = data, np.asarray(params.scale, np.float32)
        data, scale = self.cache[key]
        stored, scales, _ = self._parts(f"{name}/axis0/8")
        self.weights |= {stored: data, scales: scale.reshape(-1, *[1] * (data.ndim - 1))}
        words = ("rows", "float", "row_scales")
        rows, floats, factors = (self.fresh(f"{node.name}/{word}") for word in words)
        self._add("Gather", [stored, ids], rows)
        self._add("Cast", [rows], floats, to=1)
        self._add("Gather", [scales, ids], factors)
        self._add("Mul", [floats, factors], self._raw(node.output[0]))

    def _emit_recurrent(self, node: NodeProto, config: OpConfig) -> None:
        assert config.weight is not None
        each, bits = config.weight.granularity == "per_channel", config.weight.bits or 8
        inputs = [self._reader(name, low=False) for name in node.input]
        inputs += [""] * (8 - len(inputs))
        for place in WEIGHTS:
            name = node.input[place]
            key = (name, 0 if each else None, bits)
            if key not in self.cache:
                self.cache[key] = lstm_weight(self.graph.weights[name], each, bits)
            stem = f"{name}/{'gates' if each else 'tensor'}/{bits}"
            self._store(stem, *self.cache[key])
            inputs[place], *scales = self._parts(stem)
            inputs += scales
        self.nodes.append(lstm_node(node, inputs, [self._raw(name) for name in node.output]))

    def _transposed(self, name: str) -> np.ndarray:
        key = (name, -1, 0)
        if key not in self.cache:
            self.cache[key] = np.ascontiguousarray(self.weights[name].T), np.empty(0)
        return self.cache[key][0]

    def _in_one_range(self, source: str) -> tuple[str, str]:
        if source not in self.ranged:
            nodes, constants, *found = in_one_range(source, self.graph.opset, self.fresh)
            self.nodes += nodes
            self.weights |= constants
            self.ranged[source] = found[0], found[1]
        return self.ranged[source]

    def _dynamic_input(self, source: str) -> tuple[str, str, str]:
        if source not in self.shared:
            words = ("dynamic", "dynamic_scale", "dynamic_zero")
            data, scale, zero = (self.fresh(f"{source}/{word}") for word in words)
            outputs, name = [data, scale, zero], f"{data}:quantize"
            self.nodes.append(
                helper.make_node("DynamicQuantizeLinear", [source], outputs, name=name)
            )
            self.shared[source] = data, scale, zero
        return self.shared[source]


def _axis(axis: int | None) -> dict[str, object]:
    return {} if axis is None else {"axis": axis}


def weight_axis(graph: Graph, node: NodeProto) -> int:
    """The axis of a weight that runs over the op's output channels."""
    if node.op_type == "Conv":
        return 0
    if node.op_type == "Gemm":
        return 0 if attribute(node, "transB", 0) else 1
    return graph.weights[node.input[1]].ndim - 1
