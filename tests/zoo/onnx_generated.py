"""Small nets of six families in every opset that ONNX Runtime runs, each with something odd."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
from onnx import ModelProto, TensorProto, helper

from onnx_models import Feed, Net

OPSETS = range(7, 24)


def cnn(opset: int) -> ModelProto:
    """Batch norms, a residual, pooling, and a Softmax with a name."""
    net = Net(opset)
    last = _conv(net, net.input("x", ["n", 3, 16, 16]), 3, 8)
    for name in ("scale", "mean", "shift"):
        net.weight(name, 8, scale=0.5)
    net.const("variance", np.full(8, 0.7, np.float32))
    parts = ["scale", "shift", "mean", "variance"]
    last = net.op("Relu", [net.op("BatchNormalization", [last, *parts])])
    last = net.op("Relu", [net.op("Add", [last, _conv(net, last, 8, 8)])])
    last = net.op("MaxPool", [last], kernel_shape=[2, 2], strides=[2, 2])
    last = net.op("Flatten", [net.op("GlobalAveragePool", [last])])
    last = net.op("Gemm", [last, net.weight("fc", 8, 5), net.weight("fc.b", 5)])
    return net.model(net.op("Softmax", [last], name="answer", axis=1))


def attention(opset: int) -> ModelProto:
    """One head and a feed-forward part, from plain ops."""
    net = Net(opset)
    x = net.input("x", ["n", 6, 16])
    query, key, value = (_dense(net, x, name, 16, 16) for name in "qkv")
    scores = net.op("MatMul", [query, net.op("Transpose", [key], perm=[0, 2, 1])])
    mixed = net.op("MatMul", [net.op("Softmax", [scores], axis=2), value])
    mixed = net.op("Add", [x, _dense(net, mixed, "o", 16, 16)])
    return net.model(_dense(net, net.op("Tanh", [_dense(net, mixed, "u", 16, 32)]), "d", 32, 16))


def open_sizes(opset: int) -> ModelProto:
    """-1 for the batch, a scalar among the outputs."""
    net = Net(opset)
    last = _dense(net, net.input("x", [-1, 16]), "a", 16, 16)
    last = _dense(net, net.op("Relu", [last]), "b", 16, 16)
    return net.model(last, net.op("ReduceMean", [last], keepdims=0))


def recurrent(opset: int) -> ModelProto:
    """Convolution, LSTM, a product: as text is read from pictures."""
    net = Net(opset)
    last = net.op("Relu", [_conv(net, net.input("x", ["n", 3, 4, 12]), 3, 8)])
    last = net.op("ReduceMax", [last], axes=[2], keepdims=0) if opset < 18 else _max(net, last)
    last = net.op("Transpose", [last], perm=[2, 0, 1])
    net.weight("wi", 1, 32, 8)
    net.weight("wh", 1, 32, 8)
    last = net.op("LSTM", [last, "wi", "wh"], hidden_size=8)
    last = net.op("Reshape", [last, net.const("rows", np.array([12, -1, 8]))])
    return net.model(net.op("Softmax", [_dense(net, last, "fc", 8, 11)], name="text", axis=2))


def enlarged(opset: int) -> ModelProto:
    """Upsample or Resize between convolutions, a Clip as ReLU6, two outputs."""
    net = Net(opset)
    last = _conv(net, net.input("x", ["n", 3, 8, 8]), 3, 8)
    if opset < 11:
        last = net.op("Clip", [last], min=0.0, max=6.0)
    else:
        bounds = [net.const("low", np.float32(0)), net.const("high", np.float32(6))]
        last = net.op("Clip", [last, *bounds])
    scales = np.array([1, 1, 2, 2], np.float32)
    if opset < 9:
        wide = net.op("Upsample", [last], mode="nearest", scales=scales.tolist())
    elif opset == 9:
        wide = net.op("Upsample", [last, net.const("scales", scales)], mode="nearest")
    elif opset == 10:
        wide = net.op("Resize", [last, net.const("scales", scales)], mode="nearest")
    else:
        region = net.const("region", np.zeros(0, np.float32)) if opset < 13 else ""
        wide = net.op("Resize", [last, region, net.const("scales", scales)], mode="nearest")
    return net.model(_conv(net, wide, 8, 4), last)


def branches(opset: int) -> ModelProto:
    """A table, a product with its constant on the left, and an If whose bodies hold weights."""
    net = Net(opset)
    ids = net.input("ids", ["n", 6], TensorProto.INT64)
    rows = net.op("Gather", [net.weight("table", 8192, 8, scale=1.0), ids])
    left = net.op("MatMul", [net.weight("left", 6, 6), rows])
    last = _dense(net, left, "a", 8, 8)
    flag = net.input("flag", [], TensorProto.BOOL)
    bodies = {f"{word}_branch": _body(net, word, last, opset, _dense) for word in ("then", "else")}
    return net.model(net.op("If", [flag], **bodies))


FAMILIES: dict[str, Callable[[int], ModelProto]] = {
    maker.__name__: maker for maker in (cnn, attention, open_sizes, recurrent, enlarged, branches)
}


def generated() -> Iterator[tuple[str, ModelProto]]:
    for opset in OPSETS:
        for name, maker in FAMILIES.items():
            yield f"{name}, opset {opset}", maker(opset)


def _conv(net: Net, source: str, inputs: int, outputs: int) -> str:
    weight = net.weight(f"w{len(net.nodes)}", outputs, inputs, 3, 3)
    bias = net.weight(f"b{len(net.nodes)}", outputs, scale=0.1)
    return net.op("Conv", [source, weight, bias], kernel_shape=[3, 3], pads=[1, 1, 1, 1])


def _dense(net: Net, source: str, name: str, rows: int, columns: int) -> str:
    product = net.op("MatMul", [source, net.weight(name, rows, columns)])
    return net.op("Add", [product, net.weight(f"{name}.bias", columns, scale=0.1)])


def _max(net: Net, source: str) -> str:
    return net.op("ReduceMax", [source, net.const("height", np.array([2]))], keepdims=0)


def _body(net: Net, word: str, source: str, opset: int, dense: Callable[..., str]) -> object:
    inner = Net(opset, seed=len(word))
    made = dense(inner, source, f"{word}.w", 8, 8)
    output = helper.make_tensor_value_info(made, TensorProto.FLOAT, None)
    for node in inner.nodes:
        node.name = f"{word}/{node.name}"
        node.output[0] = f"{word}/{node.output[0]}"
        node.input[:] = [
            f"{word}/{name}"
            if name.startswith("t") and name[1:].isdigit() and name != source
            else name
            for name in node.input
        ]
    output.name = f"{word}/{made}"
    return helper.make_graph(inner.nodes, word, [], [output], inner.weights)


def feeds(model: ModelProto, count: int = 3, seed: int = 1) -> list[Feed]:
    random = np.random.default_rng(seed)
    constants = {tensor.name for tensor in model.graph.initializer}
    found: list[Feed] = []
    for _ in range(count):
        feed: Feed = {}
        for value in model.graph.input:
            if value.name in constants:
                continue
            kind = value.type.tensor_type.elem_type
            sizes = [
                d.dim_value if d.dim_value > 0 else 4 for d in value.type.tensor_type.shape.dim
            ]
            if kind == TensorProto.BOOL:
                feed[value.name] = np.array(True)
            elif kind == TensorProto.INT64:
                feed[value.name] = random.integers(0, 64, sizes)
            else:
                feed[value.name] = random.standard_normal(sizes).astype(np.float32)
        found.append(feed)
    return found
