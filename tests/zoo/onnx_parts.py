"""Parts that the odd models are made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from onnx import ModelProto, helper

from onnx_models import Net

Odd = Callable[[], ModelProto]
value = helper.make_tensor_value_info


def dense(net: Net, source: str, rows: int = 16, columns: int = 16) -> str:
    return net.op("MatMul", [source, net.weight(f"w{len(net.nodes)}", rows, columns)])


def conv(net: Net, source: str, inputs: int, outputs: int, **attributes: Any) -> str:
    weight = net.weight(f"w{len(net.nodes)}", outputs, inputs, 3, 3)
    return net.op("Conv", [source, weight], pads=[1, 1, 1, 1], **attributes)


def body(kind: str, net: Net, inputs: list[Any], outputs: list[Any]) -> Any:
    return helper.make_graph(net.nodes, kind, inputs, outputs, net.weights)


def loop_body(net: Net, states: list[Any], made: list[Any]) -> Any:
    """The graph of a Loop that goes on as long as it was asked to."""
    net.op("Identity", ["on"], "still")
    given = [value("i", 7, []), value("on", 9, []), *states]
    return body("body", net, given, [value("still", 9, []), *made])


def looped(net: Net, graph: Any, *states: str, turns: int = 3) -> str:
    count, go = net.const("turns", turns), net.const("go", True)
    return net.op("Loop", [count, go, *states], "looped", body=graph)
