"""Graphs trained with fake quantization: its nodes taken out again."""

from __future__ import annotations

from typing import Any

from lpot.core.errors import UnsupportedModel

_FAKES = (
    "FakeQuantWithMinMaxVars",
    "FakeQuantWithMinMaxVarsPerChannel",
    "FakeQuantWithMinMaxArgs",
    "QuantizeAndDequantizeV2",
    "QuantizeAndDequantizeV3",
    "QuantizeAndDequantizeV4",
)


def without_fake_quant(graph_def: Any) -> Any:
    """The graph in which each fake-quant node only hands on its input.

    It stays as an Identity, so that an output that bears its name is still there.
    """
    twin = type(graph_def)()
    twin.CopyFrom(graph_def)
    count = 0
    for node in twin.node:
        if node.op in _FAKES:
            count += 1
            kind = node.attr["T"].type or 1  # float where the op knows nothing else
            source = node.input[0]
            del node.input[:]
            node.input.append(source)
            node.attr.clear()
            node.attr["T"].type = kind
            node.op = "Identity"
    if not count:
        raise UnsupportedModel(
            "the graph has no fake-quant nodes: give the one that was trained with them, or "
            "quantize this one with Quantization"
        )
    return twin
