"""Models that are legal and yet unlike what exporters usually write, one oddity each."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnx_models import Feed, Net

Odd = Callable[[], ModelProto]
value = helper.make_tensor_value_info


def dense(net: Net, source: str, rows: int = 16, columns: int = 16) -> str:
    return net.op("MatMul", [source, net.weight(f"w{len(net.nodes)}", rows, columns)])


def conv(net: Net, source: str, inputs: int, outputs: int, **attributes: Any) -> str:
    weight = net.weight(f"w{len(net.nodes)}", outputs, inputs, 3, 3)
    return net.op("Conv", [source, weight], pads=[1, 1, 1, 1], **attributes)


def body(kind: str, net: Net, inputs: list[Any], outputs: list[Any]) -> Any:
    return helper.make_graph(net.nodes, kind, inputs, outputs, net.weights)


# -- control flow --------------------------------------------------------------------------------


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


# -- types and sizes -----------------------------------------------------------------------------


def in_type(kind: int, dtype: Any) -> ModelProto:
    net = Net()
    x = net.input("x", ["n", 16], kind)
    raw = net.random.standard_normal((16, 16)) / 4
    net.weights.append(
        helper.make_tensor("w", kind, [16, 16], raw.ravel().tolist())
        if dtype is None
        else numpy_helper.from_array(raw.astype(dtype), "w")
    )
    return net.model(net.op("MatMul", [x, "w"]), kind=kind)


def double() -> ModelProto:
    return in_type(TensorProto.DOUBLE, np.float64)


def half() -> ModelProto:
    return in_type(TensorProto.FLOAT16, np.float16)


def bfloat16() -> ModelProto:
    net = Net()
    x = net.op("Cast", [net.input("x", ["n", 16])], to=TensorProto.BFLOAT16)
    raw = (net.random.standard_normal((16, 16)) / 4).ravel().tolist()
    net.weights.append(helper.make_tensor("w", TensorProto.BFLOAT16, [16, 16], raw))
    wide = net.op("Cast", ["w"], to=TensorProto.FLOAT)
    back = net.op("Cast", [x], to=TensorProto.FLOAT)
    return net.model(net.op("MatMul", [back, wide]))


def zero_rows() -> ModelProto:
    """Detection-like: what is left behind a filter may be nothing."""
    net = Net()
    hidden = dense(net, net.input("x", ["n", 16]))
    bound = net.const("bound", np.float32(1e9))
    most = net.op("ReduceMax", [hidden], axes=[1], keepdims=0)
    chosen = net.op("Compress", [hidden, net.op("Greater", [most, bound])], axis=0)
    return net.model(dense(net, chosen), hidden)


def zero_channels() -> ModelProto:
    """A weight of no columns."""
    net = Net()
    x = net.input("x", ["n", 16])
    net.const("none", np.zeros((16, 0), np.float32))
    both = net.op("Concat", [dense(net, x), net.op("MatMul", [x, "none"])], axis=1)
    return net.model(dense(net, both))


def scalar_input() -> ModelProto:
    """A factor without dimensions beside the picture."""
    net = Net()
    x = net.op("Mul", [net.input("x", ["n", 16]), net.input("factor", [])])
    return net.model(dense(net, net.op("Relu", [dense(net, x)])))


def one_scalar_in() -> ModelProto:
    """Nothing but a 0-d input."""
    net = Net()
    wide = net.op("Expand", [net.input("x", []), net.const("shape", np.array([4, 16]))])
    return net.model(dense(net, wide))


def no_input() -> ModelProto:
    net = Net()
    rows = net.op("ConstantOfShape", [net.const("shape", np.array([4, 16]))])
    return net.model(dense(net, net.op("Add", [rows, net.const("half", np.float32(0.5))])))


def no_rank() -> ModelProto:
    """An input of unknown rank."""
    net = Net()
    net.inputs.append(value("x", TensorProto.FLOAT, None))
    return net.model(dense(net, net.op("Relu", [dense(net, "x")])))


def vector_input() -> ModelProto:
    """A product of a vector: no batch at all."""
    net = Net()
    return net.model(dense(net, net.op("Relu", [dense(net, net.input("x", [16]))])))


def strings() -> ModelProto:
    """Labels as text behind an ArgMax."""
    net = Net()
    scores = dense(net, net.input("x", ["n", 16]))
    best = net.op("ArgMax", [scores], axis=1, keepdims=0)
    words = np.array([f"label {i}".encode() for i in range(16)], object)
    net.weights.append(helper.make_tensor("words", TensorProto.STRING, [16], words.tolist()))
    model = net.model(net.op("Gather", ["words", best]), scores)
    model.graph.output[0].type.tensor_type.elem_type = TensorProto.STRING
    return model


def string_input() -> ModelProto:
    """Text goes in, next to numbers."""
    net = Net()
    text = net.input("text", ["n"], TensorProto.STRING)
    net.op("LabelEncoder", [text], "code", domain="ai.onnx.ml", keys_strings=["a", "b"],
           values_floats=[0.5, 1.5], default_float=0.0)  # fmt: skip
    column = net.op("Unsqueeze", ["code", net.const("axis", np.array([1]))])
    model = net.model(dense(net, net.op("Add", [net.input("x", ["n", 16]), column])))
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return model


def complex_output() -> ModelProto:
    """A Fourier transform in front, as audio models have it."""
    net = Net()
    x = net.op("Unsqueeze", [net.input("x", ["n", 16]), net.const("last", np.array([2]))])
    spectrum = net.op("DFT", [x], axis=1)
    return net.model(
        dense(net, net.op("Reshape", [spectrum, net.const("to", np.array([-1, 32]))]), 32)
    )


# -- names, constants and structure --------------------------------------------------------------


def unicode_names() -> ModelProto:
    net = Net()
    last = net.input("вход/画像:0", ["n", 16])
    for index, name in enumerate(("слой", "層 1", "a/b\\c", "...", "", "")):
        weight = net.weight(f"вес {index}", 16, 16)
        last = net.op("MatMul", [last, weight], f"🙂{index}", name=name)
    return net.model(last)


def same_names() -> ModelProto:
    """Nodes of one name, and a tensor named as lpot names what it adds."""
    net = Net()
    x = net.input("x", ["n", 16])
    net.weight("x/quantized", 16, 16)
    first = net.op("MatMul", [x, "x/quantized"], "x/dequantized", name="twin")
    second = net.op("MatMul", [first, net.weight("w/scale", 16, 16)], "x/scale", name="twin")
    return net.model(net.op("Relu", [second], "x/zero_point", name="twin"))


def weights_as_inputs() -> ModelProto:
    """IR 3: every weight is an input, too."""
    net = Net(8)
    last = dense(net, net.op("Relu", [dense(net, net.input("x", ["n", 16]))]))
    model = net.model(last, ir=3)
    for tensor in model.graph.initializer:
        model.graph.input.append(value(tensor.name, tensor.data_type, list(tensor.dims)))
    return model


def sparse_weight() -> ModelProto:
    net = Net()
    x = net.input("x", ["n", 16])
    model = net.model(net.op("MatMul", [dense(net, x), "sparse"]))
    values = numpy_helper.from_array(np.arange(1, 17, dtype=np.float32) / 16, "sparse")
    places = numpy_helper.from_array(np.arange(0, 256, 17, dtype=np.int64), "places")
    model.graph.sparse_initializer.append(helper.make_sparse_tensor(values, places, [16, 16]))
    return model


def sparse_constant() -> ModelProto:
    """The same in a Constant node."""
    net = Net()
    values = numpy_helper.from_array(np.arange(1, 17, dtype=np.float32) / 16, "v")
    places = numpy_helper.from_array(np.arange(0, 256, 17, dtype=np.int64), "p")
    sparse = helper.make_sparse_tensor(values, places, [16, 16])
    net.nodes.append(helper.make_node("Constant", [], ["w"], name="c", sparse_value=sparse))
    return net.model(net.op("MatMul", [dense(net, net.input("x", ["n", 16])), "w"]))


def unused() -> ModelProto:
    """An input nobody reads, a weight nobody reads, a node whose output goes nowhere."""
    net = Net()
    x = net.input("x", ["n", 16])
    net.input("spare", ["n", 3])
    net.weight("forgotten", 64, 64)
    hidden = dense(net, x)
    net.op("Relu", [hidden], "nowhere")
    return net.model(dense(net, hidden))


def output_is_input() -> ModelProto:
    net = Net()
    x = net.input("x", ["n", 16])
    return net.model(dense(net, x), x)


def output_is_weight() -> ModelProto:
    net = Net()
    last = dense(net, net.input("x", ["n", 16]))
    return net.model(last, "w0")


def output_twice_named() -> ModelProto:
    """One tensor listed as two outputs."""
    net = Net()
    last = dense(net, net.input("x", ["n", 16]))
    return net.model(last, last)


def optional_outputs() -> ModelProto:
    """Dropout with its mask left out, a MaxPool with indices, a Split in unequal parts."""
    net = Net()
    x = conv(net, net.input("x", ["n", 3, 8, 8]), 3, 8)
    net.nodes.append(helper.make_node("Dropout", [x], ["dropped", ""], name="drop"))
    net.nodes.append(
        helper.make_node(
            "MaxPool", ["dropped"], ["pooled", "where"], kernel_shape=[2, 2], strides=[2, 2]
        )
    )
    sizes = net.const("sizes", np.array([3, 5]))
    net.nodes.append(helper.make_node("Split", ["pooled", sizes], ["a", "b"], axis=1))
    return net.model(conv(net, "b", 5, 4), "a")


def optional_inputs() -> ModelProto:
    """Empty names for inputs that are left out, and at the end of the list."""
    net = Net()
    x = net.input("x", ["n", 3, 8, 8])
    weight = net.weight("w", 8, 3, 3, 3)
    last = net.op("Conv", [x, weight, ""], pads=[1, 1, 1, 1])
    last = net.op("Clip", [last, "", net.const("six", np.float32(6))])
    return net.model(conv(net, last, 8, 4))


def custom_domain() -> ModelProto:
    """An op of the runtime's own domain between products."""
    net = Net()
    hidden = dense(net, net.input("x", ["n", 16]))
    last = net.op("FastGelu", [hidden], domain="com.microsoft")
    model = net.model(dense(net, last))
    model.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return model


def unknown_domain() -> ModelProto:
    """An op that no runtime here knows: refused."""
    net = Net()
    last = net.op("Mystery", [dense(net, net.input("x", ["n", 16]))], domain="nowhere")
    model = net.model(last)
    model.opset_import.append(helper.make_opsetid("nowhere", 1))
    return model


def forest() -> ModelProto:
    """A tree of ai.onnx.ml behind a product."""
    net = Net()
    hidden = dense(net, net.input("x", ["n", 16]))
    net.op(
        "TreeEnsembleRegressor",
        [hidden],
        "y",
        domain="ai.onnx.ml",
        nodes_treeids=[0, 0, 0],
        nodes_nodeids=[0, 1, 2],
        nodes_featureids=[0, 0, 0],
        nodes_modes=["BRANCH_LEQ", "LEAF", "LEAF"],
        nodes_values=[0.0, 0.0, 0.0],
        nodes_truenodeids=[1, 0, 0],
        nodes_falsenodeids=[2, 0, 0],
        target_ids=[0, 0],
        target_nodeids=[1, 2],
        target_treeids=[0, 0],
        target_weights=[1.0, 2.0],
        n_targets=1,
    )
    model = net.model("y")
    model.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    return model


def partly_quantized() -> ModelProto:
    """One product quantized already, one that is not."""
    from onnx_models import quantized

    return quantized(rest=True)


def dynamically_quantized() -> ModelProto:
    """What a dynamic quantizer wrote, and a product that it left."""
    net = Net()
    x = net.input("x", ["n", 16])
    net.nodes.append(
        helper.make_node("DynamicQuantizeLinear", [x], ["q", "s", "z"], name="dynamic")
    )
    net.const("w", net.random.integers(-100, 100, (16, 16)).astype(np.int8))
    product = net.op("Cast", [net.op("MatMulInteger", ["q", "w", "z"])], to=1)
    scaled = net.op("Mul", [product, net.op("Mul", ["s", net.const("ws", np.float32(0.01))])])
    return net.model(dense(net, net.op("Relu", [scaled])))


def constant_chain() -> ModelProto:
    """Weights behind Constant, Identity, Cast and Transpose."""
    net = Net()
    x = net.input("x", ["n", 16])
    raw = net.random.standard_normal((16, 16)).astype(np.float16) / 4
    tensor = numpy_helper.from_array(raw, "t")
    net.nodes.append(helper.make_node("Constant", [], ["c"], name="c", value=tensor))
    wide = net.op("Cast", [net.op("Identity", ["c"])], to=TensorProto.FLOAT)
    return net.model(net.op("MatMul", [x, net.op("Transpose", [wide], perm=[1, 0])]))


def shared_everywhere() -> ModelProto:
    """One matrix as an embedding, a product and its transpose."""
    net = Net()
    ids = net.input("ids", ["n", 5], TensorProto.INT64)
    net.weight("table", 4096, 16, scale=1.0)
    hidden = net.op("Gather", ["table", ids])
    turned = net.op("Transpose", ["table"], perm=[1, 0])
    return net.model(net.op("MatMul", [hidden, turned]))


def nan_weight() -> ModelProto:
    net = Net()
    bad = np.ones((16, 16), np.float32)
    bad[0, 0] = np.nan
    last = dense(net, net.input("x", ["n", 16]))
    side = net.op("MatMul", [last, net.const("bad", bad)])
    shut = net.op("Where", [net.op("IsNaN", [side]), net.const("zero", np.float32(0)), side])
    return net.model(net.op("Add", [last, shut]))


def huge_values() -> ModelProto:
    """Activations near the end of float32."""
    net = Net()
    big = net.op("Mul", [net.input("x", ["n", 16]), net.const("big", np.float32(1e37))])
    small = net.op("Mul", [dense(net, big), net.const("small", np.float32(1e-37))])
    return net.model(dense(net, small))


def tiny_values() -> ModelProto:
    """Activations and weights among the denormals."""
    net = Net()
    x = net.op("Mul", [net.input("x", ["n", 16]), net.const("tiny", np.float32(1e-39))])
    return net.model(net.op("MatMul", [x, net.weight("w", 16, 16, scale=1e-30)]))


def wide_batch_norm() -> ModelProto:
    """BatchNormalization that stands first, and one behind a product of three axes."""
    net = Net()
    x = net.input("x", ["n", 3, 8, 8])
    for name in ("g", "b", "m"):
        net.weight(name, 3, scale=0.5)
    net.const("v", np.ones(3, np.float32))
    return net.model(conv(net, net.op("BatchNormalization", [x, "g", "b", "m", "v"]), 3, 4))


def one_and_three_dimensions() -> ModelProto:
    """Convolutions over a line and over a volume."""
    net = Net()
    line = net.op("Conv", [net.input("x", ["n", 3, 27]), net.weight("w1", 8, 3, 3)], pads=[1, 1])
    cube = net.op("Reshape", [line, net.const("cube", np.array([-1, 8, 3, 3, 3]))])
    return net.model(net.op("Conv", [cube, net.weight("w3", 4, 8, 3, 3, 3)], pads=[1] * 6))


def grouped() -> ModelProto:
    """Groups, dilation, strides, auto_pad."""
    net = Net()
    last = conv(net, net.input("x", ["n", 4, 12, 12]), 4, 8)
    last = net.op("Conv", [last, net.weight("g", 8, 2, 3, 3)], group=4, dilations=[2, 2])
    last = net.op("Conv", [last, net.weight("d", 8, 1, 3, 3)], group=8, auto_pad="SAME_UPPER")
    return net.model(net.op("Conv", [last, net.weight("s", 4, 8, 2, 2)], strides=[2, 2]))


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


def from_opset(opset: int) -> ModelProto:
    net = Net(opset)
    last = dense(net, net.input("x", ["n", 16]))
    return net.model(dense(net, net.op("Relu", [last])), ir=3)


def transposed_convs() -> ModelProto:
    """ConvTranspose of three kinds, one of which has no other spelling."""
    net = Net()
    last = net.op("ConvTranspose", [net.input("x", ["n", 4, 6, 6]), net.weight("u", 4, 4, 2, 2)],
                  strides=[2, 2])  # fmt: skip
    last = net.op("ConvTranspose", [last, net.weight("v", 4, 1, 3, 3)], group=4, pads=[1, 1, 1, 1])
    return net.model(conv(net, last, 4, 4))


def deep_chain() -> ModelProto:
    """A thousand nodes one behind the other."""
    net = Net()
    last = net.input("x", ["n", 16])
    net.const("one", np.float32(1.001))
    for _ in range(1000):
        last = net.op("Mul", [last, "one"])
    return net.model(dense(net, last))


def wide_fan() -> ModelProto:
    """Two hundred readers of one tensor."""
    net = Net()
    x = net.input("x", ["n", 16])
    net.weight("w", 16, 16)
    return net.model(net.op("Sum", [net.op("MatMul", [x, "w"]) for _ in range(200)]))


def function_in_function() -> ModelProto:
    net = Net()
    net.weight("w", 16, 16)
    net.op("Outer", [net.input("x", ["n", 16]), "w"], "y", domain="mine")
    model = net.model("y")
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("mine", 1)]
    inner = [helper.make_node("MatMul", ["a", "b"], ["c"]), helper.make_node("Relu", ["c"], ["d"])]
    outer = [
        helper.make_node("Inner", ["a", "b"], ["m"], domain="mine"),
        helper.make_node("Inner", ["m", "b"], ["d"], domain="mine"),
    ]
    model.functions.append(helper.make_function("mine", "Inner", ["a", "b"], ["d"], inner, opsets))
    model.functions.append(helper.make_function("mine", "Outer", ["a", "b"], ["d"], outer, opsets))
    model.opset_import.append(helper.make_opsetid("mine", 1))
    return model


def dead_channel() -> ModelProto:
    """A channel of a large constant that nobody uses (it is read with zeros)."""
    net = Net()
    first = net.weight("w1", 8, 3, 3, 3)
    bias = np.zeros(8, np.float32)
    bias[3] = 5000.0
    x = net.op("Conv", [net.input("x", ["n", 3, 8, 8]), first, net.const("b1", bias)],
               pads=[1, 1, 1, 1])  # fmt: skip
    second = (net.random.standard_normal((8, 8, 3, 3)) / 8).astype(np.float32)
    second[:, 3] = 0.0
    return net.model(net.op("Conv", [net.op("Relu", [x]), net.const("w2", second)]))


def random_ops() -> ModelProto:
    """Noise in the graph: no two runs agree."""
    net = Net()
    x = net.input("x", ["n", 16])
    noise = net.op("RandomNormalLike", [x], scale=0.01)
    return net.model(dense(net, net.op("Add", [x, noise])))


def sequences_inside() -> ModelProto:
    """A tensor cut to a sequence and joined again between products."""
    net = Net()
    hidden = dense(net, net.input("x", ["n", 16]))
    parts = net.op("SplitToSequence", [hidden, net.const("four", np.array(4))], axis=1)
    return net.model(dense(net, net.op("ConcatFromSequence", [parts], axis=1)))


def optional_type() -> ModelProto:
    """A tensor wrapped as optional and taken out again."""
    net = Net(18)
    wrapped = net.op("Optional", [dense(net, net.input("x", ["n", 16]))])
    return net.model(dense(net, net.op("OptionalGetElement", [wrapped])))


def _old(opset: int) -> Odd:
    def maker() -> ModelProto:
        return from_opset(opset)

    maker.__name__ = f"opset_{opset}"
    return maker


MAKERS: tuple[Odd, ...] = (
    *(loop, loop_that_gathers, scan, if_in_loop, loop_without_turns),
    *(double, half, bfloat16, zero_rows, zero_channels, scalar_input, one_scalar_in, no_input),
    *(no_rank, vector_input, strings, string_input, complex_output, unicode_names, same_names),
    *(weights_as_inputs, sparse_weight, sparse_constant, unused, output_is_input),
    *(output_is_weight, output_twice_named, optional_outputs, optional_inputs, custom_domain),
    *(unknown_domain, forest, partly_quantized, dynamically_quantized, constant_chain),
    *(shared_everywhere, nan_weight, huge_values, tiny_values, wide_batch_norm),
    *(one_and_three_dimensions, grouped, lstm, lstm_both_ways, gru, plain_rnn),
    *(transposed_convs, deep_chain, wide_fan, function_in_function, dead_channel, random_ops),
    *(sequences_inside, optional_type, *map(_old, range(1, 7))),
)
ODD: dict[str, Odd] = {maker.__name__.replace("_", " "): maker for maker in MAKERS}


def feeds(model: ModelProto, count: int = 3) -> list[Feed]:
    """Samples for a model: normal floats, small ids, `a` and `b` for text; 4 for open sizes."""
    random = np.random.default_rng(1)
    constants = {tensor.name for tensor in model.graph.initializer}
    return [
        {
            item.name: _array(item.type.tensor_type, random)
            for item in model.graph.input
            if item.name not in constants
        }
        for _ in range(count)
    ]


def _array(tensor: Any, random: np.random.Generator) -> np.ndarray:
    sizes = [dim.dim_value if dim.dim_value > 0 else 4 for dim in tensor.shape.dim]
    if not tensor.HasField("shape"):
        sizes = [4, 16]
    if tensor.elem_type == TensorProto.STRING:
        return random.choice(["a", "b", "c"], sizes)
    if tensor.elem_type == TensorProto.BOOL:
        return np.ones(sizes, bool)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.elem_type))
    if dtype.kind in "iu":
        return random.integers(0, 32, sizes).astype(dtype)
    return np.asarray(random.standard_normal(sizes)).astype(dtype)
