"""Write a convolution with its bias, sum and activation as one fused INT8 op."""

from __future__ import annotations

import numpy as np

from lpot.backends.tensorflow.draft import Draft
from lpot.backends.tensorflow.nodes import make_node
from lpot.backends.tensorflow.runtime import tf
from lpot.backends.tensorflow.steps import Step
from lpot.backends.tensorflow.weights import bias_of, weight_of

FUSED = {
    "Conv2D": "_FusedQuantizedConv2D",
    "DepthwiseConv2dNative": "_FusedQuantizedDepthwiseConv2D",
}


def quantize_conv(draft: Draft, step: Step) -> None:
    unit = step.unit
    node = draft.prepared.net.nodes[unit.node]
    assert step.config.weight is not None
    taken, given = draft.taken(step), draft.plan.held[step.out]
    weight = weight_of(draft.prepared, unit, step.config.weight, taken)
    device, host = [draft.quantized(unit.x, taken)], draft.range(*taken.kernel_range)
    added = None
    if step.sums:
        assert step.addend is not None
        added = draft.plan.wanted[step.addend]
    shift_added = added.shift if added is not None else 0.0
    # With an activation the form has no shift; without one the bias lifts everything above 0,
    # where the Relu that comes with a fused sum changes nothing.
    bias = bias_of(draft.prepared, unit, weight, taken, given.shift, shift_added)
    device += [
        draft.const(f"{unit.node}/weight", weight.integers, tf.qint8),
        draft.const(f"{unit.node}/bias", bias),
    ]
    host += [
        draft.const(f"{unit.node}/weight_min", -weight.peak),
        draft.const(f"{unit.node}/weight_max", weight.peak),
    ]
    types = [taken.tf_dtype, tf.qint8, tf.float32]
    fused = ["BiasAdd"]
    if added is not None:
        assert step.addend is not None
        device.append(draft.quantized(step.addend, added))
        host += draft.range(*added.kernel_range)
        types.append(added.tf_dtype)
        fused.append("Sum")
    if step.activation or added is not None:
        fused.append("Relu")
    host += draft.range(*given.kernel_range)
    made = make_node(
        FUSED[node.op],
        draft.made(step.out, given),
        [*device, *host],
        Tdevice_inputs=types,
        Thost_inputs=[tf.float32] * len(host),
        Tdevice_outputs=[given.tf_dtype],
        Thost_outputs=[tf.float32] * 2,
        Tinput=taken.tf_dtype,
        Tfilter=tf.qint8,
        Tbias=tf.float32,
        Tsummand=given.tf_dtype,
        out_type=given.tf_dtype,
        fused_ops=[*fused, "Requantize"],
        strides=list(node.attr["strides"].list.i),
        **_padding(draft, step),
    )
    if "dilations" in node.attr:
        made.attr["dilations"].CopyFrom(node.attr["dilations"])
    draft.add(made)
    draft.dequantize(step.out, given)


def _padding(draft: Draft, step: Step) -> dict[str, object]:
    node = draft.prepared.net.nodes[step.unit.node]
    if step.unit.padding is not None:
        return {
            "padding": "EXPLICIT",
            "explicit_paddings": [int(n) for n in np.ravel(step.unit.padding)],
        }
    found: dict[str, object] = {"padding": node.attr["padding"]}
    if "explicit_paddings" in node.attr:
        found["explicit_paddings"] = node.attr["explicit_paddings"]
    return found
