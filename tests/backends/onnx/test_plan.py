"""What a recipe really becomes: fallback per edge, islands dropped, clamps swallowed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

import onnxruntime as ort

from backends.onnx.nets import Net, cnn, images, mlp, tokens
from lpot.backends.onnx import OnnxBackend
from lpot.backends.onnx.model import OnnxModel
from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import TuningSpace, restrict


class Bench:
    """A loaded net, its space, and builds of it."""

    def __init__(self, model: onnx.ModelProto, batches: list) -> None:
        self.backend = OnnxBackend()
        self.model: OnnxModel = self.backend.load(model)
        self.space: TuningSpace = restrict(self.backend.inspect(self.model), ())
        self.seen = self.backend.observe(self.model, batches, (0,))[0]

    def key(self, name: str) -> OpKey:
        return next(key for key in self.space.choices if key.name == name)

    def build(self, *float_names: str) -> OnnxModel:
        recipe = self.space.with_float(self.space.default(), [self.key(n) for n in float_names])
        return self.backend.build(self.model, recipe, self.seen)

    def alone(self, *names: str) -> OnnxModel:
        others = [key for key in self.space.choices if key.name not in names]
        recipe = self.space.with_float(self.space.default(), others)
        return self.backend.build(self.model, recipe, self.seen)


def kinds(model: OnnxModel) -> list[str]:
    return [node.op_type for node in model.graph.nodes]


def reads(model: OnnxModel, name: str) -> list[str]:
    return list(next(node for node in model.graph.nodes if node.name == name).input)


@pytest.fixture(scope="module")
def bench() -> Bench:
    return Bench(cnn(), images())


def test_everything_that_can_is_int8(bench: Bench) -> None:
    low = {key.name for key, word in bench.build().precisions.items() if word == "int8"}
    assert {"stem", "block.conv1", "block.conv2", "depthwise", "pointwise", "last", "fc"} <= low
    assert {"block.add", "pool", "mean", "flat", "relu1"} <= low


def test_the_runtime_fuses_all_of_it(bench: Bench, tmp_path) -> None:  # type: ignore[no-untyped-def]
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    ort.InferenceSession(bench.build().native.SerializeToString(), options)
    found = [node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node]
    assert not {"Conv", "FusedConv", "Gemm", "Add", "Relu", "MaxPool"} & set(found), found
    assert found.count("DequantizeLinear") <= 1


def test_an_op_in_float_reads_floats_again(bench: Bench) -> None:
    built = bench.build("block.conv1", "block.conv2", "depthwise")
    # the stem is INT8 and its output feeds block.add in INT8: conv1 must take it dequantized
    assert built.precisions[bench.key("block.conv1")] == "fp32"
    assert reads(built, "block.conv1")[0] == "relu0/dequantized"
    assert reads(built, "block.conv2")[0] == "relu1"
    alone = bench.alone("last")
    assert kinds(alone).count("QuantizeLinear") == 2  # its input and its output, nothing else


def test_float_producer_is_read_directly(bench: Bench) -> None:
    built = bench.alone("last")
    relu4_users = [n for n in built.graph.nodes if "relu4" in n.input]
    assert [node.op_type for node in relu4_users] == ["MaxPool"], "floats stay floats"


def test_lonely_followers_drop_out(bench: Bench) -> None:
    built = bench.build("block.conv2", "pointwise", "depthwise")
    assert built.precisions[bench.key("relu4")] == "fp32"
    assert built.precisions[bench.key("pool")] == "fp32"


def test_depthwise_alone_does_not_pay(bench: Bench) -> None:
    built = bench.alone("depthwise")
    assert "QuantizeLinear" not in kinds(built)
    assert built.precisions[bench.key("depthwise")] == "fp32"


def test_matmul_gives_floats_where_floats_are_read() -> None:
    bench = Bench(mlp(), tokens())
    assert kinds(bench.build()).count("QuantizeLinear") == 2  # one per MatMul input, no output


def test_graph_output_of_an_int8_conv_keeps_its_name() -> None:
    net = Net()
    net.conv("x", "first", (4, 3, 3, 3))
    net.conv("first", "second", (4, 4, 3, 3))
    model = net.make({"x": ["n", 3, 16, 16]}, ["second", "first"])
    bench = Bench(model, images())
    outputs = bench.backend.run(bench.build(), images()[0])
    truth = bench.backend.run(bench.model, images()[0])
    for one, other in zip(truth, outputs, strict=True):
        assert 0 < np.abs(one - other).max() < 0.05 * np.abs(one).max()


def test_tied_weights_are_stored_once() -> None:
    net = Net()
    shared = net.weight("w", (16, 16))
    x = net.add("Relu", [net.add("MatMul", ["x", shared], "one")], "relu")
    net.add("MatMul", [x, shared], "two")
    bench = Bench(net.make({"x": ["n", "t", 16]}, ["two"]), [(np.ones((2, 3, 16), np.float32),)])
    data = [
        name
        for name, array in bench.build().graph.weights.items()
        if array.dtype == np.int8 and array.ndim == 2
    ]
    assert len(data) == 1


def test_weights_in_float_are_not_stored_twice(bench: Bench) -> None:
    built = bench.build()
    assert "last.w" not in built.graph.weights
    assert built.nbytes < 0.6 * bench.model.nbytes


def test_dynamic_ops_share_the_quantized_input() -> None:
    net = Net()
    for name in ("q", "k", "v"):
        net.add("MatMul", ["x", net.weight(f"{name}.w", (16, 16))], name)
    net.add("Add", [net.add("Add", ["q", "k"], "qk"), "v"], "y")
    backend = OnnxBackend()
    model = backend.load(net.make({"x": ["n", "t", 16]}, ["y"]))
    recipe = restrict(backend.inspect(model, "dynamic"), ()).default()
    built = backend.build(model, recipe, None)
    assert kinds(built).count("DynamicQuantizeLinear") == 1
    x = np.random.default_rng(0).standard_normal((2, 5, 16)).astype(np.float32)
    (truth,), (low,) = backend.run(model, (x,)), backend.run(built, (x,))
    assert 0 < np.abs(truth - low).max() < 0.05 * np.abs(truth).max()


def test_unknown_ops_in_a_recipe_are_refused(bench: Bench) -> None:
    with pytest.raises(KeyError):
        bench.space.default().replace(
            {OpKey("nobody", "Conv"): bench.space.default().ops[bench.key("last")]}
        )
    assert Recipe({}).precisions() == {}
