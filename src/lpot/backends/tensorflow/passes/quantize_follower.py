"""Let pooling, concatenation and ops that only move values work on 8 bits."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpot.backends.tensorflow.draft import Draft
from lpot.backends.tensorflow.formats import Format
from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.layers import Follower
from lpot.backends.tensorflow.structure.nodes import data_inputs, make_node, with_inputs

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
        made = _padded(draft, item, form, name, sources[0])
    else:
        made = with_inputs(node, [*sources, *data_inputs(node)[len(sources) :]])
        made.name = name
        made.attr["T"].type = form.tf_dtype.as_datatype_enum
    draft.add(made)
    draft.dequantize(item.out, form)


def _padded(draft: Draft, item: Follower, form: Format, name: str, source: str) -> NodeDef:
    """Four channels at a time where sizes allow it: byte by byte takes forty times as long."""
    node = draft.prepared.net.nodes[item.out]
    amounts = data_inputs(node)[1]
    integer = np.uint8 if form.dtype == "quint8" else np.int8
    tpaddings = node.attr.get("Tpaddings", tf.int32)
    sizes = _in_fours(draft, item, amounts)
    if sizes is None:
        zero = draft.const(f"{item.key.name}/zero", np.asarray(form.zero, integer), form.tf_dtype)
        inputs = [source, amounts, zero]
        return make_node("PadV2", name, inputs, T=form.tf_dtype, Tpaddings=tpaddings)

    def step(op: str, part: str, inputs: list[str], **attrs: Any) -> str:
        return draft.add(make_node(op, draft.name_for(f"{name}/{part}"), inputs, **attrs))

    before, after = (draft.const(f"{name}/sizes", np.array(s, np.int32)) for s in sizes)
    zeros = draft.const(f"{name}/zeros", np.full(4, form.zero, integer).view(np.int32)[0])
    kinds = {"T": form.tf_dtype, "Tshape": tf.int32}
    split = step("Reshape", "split", [source, before], **kinds)
    wide = step("Bitcast", "wide", [split], T=form.tf_dtype, type=tf.int32)
    padded = step("PadV2", "padded", [wide, amounts, zeros], T=tf.int32, Tpaddings=tpaddings)
    narrow = step("Bitcast", "narrow", [padded], T=tf.int32, type=form.tf_dtype)
    return make_node("Reshape", name, [narrow, after], **kinds)


def _in_fours(draft: Draft, item: Follower, amounts: str) -> tuple[list[int], list[int]] | None:
    """Shapes with the channels in groups of four before, and joined again after the padding."""
    net = draft.prepared.net
    around = net.constant(amounts)
    before, after = net.shape(item.inputs[0]), net.shape(item.out)
    if around is None or before is None or after is None or around[-1].any():
        return None
    channels = before[-1]
    if not channels or channels % 4 or sum(size is None for size in after) > 1:
        return None
    sizes = [-1 if size is None else size for size in before]
    return (
        [*sizes[:-1], channels // 4, 4],
        [-1 if size is None else size for size in after],
    )
