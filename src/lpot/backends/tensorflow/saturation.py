"""Do this CPU's kernels overflow with 8-bit weights? The worst case of each is run to see.

Without VNNI two products of 8 by 8 bits are added in 16 bits, which hold them only if the weights
have 7.
"""

from __future__ import annotations

import logging
from functools import lru_cache
from typing import Any

import numpy as np

from lpot.backends.tensorflow.run import open_session
from lpot.backends.tensorflow.runtime import GraphDef, NodeDef, tf
from lpot.backends.tensorflow.structure.nodes import make_const, make_node
from lpot.core.cpu import TOLERANCE
from lpot.core.errors import UnsupportedModel

logger = logging.getLogger(__name__)

SUMMED, CHANNELS = 64, 32
FUSED = {
    "Conv2D": "_FusedQuantizedConv2D",
    "DepthwiseConv2dNative": "_FusedQuantizedDepthwiseConv2D",
    "MatMul": "_QuantizedMatMul",
}


@lru_cache
def saturates(kind: str = "MatMul") -> bool:
    """Is the worst case of this kind of op wrong by more than rounding?"""
    return not why_no_kernel(kind) and worst_error(kind) > TOLERANCE


@lru_cache
def worst_error(kind: str) -> float:
    """How far the largest possible sum is off, relative to the truth."""
    summed = 9 if kind == "DepthwiseConv2dNative" else SUMMED
    graph_def = GraphDef()
    graph_def.node.extend(_worst_case(kind, 255.0 * 127.0 * summed))
    graph_def.versions.producer = tf.compat.v1.GRAPH_DEF_VERSION
    session = open_session(graph_def)
    with session:
        found = session.run("found:0")
    worst = float(np.abs(found / (255.0 * 127.0 * summed) - 1.0).max())
    logger.info("%s: the worst case of 8-bit weights is off by %.3f", kind, worst)
    return worst


@lru_cache
def why_no_kernel(kind: str) -> str:
    """oneDNN's ops are TensorFlow's own, and no version promises them: one without them is told."""
    try:
        worst_error(kind)
    except (UnsupportedModel, tf.errors.OpError) as error:  # not registered, or without a kernel
        logger.info("%s: %s", FUSED[kind], error)
        return f"TensorFlow {tf.__version__} has no {FUSED[kind]}, its INT8 kernel"
    return ""


def _worst_case(kind: str, truth: float) -> list[NodeDef]:
    """The largest inputs and weights there are, and the fused op that multiplies them."""
    inputs, weights = {
        "Conv2D": ((1, 8, 8, SUMMED), (1, 1, SUMMED, CHANNELS)),
        "DepthwiseConv2dNative": ((1, 8, 8, CHANNELS), (3, 3, CHANNELS, 1)),
        "MatMul": ((32, SUMMED), (SUMMED, CHANNELS)),
    }[kind]
    more: dict[str, Any] = {"T1": tf.quint8, "T2": tf.qint8, "Tout": tf.quint8, "U": tf.float32}
    if kind != "MatMul":
        more = {"Tinput": tf.quint8, "Tfilter": tf.qint8, "Tsummand": tf.quint8}
        more |= {"strides": [1, 1, 1, 1], "padding": "VALID", "out_type": tf.quint8}
    product = make_node(
        FUSED[kind],
        "product",
        ["x", "w", "bias", "zero", "x_max", "w_min", "w_max", "zero", "top"],
        Tdevice_inputs=[tf.quint8, tf.qint8, tf.float32],
        Thost_inputs=[tf.float32] * 6,
        Tdevice_outputs=[tf.quint8],
        Thost_outputs=[tf.float32] * 2,
        Tbias=tf.float32,
        fused_ops=["BiasAdd", "Requantize"],
        **more,
    )
    found = make_node("Dequantize", "found", ["product", "zero", "top"], T=tf.quint8, mode="SCALED")
    return [
        make_const("x", np.full(inputs, 255, np.uint8), tf.quint8),
        make_const("w", np.full(weights, 127, np.int8), tf.qint8),
        make_const("bias", np.zeros(CHANNELS, np.float32)),
        make_const("zero", np.float32(0)),
        make_const("x_max", np.float32(255)),
        make_const("w_min", np.full(CHANNELS, -127, np.float32)),
        make_const("w_max", np.full(CHANNELS, 127, np.float32)),
        make_const("top", np.float32(truth)),
        product,
        found,
    ]


def error_of(kind: str) -> float:
    """The same for any op of a recipe: products that are none of these run as a MatMul."""
    return worst_error(kind if kind in FUSED else "MatMul")
