"""Add reductions for calibration: what leaves the graph per tensor is small, whatever its size."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.nodes import Namer, full_name, make_const, make_node

SAMPLED = 65536
HUGE = 2**30


def watch(net: Net, tensors: Sequence[str]) -> tuple[Net, list[list[str]]]:
    """The graph, and per tensor what to fetch: minimum, maximum, shape, sampled rows."""
    changes: dict[str, NodeDef] = {}
    name_for = Namer(net.nodes)
    fetches = []
    for index, tensor in enumerate(tensors):
        stem = name_for(f"lpot_watch/{index}")
        nodes = _reductions(net, tensor, stem)
        changes.update((node.name, node) for node in nodes)
        fetches.append([f"{stem}/{part}:0" for part in ("min", "max", "shape", "sample")])
    return net.changed(changes), fetches


def _reductions(net: Net, tensor: str, stem: str) -> list[NodeDef]:
    """Whole rows of the last axis are sampled, so that no channel is left out."""
    shape = net.shape(tensor)
    wide = (shape[-1] if shape else 1) or 1
    real, whole = {"T": tf.float32}, {"T": tf.int32}
    cut = {"Index": tf.int32, "begin_mask": 3, "end_mask": 3}
    constants = {
        "flat": [-1, wide],
        "most": [max(SAMPLED // wide, 1), HUGE],
        "one": [1, 1],
        "zero": [0, 0],
        "axes": [0, 1],
    }

    def made(op: str, part: str, *inputs: str, **attrs: object) -> NodeDef:
        names = [name if name == tensor else f"{stem}/{name}" for name in inputs]
        return make_node(op, f"{stem}/{part}", names, **attrs)

    return [
        *(make_const(f"{stem}/{part}", np.array(v, np.int32)) for part, v in constants.items()),
        made("Shape", "shape", tensor, **real, out_type=tf.int32),
        made("Reshape", "rows", tensor, "flat", **real, Tshape=tf.int32),
        made("Shape", "size", "rows", **real, out_type=tf.int32),
        made("FloorDiv", "share", "size", "most", **whole),
        # An odd stride does not keep step with the even widths of images.
        made("BitwiseOr", "stride", "share", "one", **whole),
        made("StridedSlice", "sample", "rows", "zero", "zero", "stride", **real, **cut),
        made("Min", "min", "rows", "axes", **real, Tidx=tf.int32),
        made("Max", "max", "rows", "axes", **real, Tidx=tf.int32),
    ]


def watch_columns(net: Net, tensors: Sequence[str]) -> tuple[Net, list[list[str]]]:
    """The graph, and per matrix the smallest and the largest value of each column."""
    changes: dict[str, NodeDef] = {}
    name_for = Namer(net.nodes)
    axis = make_const(name_for("lpot_columns/axis"), np.zeros(1, np.int32))
    changes[axis.name] = axis
    fetches = []
    for index, tensor in enumerate(tensors):
        ends = [
            make_node(
                op,
                name_for(f"lpot_columns/{index}/{op}"),
                [tensor, axis.name],
                T=tf.float32,
                Tidx=tf.int32,
            )
            for op in ("Min", "Max")
        ]
        changes.update((node.name, node) for node in ends)
        fetches.append([full_name(node.name) for node in ends])
    return net.changed(changes), fetches


def watch_means(net: Net, tensors: Mapping[str, int]) -> tuple[Net, list[str]]:
    """The graph, and per tensor the mean of each channel; with how many axes each has."""
    changes: dict[str, NodeDef] = {}
    name_for = Namer(net.nodes)
    fetches = []
    for index, (tensor, rank) in enumerate(tensors.items()):
        axes = make_const(name_for(f"lpot_means/{index}/axes"), np.arange(rank - 1, dtype=np.int32))
        inputs = [tensor, axes.name]
        mean = make_node(
            "Mean", name_for(f"lpot_means/{index}"), inputs, T=tf.float32, Tidx=tf.int32
        )
        changes.update((node.name, node) for node in (axes, mean))
        fetches.append(full_name(mean.name))
    return net.changed(changes), fetches


def watch_channels(net: Net, tensors: Sequence[str]) -> tuple[Net, list[str]]:
    """The graph, and per tensor the largest absolute value of each channel."""
    changes: dict[str, NodeDef] = {}
    name_for = Namer(net.nodes)
    fetches = []
    for index, tensor in enumerate(tensors):
        stem = name_for(f"lpot_channels/{index}")
        rank = len(net.shape(tensor) or (0, 0, 0, 0))
        axes = make_const(f"{stem}/axes", np.arange(rank - 1, dtype=np.int32))
        size = make_node("Abs", f"{stem}/abs", [tensor], T=tf.float32)
        peak = make_node("Max", f"{stem}/max", [size.name, axes.name], T=tf.float32, Tidx=tf.int32)
        changes.update((node.name, node) for node in (axes, size, peak))
        fetches.append(full_name(peak.name))
    return net.changed(changes), fetches
