"""Models with bodies inside, If, Loop and Scan, and recurrent layers."""

from __future__ import annotations

import numpy as np
from onnx import ModelProto, helper

from onnx_models import Net
from zoo.onnx_parts import Odd, body, dense, loop_body, looped, value


def loop(count: int = 3) -> ModelProto:
    """A product in the body of a Loop, with weights of its own."""
    net = Net()
    x = dense(net, net.input("x", ["n", 16]))
    inner = Net(seed=1)
    inner.op("Tanh", [inner.op("MatMul", ["state", inner.weight("inner_w", 16, 16)], "p")], "next")
    inner.op("Identity", ["on"], "still")
    inside = body(
        "body",
        inner,
        [value("i", 7, []), value("on", 9, []), value("state", 1, None)],
        [value("still", 9, []), value("next", 1, None)],
    )
    turns, go = net.const("turns", np.array(count)), net.const("go", np.array(True))
    last = net.op("Loop", [turns, go, x], body=inside)
    return net.model(dense(net, last))


def loop_that_gathers() -> ModelProto:
    """A Loop with a scan output, that reads a tensor of the outer graph."""
    net = Net()
    x = net.input("x", ["n", 16])
    hidden = dense(net, x)
    inner = Net(seed=1)
    inner.op("MatMul", ["state", inner.weight("inner_w", 16, 16)], "p")
    inner.op("Add", ["p", hidden], "next")
    inner.op("Relu", ["next"], "seen")
    inner.op("Identity", ["on"], "still")
    inside = body(
        "body",
        inner,
        [value("i", 7, []), value("on", 9, []), value("state", 1, None)],
        [value("still", 9, []), value("next", 1, None), value("seen", 1, None)],
    )
    turns, go = net.const("turns", np.array(4)), net.const("go", np.array(True))
    node = helper.make_node("Loop", [turns, go, hidden], ["last", "all"], name="loop", body=inside)
    net.nodes.append(node)
    return net.model("last", "all")


def scan() -> ModelProto:
    """A recurrent cell as Scan, over the rows of a sequence."""
    net = Net()
    x = net.input("x", [5, "n", 16])
    zero = net.op("ReduceSum", [x, net.const("axes", np.array([0]))], keepdims=0)
    inner = Net(seed=1)
    read = inner.op("MatMul", ["row", inner.weight("cell_w", 16, 16)], "read")
    kept = inner.op("MatMul", ["state", inner.weight("cell_u", 16, 16)], "kept")
    inner.op("Tanh", [inner.op("Add", [read, kept], "both")], "next")
    inner.op("Identity", ["next"], "given")
    inside = body(
        "cell",
        inner,
        [value("state", 1, ["n", 16]), value("row", 1, ["n", 16])],
        [value("next", 1, ["n", 16]), value("given", 1, ["n", 16])],
    )
    node = helper.make_node(
        "Scan", [zero, x], ["state_out", "rows"], name="scan", num_scan_inputs=1, body=inside
    )
    net.nodes.append(node)
    return net.model(dense(net, "rows"), "state_out")


def if_in_loop() -> ModelProto:
    """An If inside a Loop; its branches read the loop's state and the outer graph."""
    net = Net()
    x = dense(net, net.input("x", ["n", 16]))
    inner = Net(seed=1)
    two = inner.const("two", np.array(2))
    early = inner.op("Less", ["i", two], "early")
    sides = {}
    for word in ("then", "else"):
        side = Net(seed=len(word) + ord(word[0]))
        product = side.op("MatMul", ["state", side.weight(f"{word}_w", 16, 16)], f"{word}_p")
        side.op("Add", [product, x], f"{word}_y")
        sides[f"{word}_branch"] = body(word, side, [], [value(f"{word}_y", 1, None)])
    inner.op("Tanh", [inner.op("If", [early], "chosen", **sides)], "next")
    inner.op("Identity", ["on"], "still")
    inside = body(
        "body",
        inner,
        [value("i", 7, []), value("on", 9, []), value("state", 1, None)],
        [value("still", 9, []), value("next", 1, None)],
    )
    turns, go = net.const("turns", np.array(4)), net.const("go", np.array(True))
    return net.model(net.op("Loop", [turns, go, x], body=inside))


def loop_without_turns() -> ModelProto:
    """A Loop that is never entered."""
    return loop(0)


def growing_state() -> ModelProto:
    """A state that is longer after each turn, as a cache is."""
    net = Net()
    x = dense(net, net.input("x", ["n", 16]))
    inner = Net(seed=1)
    made = inner.op("MatMul", ["state", inner.weight("inner_w", 16, 16)], "made")
    inner.op("Concat", ["state", made], "next", axis=0)
    states = [value("state", 1, [None, 16])]
    return net.model(looped(net, loop_body(inner, states, [value("next", 1, None)]), x))


def loop_in_loop() -> ModelProto:
    net = Net()
    x = dense(net, net.input("x", ["n", 16]))
    below = Net(seed=2)
    below.op("Tanh", [below.op("MatMul", ["s", below.weight("w2", 16, 16)], "p2")], "n2")
    below.op("Identity", ["on2"], "still2")
    graph = body(
        "below",
        below,
        [value("i2", 7, []), value("on2", 9, []), value("s", 1, None)],
        [value("still2", 9, []), value("n2", 1, None)],
    )
    inner = Net(seed=1)
    product = inner.op("MatMul", ["state", inner.weight("w1", 16, 16)], "p1")
    two, go = inner.const("two", 2), inner.const("go2", True)
    inner.op("Loop", [two, go, product], "next", body=graph)
    states = [value("state", 1, None)]
    return net.model(looped(net, loop_body(inner, states, [value("next", 1, None)]), x))


def lstm_in_loop() -> ModelProto:
    net = Net()
    x = net.input("x", [5, "n", 16])
    inner = Net(seed=1)
    inner.weight("wi", 1, 64, 16, scale=0.2)
    inner.weight("wh", 1, 64, 16, scale=0.2)
    inner.op("LSTM", ["state", "wi", "wh"], "y", hidden_size=16)
    inner.op("Squeeze", ["y", inner.const("axis", np.array([1]))], "next")
    states, made = [value("state", 1, [5, None, 16])], [value("next", 1, [5, None, 16])]
    return net.model(looped(net, loop_body(inner, states, made), x))


def scan_of_two() -> ModelProto:
    """Two sequences, one along another axis and one from its end."""
    net = Net()
    a, b = net.input("a", ["n", 5, 16]), net.input("b", [5, "n", 16])
    inner = Net(seed=1)
    one = inner.op("MatMul", ["row_a", inner.weight("wa", 16, 16)], "one")
    two = inner.op("MatMul", ["row_b", inner.weight("wb", 16, 16)], "two")
    inner.op("Add", [one, two], "both")
    rows = [value("row_a", 1, ["n", 16]), value("row_b", 1, ["n", 16])]
    graph = body("cell", inner, rows, [value("both", 1, ["n", 16])])
    settings = {"num_scan_inputs": 2, "scan_input_axes": [1, 0], "scan_input_directions": [0, 1]}
    node = helper.make_node("Scan", [a, b], ["rows"], name="scan", body=graph, **settings)
    net.nodes.append(node)
    return net.model("rows")


def sequence_as_state() -> ModelProto:
    """A Loop that fills a sequence: its body is no model of tensors, and stays as it is."""
    net = Net()
    x = dense(net, net.input("x", ["n", 16]))
    inner = Net(seed=1)
    made = inner.op("MatMul", [x, inner.weight("inner_w", 16, 16)], "made")
    inner.op("SequenceInsert", ["sequence", made], "next")
    kind = helper.make_sequence_type_proto(helper.make_tensor_type_proto(1, None))
    states, ends = ([helper.make_value_info(name, kind)] for name in ("sequence", "next"))
    empty = net.op("SequenceEmpty", [], dtype=1)
    last = looped(net, loop_body(inner, states, ends), empty)
    return net.model(net.op("ConcatFromSequence", [last], axis=0))


def rnn(kind: str, gates: int, direction: str = "forward") -> ModelProto:
    """A recurrent layer large enough to matter, with bias and a first state."""
    net = Net()
    ways = 2 if direction == "bidirectional" else 1
    x = net.input("x", [7, "n", 32])
    net.weight("wi", ways, gates * 64, 32, scale=0.2)
    net.weight("wh", ways, gates * 64, 64, scale=0.1)
    net.weight("b", ways, gates * 128, scale=0.1)
    node = helper.make_node(
        kind, [x, "wi", "wh", "b"], ["y", "y_h"], name="rnn", hidden_size=64, direction=direction
    )
    net.nodes.append(node)
    rows = net.op("Transpose", ["y"], perm=[0, 2, 1, 3])
    flat = net.op("Reshape", [rows, net.const("flat", np.array([7, -1, 64 * ways]))])
    return net.model(dense(net, flat, 64 * ways), "y_h")


def lstm() -> ModelProto:
    return rnn("LSTM", 4)


def lstm_both_ways() -> ModelProto:
    return rnn("LSTM", 4, "bidirectional")


def gru() -> ModelProto:
    return rnn("GRU", 3)


def plain_rnn() -> ModelProto:
    return rnn("RNN", 1)


MAKERS: tuple[Odd, ...] = (
    *(loop, loop_that_gathers, scan, if_in_loop, loop_without_turns, growing_state),
    *(loop_in_loop, lstm_in_loop, scan_of_two, sequence_as_state),
    *(lstm, lstm_both_ways, gru, plain_rnn),
)
