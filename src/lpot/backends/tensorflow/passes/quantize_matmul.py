"""Write a MatMul with its bias, activation and residual as one fused INT8 op."""

from __future__ import annotations

from lpot.backends.tensorflow.draft import Draft, Operands, operands_of
from lpot.backends.tensorflow.formats import Format
from lpot.backends.tensorflow.runtime import tf
from lpot.backends.tensorflow.structure.layers import Step
from lpot.backends.tensorflow.structure.nodes import make_node
from lpot.backends.tensorflow.structure.weights import bias_of, corrected_bias, weight_of

# Their result is above 0 or is cut by the range; a zero point can travel in the bias.
LINEAR = ("", "Relu", "Relu6")


def quantize_matmul(draft: Draft, step: Step) -> None:
    layer = step.layer
    assert step.config.weight is not None
    taken, given = draft.plan.taken(layer), draft.plan.held.get(step.out)
    weight = weight_of(draft.prepared, layer, step.config.weight, taken)
    shift = given.shift if given is not None and step.activation in LINEAR else 0.0
    plain = corrected_bias(draft.prepared, layer, draft.plan.shifts)
    bias = bias_of(plain, weight, taken, shift)
    operands = operands_of(draft, step, taken, weight, bias)
    if step.activation:
        operands.fused.append(step.activation)
    if step.addend is not None:
        operands.add(step.addend, tf.float32)
        operands.fused.append("Add")
    mode = _end(draft, step, operands, given)
    out = tf.float32 if given is None else given.tf_dtype
    draft.add(
        make_node(
            "_QuantizedMatMul",
            step.out if given is None else draft.made(step.out, given),
            operands.inputs,
            **operands.attributes(out, ranges=0 if given is None else 2),
            T1=taken.tf_dtype,
            T2=tf.qint8,
            Tbias=tf.float32,
            U=tf.float32,
            Tout=out,
            input_quant_mode="SCALED",
            output_quant_mode=mode,
            leakyrelu_alpha=_alpha(draft, step),
        )
    )
    if given is not None:
        draft.dequantize(step.out, given)


def _end(draft: Draft, step: Step, operands: Operands, given: Format | None) -> str:
    """Floats, or 8 bits in one of TensorFlow's two modes, which is named."""
    if given is None:
        operands.fused.append("Dequantize")
        return "SCALED"
    operands.fused.append("Requantize")
    if step.activation not in LINEAR and given.dtype == "quint8":
        operands.ranges += draft.range(given.low, given.high)
        return "MIN_FIRST"
    operands.ranges += draft.range(*given.kernel_range)
    return "SCALED"


def _alpha(draft: Draft, step: Step) -> float:
    node = draft.prepared.net.nodes[step.out]
    return float(node.attr["alpha"].f) if step.activation == "LeakyRelu" else 0.2
