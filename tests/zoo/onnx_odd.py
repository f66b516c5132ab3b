"""Models that are legal and yet unlike what exporters usually write, one oddity each."""

from __future__ import annotations

from typing import Any

import numpy as np
from onnx import ModelProto, TensorProto, helper, numpy_helper

from onnx_models import Feed, Net
from zoo import onnx_flow, onnx_types
from zoo.onnx_parts import Odd, conv, dense, value


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
    """One product already quantized, one that is not."""
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


def from_opset(opset: int) -> ModelProto:
    net = Net(opset)
    last = dense(net, net.input("x", ["n", 16]))
    return net.model(dense(net, net.op("Relu", [last])), ir=3)


def old_ir() -> ModelProto:
    """A new opset in the oldest form of the file, its domain named twice."""
    model = from_opset(13)
    model.opset_import.append(helper.make_opsetid("ai.onnx", 13))
    return model


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
    *onnx_flow.MAKERS,
    *onnx_types.MAKERS,
    *(unicode_names, same_names),
    *(weights_as_inputs, sparse_weight, sparse_constant, unused, output_is_input),
    *(output_is_weight, output_twice_named, optional_outputs, optional_inputs, custom_domain),
    *(unknown_domain, forest, partly_quantized, dynamically_quantized, constant_chain),
    *(shared_everywhere, nan_weight, huge_values, tiny_values, wide_batch_norm),
    *(one_and_three_dimensions, grouped, old_ir),
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
