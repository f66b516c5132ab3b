"""Small ONNX models for tests, made from nothing: each holds one thing that real models do."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper

Dims = Sequence[int | str | None]
Feed = dict[str, np.ndarray]


class Net:
    """Writes one graph node by node; weights are drawn from the seed."""

    def __init__(self, opset: int = 17, seed: int = 0) -> None:
        self.opset = opset
        self.random = np.random.default_rng(seed)
        self.nodes: list[NodeProto] = []
        self.weights: list[TensorProto] = []
        self.inputs: list[onnx.ValueInfoProto] = []

    def input(self, name: str, shape: Dims, kind: int = TensorProto.FLOAT) -> str:
        self.inputs.append(helper.make_tensor_value_info(name, kind, shape))
        return name

    def const(self, name: str, value: Any) -> str:
        self.weights.append(numpy_helper.from_array(np.asarray(value), name))
        return name

    def weight(self, name: str, *shape: int, scale: float | None = None) -> str:
        spread = scale if scale is not None else 1.0 / np.sqrt(max(1, int(np.prod(shape[1:]))))
        return self.const(name, (self.random.standard_normal(shape) * spread).astype(np.float32))

    def op(self, kind: str, inputs: Sequence[str], output: str = "", **attributes: Any) -> str:
        output = output or f"t{len(self.nodes)}"
        name = attributes.pop("name", f"{kind.lower()}{len(self.nodes)}")
        self.nodes.append(helper.make_node(kind, inputs, [output], name=name, **attributes))
        return output

    def model(self, *outputs: str, kind: int = TensorProto.FLOAT, ir: int = 8) -> ModelProto:
        graph = helper.make_graph(
            self.nodes,
            "net",
            self.inputs,
            [helper.make_tensor_value_info(name, kind, None) for name in outputs],
            self.weights,
        )
        return helper.make_model(
            graph, opset_imports=[helper.make_opsetid("", self.opset)], ir_version=ir
        )


def mlp(seed: int = 0, opset: int = 17, layers: int = 3, width: int = 16) -> ModelProto:
    """Gemm and MatMul in turn; the batch is open."""
    net = Net(opset, seed)
    last = net.input("x", ["n", 8])
    size = 8
    for index in range(layers):
        columns = 4 if index == layers - 1 else width
        last = _dense(net, last, index, size, columns)
        size = columns
    return net.model(last)


def _dense(net: Net, last: str, index: int, rows: int, columns: int) -> str:
    net.weight(f"w{index}", columns, rows)
    net.weight(f"b{index}", columns, scale=0.1)
    if index % 2 == 0:
        last = net.op("Gemm", [last, f"w{index}", f"b{index}"], name=f"dense{index}", transB=1)
    else:
        turned = numpy_helper.to_array(net.weights[-2]).T.copy()
        net.weights[-2].CopyFrom(numpy_helper.from_array(turned, f"w{index}"))
        last = net.op("MatMul", [last, f"w{index}"], name=f"dense{index}")
        last = net.op("Add", [last, f"b{index}"], name=f"bias{index}")
    return net.op("Relu", [last], name=f"relu{index}") if columns != 4 else last


def cnn(seed: int = 0, opset: int = 17, batch: int | str = "n") -> ModelProto:
    """Conv, BatchNormalization, Relu, a residual, a depthwise Conv, pooling, Gemm."""
    net = Net(opset, seed)
    last = net.input("image", [batch, 3, 8, 8])
    last = _conv_bn(net, last, "stem", 3, 8)
    kept = net.op("Relu", [last], name="stem_relu")
    last = _conv_bn(net, kept, "body", 8, 8)
    last = net.op("Add", [last, kept], name="residual")
    last = net.op("Relu", [last], name="body_relu")
    net.weight("dw_w", 8, 1, 3, 3)
    last = net.op("Conv", [last, "dw_w"], name="depthwise", group=8, pads=[1, 1, 1, 1])
    last = net.op("MaxPool", [last], name="pool", kernel_shape=[2, 2], strides=[2, 2])
    last = net.op("GlobalAveragePool", [last], name="average")
    last = net.op("Flatten", [last], name="flat")
    net.weight("head_w", 4, 8, scale=1.0)
    net.weight("head_b", 4, scale=0.1)
    return net.model(net.op("Gemm", [last, "head_w", "head_b"], "logits", name="head", transB=1))


def _conv_bn(net: Net, last: str, name: str, rows: int, columns: int) -> str:
    net.weight(f"{name}_w", columns, rows, 3, 3)
    last = net.op("Conv", [last, f"{name}_w"], name=f"{name}_conv", pads=[1, 1, 1, 1])
    one = np.ones(columns, np.float32)
    parts = {"gamma": one * 1.5, "beta": one * 0.1, "mean": one * 0.05, "var": one * 0.8}
    names = [net.const(f"{name}_{part}", value) for part, value in parts.items()]
    return net.op("BatchNormalization", [last, *names], name=f"{name}_bn")


def conv_transpose() -> ModelProto:
    net = Net()
    last = net.input("image", ["n", 3, 6, 6])
    net.weight("w", 3, 4, 2, 2, scale=0.5)
    net.weight("b", 4, scale=0.1)
    last = net.op("ConvTranspose", [last, "w", "b"], name="up", strides=[2, 2])
    net.weight("w2", 2, 4, 3, 3)
    return net.model(net.op("Conv", [last, "w2"], name="out", pads=[1, 1, 1, 1]))


def transformer(seed: int = 0) -> ModelProto:
    """Two inputs (ids, mask), an embedding, one block of attention with -inf masks, two outputs."""
    net = Net(17, seed)
    ids = net.input("ids", ["n", "s"], TensorProto.INT64)
    mask = net.input("mask", ["n", "s"])
    net.weight("table", 32, 16, scale=1.0)
    hidden = net.op("Gather", ["table", ids], name="embedding")
    for name in ("query", "key", "value"):
        net.weight(f"{name}_w", 16, 16)
        net.op("MatMul", [hidden, f"{name}_w"], name, name=name)
    net.op("Transpose", ["key"], "key_t", perm=[0, 2, 1])
    scores = net.op("MatMul", ["query", "key_t"], name="scores")
    net.const("axes", np.array([1], np.int64))
    net.const("one", np.float32(1))
    net.const("far", np.float32(-np.inf))
    net.const("near", np.float32(0))
    wide = net.op("Unsqueeze", [mask, "axes"])
    shut = net.op("Where", [net.op("Less", [wide, "one"]), "far", "near"], name="shut")
    scores = net.op("Add", [scores, shut], name="masked")
    mixed = net.op("MatMul", [net.op("Softmax", [scores], axis=-1), "value"], name="mixed")
    joined = net.op("Add", [mixed, hidden], name="skip")
    net.const("gain", np.ones(16, np.float32))
    net.const("shift", np.zeros(16, np.float32))
    last = net.op("LayerNormalization", [joined, "gain", "shift"], "hidden", name="norm")
    net.weight("out_w", 16, 4)
    net.op("MatMul", [last, "out_w"], "logits", name="out")
    return net.model("logits", "hidden")


def with_if() -> ModelProto:
    """A branch whose two sides read tensors and weights of the outer graph."""
    net = Net()
    x = net.input("x", ["n", 8])
    net.weight("w0", 8, 8)
    net.weight("w1", 8, 4)
    net.weight("inner", 8, 8)
    hidden = net.op("MatMul", [x, "w0"], "hidden", name="before")
    total = net.op("ReduceSum", [x], keepdims=0, name="total")
    sides = []
    for word, weight in (("then", "inner"), ("else", "w0")):
        node = helper.make_node("MatMul", [hidden, weight], [f"{word}_y"], name="before")
        value = helper.make_tensor_value_info(f"{word}_y", TensorProto.FLOAT, None)
        sides.append(helper.make_graph([node], word, [], [value]))
    positive = net.op("Greater", [total, net.const("zero", np.float32(0))], name="positive")
    last = net.op("If", [positive], name="branch", then_branch=sides[0], else_branch=sides[1])
    return net.model(net.op("MatMul", [last, "w1"], name="after"), "hidden")


def tied() -> ModelProto:
    """One matrix read by two MatMuls and, the other way round, by a Gemm."""
    net = Net()
    x = net.input("x", ["n", 8])
    net.weight("w", 8, 8)
    last = net.op("Relu", [net.op("MatMul", [x, "w"], name="first")])
    last = net.op("Relu", [net.op("MatMul", [last, "w"], name="second")])
    return net.model(net.op("Gemm", [last, "w"], name="third", transB=1))


def odd_names() -> ModelProto:
    """Empty and duplicate node names, separators, other scripts, a name as long as a line."""
    net = Net()
    last = net.input("in/put:0", ["n", 8])
    names = ["", "", "twin", "twin", "block/0:conv;a b", "слой_日本", "n" * 300, "../../etc"]
    for index, name in enumerate(names):
        weight = net.weight(f"w/{index}:;é", 8, 8)
        last = net.op("MatMul", [last, weight], f"out/{index}:0", name=name)
    return net.model(last)


def empty_tensor() -> ModelProto:
    """A Concat with a tensor of no elements, and a Slice that leaves nothing."""
    net = Net()
    x = net.input("x", ["n", 8])
    net.const("nothing", np.zeros((0, 8), np.float32))
    joined = net.op("Concat", [x, "nothing"], name="join", axis=0)
    net.weight("w", 8, 8)
    net.weight("w2", 8, 4)
    hidden = net.op("MatMul", [joined, "w"], name="first")
    for name, value in {"from": [0], "to": [0], "axis": [1]}.items():
        net.const(name, np.array(value, np.int64))
    gone = net.op("Slice", [hidden, "from", "to", "axis"], name="gone")
    both = net.op("Concat", [hidden, gone], name="both", axis=1)
    return net.model(net.op("MatMul", [both, "w2"], name="second"), gone)


def no_compute() -> ModelProto:
    """Nothing here gains by INT8."""
    net = Net()
    last = net.op("Softmax", [net.input("x", ["n", 8])], name="soft")
    return net.model(net.op("Erf", [last], name="erf"))


def float64() -> ModelProto:
    net = Net()
    x = net.input("x", ["n", 8], TensorProto.DOUBLE)
    net.const("w", net.random.standard_normal((8, 4)).astype(np.float64))
    return net.model(net.op("MatMul", [x, "w"], name="half"), kind=TensorProto.DOUBLE)


def quantized(rest: bool = False) -> ModelProto:
    """A MatMul between QuantizeLinear and DequantizeLinear; `rest` adds a float one behind it."""
    net = Net()
    x = net.input("x", ["n", 8])
    net.const("s", np.float32(0.05))
    net.const("z", np.uint8(128))
    net.const("ws", np.float32(0.01))
    net.const("wz", np.int8(0))
    net.const("w", net.random.integers(-100, 100, (8, 8)).astype(np.int8))
    code = net.op("QuantizeLinear", [x, "s", "z"], name="q")
    back = net.op("DequantizeLinear", [code, "s", "z"], name="dq")
    weight = net.op("DequantizeLinear", ["w", "ws", "wz"], name="dqw")
    last = net.op("MatMul", [back, weight], name="inner")
    if rest:
        net.weight("w2", 8, 4)
        last = net.op("Relu", [last], name="between")
        last = net.op("MatMul", [last, "w2"], name="free")
    return net.model(last)


def feeds(model: ModelProto, count: int = 4, batch: int = 8, seed: int = 1) -> list[Feed]:
    """Batches that fit the model: normal floats, small ids, masks of ones with a tail of zeros."""
    random = np.random.default_rng(seed)
    return [_feed(model, batch, random) for _ in range(count)]


def _feed(model: ModelProto, batch: int, random: np.random.Generator) -> Feed:
    found = {}
    for value in model.graph.input:
        tensor = value.type.tensor_type
        known = {"n": batch, "s": 6}
        shape = [dim.dim_value or known.get(dim.dim_param, batch) for dim in tensor.shape.dim]
        dtype = helper.tensor_dtype_to_np_dtype(tensor.elem_type)
        if value.name == "mask":
            array = np.ones(shape)
            array[:, -2:] = 0
        elif np.dtype(dtype).kind in "iu":
            array = random.integers(0, 32, shape)
        else:
            array = random.standard_normal(shape)
        found[value.name] = array.astype(dtype)
    return found


def run(model: Any, feed: Feed) -> list[np.ndarray]:
    """Outputs of a ModelProto, a path or bytes; on one thread they are the same each time."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    source = _nameless(model).SerializeToString() if isinstance(model, ModelProto) else model
    source = str(source) if isinstance(source, Path) else source
    session = ort.InferenceSession(source, options, providers=["CPUExecutionProvider"])
    return list(session.run(None, feed))


def _nameless(model: ModelProto) -> ModelProto:
    """The runtime refuses two nodes of one name, which ONNX allows."""
    twin = ModelProto()
    twin.CopyFrom(model)
    for node in twin.graph.node:
        node.name = ""
    return twin


def fidelity(model: ModelProto, data: Iterable[Feed]) -> Callable[[Any], float]:
    """An eval_func: 1 for the outputs of `model`, the less the further the candidate's are off."""
    data = list(data)
    truth = [run(model, feed) for feed in data]

    def closeness(candidate: Any) -> float:
        error = power = 0.0
        for feed, expected in zip(data, truth, strict=True):
            for one, other in zip(expected, run(candidate, feed), strict=True):
                error += float(np.square(one.astype(np.float64) - other).sum())
                power += float(np.square(one.astype(np.float64)).sum())
        return 1.0 - error / (power or 1.0)

    return closeness


def save_external(model: ModelProto, path: Path, location: str = "weights.bin") -> Path:
    """`model` at `path` with every weight in one file beside it."""
    twin = ModelProto()
    twin.CopyFrom(model)
    onnx.save(twin, str(path), save_as_external_data=True, location=location, size_threshold=0)
    return path


def build(model: ModelProto, data: Iterable[Any] | None = None, approach: str = "static") -> Any:
    """The model with every op at its most wanted config, as lpot's handle; nothing on disk."""
    from lpot.backends.onnx import OnnxBackend
    from lpot.core.space import restrict

    backend = OnnxBackend()
    source = backend.load(model)
    recipe = restrict(backend.inspect(source, approach), ()).default()
    batches = [batch if isinstance(batch, dict) else (batch,) for batch in data or feeds(model)]
    observed = backend.observe(source, batches, (0,))[0] if approach == "static" else None
    return backend.build(source, recipe, observed)
