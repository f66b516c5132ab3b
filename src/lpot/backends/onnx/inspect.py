"""What each op of a model can be, and why not more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

import numpy as np
from onnx import NodeProto, TensorProto

from lpot.backends.onnx.abilities import (
    COMPUTE,
    FOLLOWERS,
    NEVER,
    RECURRENT,
    TABLES,
    Kernels,
    bits_for,
    dynamic_choices,
    follower_choices,
    static_choices,
    table_choices,
)
from lpot.backends.onnx.bodies import PLACES
from lpot.backends.onnx.graph import Graph, attribute, has_subgraph
from lpot.backends.onnx.model import OnnxModel
from lpot.backends.onnx.plan import plan
from lpot.backends.onnx.recurrent import why_not_lstm
from lpot.core.backend import Approach, Target
from lpot.core.recipe import FP32, OpConfig, OpKey, Recipe
from lpot.core.space import Capability, OpInfo

QUANTIZED = ("QuantizeLinear", "DequantizeLinear", "DynamicQuantizeLinear")
PLUMBING = ("Shape", "Constant", "ConstantOfShape", "Size", "Range", "Identity")
STANDARD = ("", "ai.onnx")
LAYOUT = "com.microsoft.nchwc"
LARGE = 65536  # entries of a table
LONELY = "INT8 pays off only between INT8 ops, which it does not have on both sides"


def key_of(node: NodeProto) -> OpKey:
    return OpKey(node.name, node.op_type)


def inspect(model: OnnxModel, approach: Approach, target: Target) -> Capability:
    graph = model.prepared

    def bits(kind: str) -> int:
        return bits_for(model.backend.worst_error(kind), target)

    present = {node.name: node for node in graph.nodes}
    ops: dict[OpKey, OpInfo] = {}
    for given in model.graph.nodes:  # the model as the user knows it, before folding
        key = key_of(given)
        if given.op_type in PLUMBING:
            continue
        node = present.get(given.name)
        if node is None:
            ops[key] = OpInfo(key, reason="folded into its neighbour before quantization")
        else:
            info = _info(graph, node, key, approach, bits(node.op_type))
            ops[key] = replace(info, aliases=_aliases(given))
    for key in _never_low(graph, ops, model.backend.kernels):
        ops[key] = OpInfo(key, reason=LONELY, aliases=ops[key].aliases)
    for body in model.bodies:
        for key, info in inspect(body.model, approach, target).ops.items():
            known = (*info.aliases, key.name.removeprefix(body.prefix))
            ops[key] = replace(info, aliases=known)
    notes = []
    seven = [kind for kind in ("Conv", "MatMul") if bits(kind) == 7]
    if seven and any(info.can_be_low for info in ops.values()):
        whose = "this CPU's" if target == "this" else f"target {target}'s"
        notes.append(
            f"reduced range: {whose} {' and '.join(seven)} kernels overflow with 8-bit weights; "
            "7 bits are used"
        )
    return Capability(ops, tuple(notes))


def _never_low(graph: Graph, ops: Mapping[OpKey, OpInfo], kernels: Kernels) -> list[OpKey]:
    """Ops that drop out of the plan even with all others in INT8: no recipe has them low."""
    able = {key: info.choices[0] for key, info in ops.items() if info.can_be_low}
    drawn = plan(graph, Recipe(able), kernels=kernels)
    return [key for key in able if drawn.precision(key) == "fp32"]


def _aliases(node: NodeProto) -> tuple[str, ...]:
    """The op's names in LPOT 1.x, which split Gemm into MatMul and Add, and in files it wrote."""
    base = (f"{node.name}_MatMul",) if node.op_type == "Gemm" else ()
    return (*base, f"{node.name}_quant", *(f"{name}_quant" for name in base))


def _info(graph: Graph, node: NodeProto, key: OpKey, approach: Approach, bits: int) -> OpInfo:
    reason = why_not(graph, node)
    if reason:
        return OpInfo(key, reason=reason)
    if node.op_type in TABLES:
        return OpInfo(key, table_choices())
    if node.op_type in RECURRENT:
        return OpInfo(key, (*dynamic_choices(True, bits), FP32))
    if node.op_type in FOLLOWERS:
        if approach == "dynamic":
            return OpInfo(key, reason="dynamic quantization is for MatMul and Gemm only")
        return OpInfo(key, follower_choices(), follower=True)
    choices = tuple(_compute_choices(graph, node, approach, bits))
    if not choices:
        return OpInfo(
            key, reason=f"dynamic INT8 {node.op_type} is slower than FP32: use static quantization"
        )
    return OpInfo(key, (*choices, FP32))


def _compute_choices(
    graph: Graph, node: NodeProto, approach: Approach, bits: int
) -> Iterator[OpConfig]:
    kind = node.op_type
    if approach != "dynamic":
        yield from static_choices(_per_channel(graph, node), bits)
    if approach != "static" and kind in ("MatMul", "Gemm"):
        # MatMulInteger takes one zero point per column for a plain matrix only.
        yield from dynamic_choices(graph.weights[node.input[1]].ndim == 2, bits)


def _per_channel(graph: Graph, node: NodeProto) -> bool:
    if graph.opset < 13:  # DequantizeLinear has no axis before
        return False
    if node.op_type == "MatMul":
        return graph.weights[node.input[1]].ndim == 2
    return True


def why_not(graph: Graph, node: NodeProto) -> str:
    """The reason an op must stay in FP32; empty when it need not."""
    if has_subgraph(node):
        if node.op_type in PLACES:
            return "runs other ops, which are listed separately"
        return "contains a subgraph, which is not quantized"
    if node.domain == LAYOUT:
        return (
            "already laid out for one kind of CPU by ONNX Runtime's optimiser: "
            "give the model that this file was made from"
        )
    if node.domain not in STANDARD:
        return f"op of the domain {node.domain!r}, unknown to the quantizer"
    kind = node.op_type
    if kind in NEVER:
        return NEVER[kind]
    if kind in QUANTIZED or kind.startswith("QLinear") or kind.endswith("Integer"):
        return "already quantized"
    if kind in TABLES:
        return _table_reason(graph, node)
    if kind in RECURRENT:
        return why_not_lstm(graph, node)
    if kind not in COMPUTE and kind not in FOLLOWERS:
        return "no INT8 kernel for it is faster than FP32"
    if _touches_quantized(graph, node):
        return "already quantized"
    if not _is_float32(graph, node):
        return "not a float32 op"
    return _compute_reason(graph, node) if kind in COMPUTE else _follower_reason(graph, node)


def _table_reason(graph: Graph, node: NodeProto) -> str:
    table = graph.weights.get(node.input[0])
    if table is None or table.dtype != np.float32 or table.ndim < 2 or attribute(node, "axis", 0):
        return "does not look up rows of a constant float32 table"
    if table.size < LARGE:
        return "its table is small: INT8 does not pay off"
    if any(user.op_type not in TABLES for user in graph.consumers[node.input[0]]):
        return "its table is read by other ops, too, and stays in FP32"
    return "" if np.isfinite(table).all() else f"table {node.input[0]!r} holds NaN or Inf"


def _compute_reason(graph: Graph, node: NodeProto) -> str:
    if node.op_type == "ConvTranspose":  # those that can be written as a Conv are one by now
        return "its INT8 kernel needs two dimensions, one group and equal strides above 1"
    if graph.is_constant(node.input[0]):
        return "its input is a constant"
    if len(node.input) < 2 or not graph.is_constant(node.input[1]):
        if node.op_type == "MatMul":
            return "both sides are activations: INT8 attention products are slower than FP32"
        return "its weight is not a constant"
    weight = graph.weights[node.input[1]]
    users = graph.consumers[node.input[1]]
    if any(has_subgraph(user) and user.op_type not in PLACES for user in users):
        return "its weight is read inside a subgraph, too, and would be stored twice"
    if not np.isfinite(weight).all():
        return f"weight {node.input[1]!r} holds NaN or Inf"
    if weight.size == 0:
        return "its weight is empty"
    bias = node.input[2] if len(node.input) > 2 else ""
    if bias:
        if not graph.is_constant(bias):
            return "its bias is not a constant"
        if not np.isfinite(graph.weights[bias]).all():
            return f"bias {bias!r} holds NaN or Inf"
    if node.op_type == "MatMul" and weight.ndim < 2:
        return "its weight is a vector"
    if node.op_type == "Gemm":
        if attribute(node, "transA", 0):
            return "transA has no INT8 kernel"
        columns = weight.shape[0] if attribute(node, "transB", 0) else weight.shape[1]
        if bias and graph.weights[bias].shape != (columns,):
            return "its bias is not one number per column"
    if node.op_type == "Conv" and weight.ndim > 5:
        return "more than three spatial dimensions have no INT8 kernel"
    return ""


def _follower_reason(graph: Graph, node: NodeProto) -> str:
    kind = node.op_type
    active = [name for name in node.input if name and not graph.is_constant(name)]
    if not active:
        return "its inputs are constants"
    if kind in ("Add", "Mul") and len(active) < 2:
        return "one side is a constant: INT8 does not pay off"
    if kind == "Resize" and attribute(node, "mode", b"nearest") != b"nearest":
        return "only nearest-neighbour Resize keeps INT8 values"
    if kind == "MaxPool" and (len(node.output) > 1 or graph.opset < 12):
        return "MaxPool with indices, or before opset 12, has no INT8 kernel"
    if (
        kind == "MaxPool"
        and graph.shapes.get(node.input[0])
        and len(graph.shapes[node.input[0]]) > 5
    ):
        return "more than three spatial dimensions have no INT8 kernel"
    if kind == "Clip" and not all(graph.is_constant(name) for name in node.input[1:] if name):
        return "its bounds are not constants"
    return ""


def _touches_quantized(graph: Graph, node: NodeProto) -> bool:
    """Its weight is, or, without one, what it reads or who reads it.

    Files of which a part was quantized hand floats over to the rest of it, by DequantizeLinear.
    """
    if node.op_type in COMPUTE:
        weight = graph.producers.get(node.input[1]) if len(node.input) > 1 else None
        return weight is not None and weight.op_type in QUANTIZED
    neighbours = [graph.producers.get(name) for name in node.input]
    neighbours += [user for name in node.output for user in graph.consumers.get(name, ())]
    return any(item is not None and item.op_type in QUANTIZED for item in neighbours)


def _is_float32(graph: Graph, node: NodeProto) -> bool:
    names = (node.input[0], node.output[0]) if node.input else (node.output[0],)
    return all(graph.types.get(name, TensorProto.FLOAT) == TensorProto.FLOAT for name in names)
