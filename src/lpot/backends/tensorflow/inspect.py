"""What each op of a model can be, and why not more."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from lpot.backends.tensorflow.abilities import (
    CALLS,
    NO_KERNEL,
    QUANTIZED,
    compute_choices,
    follower_choices,
    has_bfloat16,
    multiplies_bfloat16,
    weight_bits,
)
from lpot.backends.tensorflow.model import TensorflowModel
from lpot.backends.tensorflow.passes.merge_twins import twins_of
from lpot.backends.tensorflow.passes.widen_halves import narrow_ops
from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.affine import BATCH_NORMS, COMPUTE
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import FOLLOWERS
from lpot.backends.tensorflow.structure.nodes import data_inputs
from lpot.core.backend import Approach, Target
from lpot.core.errors import ConfigError
from lpot.core.recipe import OpKey
from lpot.core.space import Capability, OpInfo

HEAVY_KINDS = (
    *("Conv2D", "Conv3D", "Conv2DBackpropInput", "Conv3DBackpropInputV2", "BlockLSTMV2"),
    *("CudnnRNNV3", "LSTMBlockCell", "GRUBlockCell", "While", "StatelessWhile"),
)


def inspect(model: TensorflowModel, approach: Approach, target: Target) -> Capability:
    if approach == "dynamic":
        raise ConfigError(
            "TensorFlow has no dynamic INT8 kernels: use post_training_static_quant, or export the "
            "model to ONNX for dynamic quantization",
            path="quantization.approach",
        )
    prepared = model.prepared
    twins = cache(lambda: twins_of(model.net))  # it reads all weights
    ops: dict[OpKey, OpInfo] = {}
    for name, node in model.net.nodes.items():  # the model as the user knows it, before folding
        key = OpKey(name, node.op)
        if name in prepared.layers:
            ops[key] = OpInfo(key, compute_choices(node.op, target))
        elif name in prepared.followers and node.op in FOLLOWERS:
            ops[key] = OpInfo(key, follower_choices(), follower=True)
        elif key in prepared.refused:
            ops[key] = OpInfo(key, reason=prepared.refused[key])
        elif reason := _reason(model, name, twins):
            ops[key] = OpInfo(key, reason=reason)
    return Capability(ops, tuple(_notes(model, ops, approach, target)))


def _reason(model: TensorflowModel, name: str, twins: Callable[[], dict[str, str]]) -> str:
    node = model.net.nodes[name]
    op = node.op
    if _is_quantized(op):
        return "already quantized"
    if op in NO_KERNEL and any(value.type == tf.int8 for value in node.attr.values()):
        return (
            "its weights are rounded to INT8 already, as Keras's quantize('int8') does: give the "
            "model as it was before that"
        )
    if op in CALLS:
        return "calls functions, whose ops stay in FP32"
    if op in NO_KERNEL:
        if op.startswith("FusedBatchNorm") and name not in model.prepared.net.nodes:
            return "folded into its neighbour before quantization"
        return NO_KERNEL[op]
    if op in COMPUTE or op in FOLLOWERS:
        if name in model.prepared.net.nodes:
            return "not a float32 op"
        twin = twins().get(name)
        return "not needed for the outputs" if twin is None else f"computed once, as {twin}"
    return ""


def _is_quantized(op: str) -> bool:
    return op in QUANTIZED or op.startswith(("Quantized", "_Quantized", "_FusedQuantized"))


def _mixed(model: TensorflowModel) -> list[str]:
    narrow = narrow_ops(model.net)
    words = " and ".join(f"{count} op(s) in {kind}" for kind, count in narrow.items())
    if not narrow:
        return []
    if narrow_ops(model.prepared.net):
        return [f"the model computes {words}, which have no INT8 kernels and can't be widened"]
    return [f"the model computes {words} (mixed precision): quantized, these are INT8 or FP32"]


def _left_in_floats(ops: dict[OpKey, OpInfo]) -> list[str]:
    """The kinds of op that do much of a model's work and have no INT8 kernel."""
    found: dict[tuple[str, str], int] = {}
    for key, info in ops.items():
        if key.kind in HEAVY_KINDS and not info.can_be_low and info.reason:
            place = (key.kind, info.reason)
            found[place] = found.get(place, 0) + 1
    return [
        f"{count} {kind} op(s) stay in FP32: {reason}" for (kind, reason), count in found.items()
    ]


def _in_training(net: Net, node: NodeDef) -> bool:
    """Is it a batch norm by the batch's own statistics, in one op or spelt out?"""
    if node.op in BATCH_NORMS:  # the op's default, where the attribute is left out, is training
        return "is_training" not in node.attr or bool(node.attr["is_training"].b)
    if node.op != "Mean":
        return False
    inputs = data_inputs(node)
    before, axes = net.producer(inputs[0]), net.constant(inputs[1])
    is_variance = before is not None and before.op == "SquaredDifference"
    return is_variance and axes is not None and 0 in axes.reshape(-1)


def _notes(
    model: TensorflowModel, ops: dict[OpKey, OpInfo], approach: Approach, target: Target
) -> list[str]:
    notes = _mixed(model)
    able = any(info.can_be_low for info in ops.values())
    if not able:
        notes.append("the graph has no op that can be INT8")
    if approach == "auto":
        notes.append("TensorFlow has no dynamic INT8 kernels: every op is static")
    already = sum(_is_quantized(node.op) for node in model.net.nodes.values())
    if already:
        notes.append(f"{already} op(s) of the graph are already quantized and are left as they are")
    notes += _left_in_floats(ops)
    training = sum(_in_training(model.net, node) for node in model.net.nodes.values())
    if training:
        notes.append(
            f"{training} batch norm(s) run in training mode: they normalise by the current batch, "
            "so that each result depends on the other samples; export it with training=False"
        )
    if able and weight_bits("Conv2D", target) == 7:
        whose = "this CPU's" if target == "this" else f"target {target}'s"
        notes.append(f"reduced range: {whose} kernels overflow with 8-bit weights; 7 bits are used")
    if able and has_bfloat16() and not multiplies_bfloat16():
        notes.append(
            "FORCE_BF16=1: this CPU does not multiply bfloat16, and TensorFlow emulates it: the "
            "graph is for another CPU; here it is slower than FP32 and rounds more often than there"
        )
    return notes
