"""Write a convolution with its bias, sum and activation as one fused INT8 op."""

from __future__ import annotations

from typing import Any

from lpot.backends.tensorflow.draft import Draft, operands_of
from lpot.backends.tensorflow.runtime import tf
from lpot.backends.tensorflow.structure.layers import Step
from lpot.backends.tensorflow.structure.nodes import make_node
from lpot.backends.tensorflow.structure.weights import bias_of, corrected_bias, weight_of

FUSED = {
    "Conv2D": "_FusedQuantizedConv2D",
    "DepthwiseConv2dNative": "_FusedQuantizedDepthwiseConv2D",
}


def quantize_conv(draft: Draft, step: Step) -> None:
    layer = step.layer
    node = draft.prepared.net.nodes[layer.node]
    assert step.config.weight is not None
    taken, given = draft.plan.taken(layer), draft.plan.held[step.out]
    added = draft.plan.wanted[step.addend] if step.sums and step.addend else None
    weight = weight_of(draft.prepared, layer, step.config.weight, taken)
    # With an activation the form has no shift; without one the bias lifts everything above 0,
    # where the Relu that comes with a fused sum changes nothing.
    shift_added = added.shift if added is not None else 0.0
    plain = corrected_bias(draft.prepared, layer, draft.plan.shifts)
    bias = bias_of(plain, weight, taken, given.shift, shift_added)
    operands = operands_of(draft, step, taken, weight, bias)
    if added is not None and step.addend is not None:
        summand = draft.quantized(step.addend, added)
        operands.add(summand, added.tf_dtype, *draft.range(*added.kernel_range))
        operands.fused.append("Sum")
    if step.activation or added is not None:
        operands.fused.append("Relu")
    operands.fused.append("Requantize")
    operands.ranges += draft.range(*given.kernel_range)
    made = make_node(
        FUSED[node.op],
        draft.made(step.out, given),
        operands.inputs,
        **operands.attributes(given.tf_dtype, ranges=2),
        Tinput=taken.tf_dtype,
        Tfilter=tf.qint8,
        Tbias=tf.float32,
        Tsummand=given.tf_dtype,
        out_type=given.tf_dtype,
        **_window(draft, step),
    )
    draft.add(made)
    draft.dequantize(step.out, given)


def _window(draft: Draft, step: Step) -> dict[str, Any]:
    """Strides, dilations and padding; a Pad folded in is padding, too."""
    node = draft.prepared.net.nodes[step.layer.node]
    known = ("strides", "dilations", "padding", "explicit_paddings")
    found: dict[str, Any] = {name: node.attr[name] for name in known if name in node.attr}
    if step.layer.padding is not None:
        found.update(padding="EXPLICIT", explicit_paddings=list(step.layer.padding))
    return found
