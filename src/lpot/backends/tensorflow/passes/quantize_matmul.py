"""Write a MatMul with its bias, activation and residual as one fused INT8 op."""

from __future__ import annotations

from lpot.backends.tensorflow.draft import Draft
from lpot.backends.tensorflow.nodes import make_node
from lpot.backends.tensorflow.runtime import tf
from lpot.backends.tensorflow.steps import Step
from lpot.backends.tensorflow.weights import bias_of, weight_of

# Their result is above 0 or is cut by the range; a zero point can travel in the bias.
LINEAR = ("", "Relu", "Relu6")


def quantize_matmul(draft: Draft, step: Step) -> None:
    unit = step.unit
    assert step.config.weight is not None
    taken, given = draft.taken(step), draft.plan.held.get(step.out)
    weight = weight_of(draft.prepared, unit, step.config.weight, taken)
    linear = step.activation in LINEAR
    shift = given.shift if given is not None and linear else 0.0
    bias = bias_of(draft.prepared, unit, weight, taken, shift)
    device = [
        draft.quantized(unit.x, taken),
        draft.const(f"{unit.node}/weight", weight.integers, tf.qint8),
        draft.const(f"{unit.node}/bias", bias),
    ]
    host = [
        *draft.range(*taken.kernel_range),
        draft.const(f"{unit.node}/weight_min", -weight.peak),
        draft.const(f"{unit.node}/weight_max", weight.peak),
    ]
    types = [taken.tf_dtype, tf.qint8, tf.float32]
    fused = ["BiasAdd"]
    if step.activation:
        fused.append(step.activation)
    if step.addend is not None:
        device.append(step.addend)
        types.append(tf.float32)
        fused.append("Add")
    out_type, mode = tf.float32, "SCALED"
    if given is None:
        fused.append("Dequantize")
    else:
        fused.append("Requantize")
        out_type = given.tf_dtype
        if not linear and given.dtype == "quint8":
            mode = "MIN_FIRST"
        low, high = (given.low, given.high) if mode == "MIN_FIRST" else given.kernel_range
        host += draft.range(low, high)
    made = make_node(
        "_QuantizedMatMul",
        step.out if given is None else draft.made(step.out, given),
        [*device, *host],
        Tdevice_inputs=types,
        Thost_inputs=[tf.float32] * len(host),
        Tdevice_outputs=[out_type],
        Thost_outputs=[] if given is None else [tf.float32] * 2,
        T1=taken.tf_dtype,
        T2=tf.qint8,
        Tbias=tf.float32,
        U=tf.float32,
        Tout=out_type,
        fused_ops=fused,
        input_quant_mode="SCALED",
        output_quant_mode=mode,
        leakyrelu_alpha=_alpha(draft, step),
    )
    draft.add(made)
    if given is not None:
        draft.dequantize(step.out, given)


def _alpha(draft: Draft, step: Step) -> float:
    node = draft.prepared.net.nodes[step.out]
    return float(node.attr["alpha"].f) if step.activation == "LeakyRelu" else 0.2
