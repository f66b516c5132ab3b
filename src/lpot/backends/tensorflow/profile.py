"""Time of every op from TensorFlow's step statistics, under the names of the model given."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

from lpot.backends.tensorflow.model import TensorflowModel
from lpot.backends.tensorflow.run import feed, first_line
from lpot.backends.tensorflow.runtime import tf, v1
from lpot.backends.tensorflow.structure.nodes import full_name, node_name
from lpot.core.batch import Inputs
from lpot.core.errors import DataError, UnsupportedModel
from lpot.core.results.profile import OpTime, Role, quickest

WARMUP = 2
_KIND = re.compile(r" = (\w+)\(")
_WEIGHT = re.compile(r"(.+)/weight(?:_\d+)?$")  # how a quantized op's weights are named
_SILENT = ("Const", "NoOp", "_Arg", "_Retval", "Identity", "Placeholder", "_HostConst")
_CONVERTS = re.compile(r"_?(Mkl)?(Quantize|Dequantize|Requantize)(?!d)|_?MklToTf|Cast$")
_PRODUCT = re.compile(r"Conv|MatMul|Einsum")


def profile(model: TensorflowModel, inputs: Inputs, runs: int) -> tuple[OpTime, ...]:
    """The shortest time of each op over so many runs."""
    if model.iterator is not None:
        raise UnsupportedModel(
            "the graph reads its data itself: its ops can't be timed one step at a time"
        )
    feeds = feed(model.inputs, inputs)
    fetches = [full_name(name) for name in model.output_names]
    options = v1.RunOptions(trace_level=v1.RunOptions.FULL_TRACE)
    turns = []
    try:
        for _ in range(WARMUP + runs):
            told = v1.RunMetadata()
            model.engine.run(fetches, feeds, options=options, run_metadata=told)
            turns.append(list(_ops(model, told)))
    except tf.errors.OpError as error:
        raise DataError(f"TensorFlow failed on a batch: {first_line(error)}") from error
    return quickest(turns[WARMUP:])


def _ops(model: TensorflowModel, told: Any) -> Iterator[OpTime]:
    for device in told.step_stats.dev_stats:
        for stats in device.node_stats:
            found = _KIND.search(stats.timeline_label)
            kind = found[1] if found else ""
            if not kind or kind in _SILENT:
                continue
            spent = (stats.op_end_rel_micros - stats.op_start_rel_micros) * 1e-6
            role: Role = "convert" if _CONVERTS.match(kind) else "op"
            low = "Quantized" in kind or (role == "convert" and "uantize" in kind)
            name = stats.node_name if role == "convert" else _known(model, stats.node_name, kind)
            yield OpTime(name, kind, spent, "int8" if low else "fp32", role)


def _known(model: TensorflowModel, name: str, kind: str) -> str:
    """A fused op goes by its last part's name: back to the product that it began with."""
    nodes = model.net.nodes
    if name not in nodes or not _PRODUCT.search(kind):
        return name
    for source in nodes[name].input:
        weight = _WEIGHT.match(node_name(source))
        if weight is not None:
            return weight[1]
    seen = set()
    waiting = [name]
    while waiting:
        current = waiting.pop(0)
        if current in seen or current not in nodes:
            continue
        seen.add(current)
        if _PRODUCT.search(nodes[current].op):
            return current
        waiting += [node_name(source) for source in nodes[current].input]
    return name
