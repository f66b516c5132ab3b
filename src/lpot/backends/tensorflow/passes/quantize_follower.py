"""Let pooling, concatenation and ops that only move values work on 8 bits."""

from __future__ import annotations

import numpy as np

from lpot.backends.tensorflow.draft import Draft
from lpot.backends.tensorflow.match import Follower
from lpot.backends.tensorflow.nodes import data_inputs, make_node, with_inputs
from lpot.backends.tensorflow.runtime import tf

POOLING = {"MaxPool": "QuantizedMaxPool", "AvgPool": "QuantizedAvgPool"}


def quantize_follower(draft: Draft, item: Follower) -> None:
    node = draft.prepared.net.nodes[item.out]
    form = draft.plan.wanted[item.out]
    name = draft.made(item.out, form)
    sources = [draft.quantized(tensor, form) for tensor in item.inputs]
    if node.op in POOLING:
        made = make_node(
            POOLING[node.op],
            name,
            [*sources, *draft.range(*form.kernel_range)],
            T=form.tf_dtype,
            ksize=node.attr["ksize"],
            strides=node.attr["strides"],
            padding=node.attr["padding"],
        )
    elif node.op in ("Pad", "PadV2"):
        integer = np.uint8 if form.dtype == "quint8" else np.int8
        zero = draft.const(f"{item.key.name}/zero", np.asarray(form.zero, integer), form.tf_dtype)
        made = make_node(
            "PadV2",
            name,
            [*sources, data_inputs(node)[1], zero],
            T=form.tf_dtype,
            Tpaddings=node.attr.get("Tpaddings", tf.int32),
        )
    else:
        made = with_inputs(node, [*sources, *data_inputs(node)[len(sources) :]])
        made.name = name
        made.attr["T"].type = form.tf_dtype.as_datatype_enum
    draft.add(made)
    draft.dequantize(item.out, form)
