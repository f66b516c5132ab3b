"""What each op of a model can be, and why not more."""

from __future__ import annotations

import numpy as np

from lpot.backends.mxnet.abilities import (
    COMPUTE,
    FOLLOWERS,
    NEVER,
    compute_choices,
    follower_choices,
    reduced,
)
from lpot.backends.mxnet.fusion import Fusion, Layer, is_quantized
from lpot.backends.mxnet.graph import Graph, Node
from lpot.backends.mxnet.model import MxnetModel
from lpot.backends.mxnet.protect import OWN
from lpot.core.backend import Approach, Target
from lpot.core.errors import ConfigError
from lpot.core.recipe import OpKey
from lpot.core.space import Capability, OpInfo

SIZE_NOTE = (
    "MXNet keeps the weights in FP32 on disk and quantizes them when the model is loaded: "
    "the INT8 model is faster, its file is no smaller"
)


def inspect(model: MxnetModel, approach: Approach, target: Target) -> Capability:
    if approach == "dynamic":
        raise ConfigError(
            "given 'dynamic', but MXNet has no dynamic quantization: its INT8 kernels need ranges "
            "from calibration data. Use post_training_static_quant",
            path="quantization.approach",
        )
    graph = Graph.of(model.network.symbol)
    ops: dict[OpKey, OpInfo] = {}
    for node in graph.ops:
        if node.name.startswith(OWN):
            continue
        key = OpKey(node.name, node.kind)
        ops.setdefault(key, _info(model, graph, node, key, target))
    low = {info.key.kind for info in ops.values() if info.can_be_low}
    notes = [SIZE_NOTE] if low else []
    seven = [kind for kind in COMPUTE if kind in low and reduced(kind, target)]
    if seven:
        whose = "this CPU's" if target == "this" else f"target {target}'s"
        notes.append(
            f"reduced range: {whose} {' and '.join(seven)} kernels overflow with 8 bits on both "
            "sides; 7 are used on one"
        )
    return Capability(ops, tuple(notes))


def _info(model: MxnetModel, graph: Graph, node: Node, key: OpKey, target: Target) -> OpInfo:
    fusion = model.fusion
    leader = fusion.inside.get(node.name)
    if leader is not None:
        return OpInfo(key, reason=f"runs inside {leader}, in its precision")
    reason = _reason(model, graph, fusion, node, key)
    if reason:
        return OpInfo(key, reason=reason)
    if node.kind in FOLLOWERS:
        return OpInfo(key, follower_choices(), follower=True)
    depthwise = _is_depthwise(model, node, fusion.by_key[key][0])
    return OpInfo(key, compute_choices(node.kind, target, depthwise))


def _reason(model: MxnetModel, graph: Graph, fusion: Fusion, node: Node, key: OpKey) -> str:
    """Why an op must stay in FP32; empty when it need not."""
    if is_quantized(graph):
        return "the model is already quantized"
    if node.kind.startswith("_sg_"):
        return "already fused by MXNet: give the original model"
    if node.kind in NEVER:
        return NEVER[node.kind]
    if node.kind not in COMPUTE and node.kind not in FOLLOWERS:
        return "MXNet has no INT8 kernel for it"
    if fusion.lost:
        return f"MXNet's fusion of this graph loses the op {fusion.lost[0]!r}"
    units = fusion.by_key.get(key)
    if not units:
        return "oneDNN has no INT8 kernel for it in this form"
    if node.kind in FOLLOWERS:
        return _follower_reason(node)
    grouped = int(node.attrs.get("num_group", 1)) > 1
    if grouped and not _is_depthwise(model, node, units[0]):
        return "MXNet's INT8 kernel for grouped convolutions gives wrong sums"
    for unit in units:
        if node.kind == "Convolution" and _has_gelu(unit):
            return "MXNet's INT8 convolution mistakes the GELU after it for a ReLU"
        for name in (unit.weight, unit.bias):
            array = model.network.args.get(name)
            if array is None:
                if name == unit.weight:
                    return "its weight is not a constant"
                continue
            if array.dtype != np.float32:
                return "not a float32 op"
            if not np.isfinite(array.asnumpy()).all():
                return f"{name!r} holds NaN or Inf"
    return ""


def _follower_reason(node: Node) -> str:
    if node.kind == "Activation" and node.attrs.get("act_type") != "relu":
        return f"MXNet has no INT8 kernel for {node.attrs.get('act_type')}"
    if node.kind == "Pooling" and node.attrs.get("pool_type", "max") not in ("max", "avg"):
        return f"MXNet has no INT8 kernel for {node.attrs['pool_type']} pooling"
    return ""


def _is_depthwise(model: MxnetModel, node: Node, unit: Layer) -> bool:
    """One channel a group: those kernels sum in 32 bits on every CPU."""
    weight = model.network.args.get(unit.weight)
    grouped = int(node.attrs.get("num_group", 1)) > 1
    return grouped and weight is not None and weight.shape[1] == 1


def _has_gelu(unit: Layer) -> bool:
    return any(member.attrs.get("act_type") == "gelu" for member in unit.node.members)
