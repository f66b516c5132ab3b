"""What a recipe really becomes: fallback per edge, islands dropped, clamps swallowed."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

import onnxruntime as ort

from backends.onnx.nets import Net, cnn, images, mlp, tokens
from lpot.backends.onnx import OnnxBackend
from lpot.backends.onnx.abilities import Kernels
from lpot.backends.onnx.model import OnnxModel
from lpot.backends.onnx.save import plain
from lpot.core.recipe import OpKey, Recipe
from lpot.core.space import TuningSpace, restrict


class Bench:
    """A loaded net, its space, and builds of it."""

    def __init__(self, model: onnx.ModelProto, batches: list, kernels: Kernels | None = None):
        self.backend = OnnxBackend()
        self.backend.kernels = kernels or self.backend.kernels
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


def silus() -> onnx.ModelProto:
    net = Net()
    x, shapes = "x", {"stem": (8, 3, 3, 3), "deep": (8, 1, 3, 3), "last": (8, 8, 1, 1)}
    for name, shape in shapes.items():
        x = net.conv(x, name, shape, group=8 if name == "deep" else 1)
        x = net.add("Mul", [net.add("Sigmoid", [x], f"{name}.gate"), x], f"{name}.silu")
    net.add("GlobalAveragePool", [x], "mean")
    return net.make({"x": ["n", 3, 16, 16]}, ["mean"])


def test_a_silu_behind_int8_is_one_op() -> None:
    bench = Bench(silus(), images())
    built = bench.build()
    (exact,), (low,) = (bench.backend.run(one, images()[0]) for one in (bench.model, built))
    assert np.abs(exact - low).max() < 0.03 * np.abs(exact).max()
    assert kinds(built).count("QuickGelu") == 3 and "Sigmoid" not in kinds(built)
    spelled = plain(built.graph)
    assert not any(node.domain for node in spelled.nodes)
    (same,) = bench.backend.run(OnnxModel(bench.backend, spelled), images()[0])
    assert np.abs(same - low).max() < 0.03 * np.abs(exact).max()
    # One between floats is the runtime's affair.
    assert "QuickGelu" not in kinds(bench.build("stem", "deep", "last"))
    parted = bench.build("stem.gate")
    assert kinds(parted).count("QuickGelu") == 3
    assert parted.precisions[bench.key("stem.silu")] == "fp32"


def test_an_activation_that_the_product_s_kernel_does_is_not_rounded_before() -> None:
    data = images()
    plain = Bench(silus(), data).build()
    fused = Bench(silus(), data, Kernels(("Conv", "MatMul", "Gemm"), ("Sigmoid",), silu=""))
    built = fused.build()
    assert reads(plain, "deep.silu") == ["deep/dequantized"]
    assert reads(built, "deep.gate") == ["deep"] and "deep/quantized" not in str(built.graph.nodes)
    assert reads(built, "last")[0] == "deep.silu/dequantized"
    assert built.precisions[fused.key("deep.silu")] == built.precisions[fused.key("deep")] == "int8"
    assert reads(built, "mean") == ["last.silu"], "Conv gives floats to whom they suffice"
    # Those of a convolution that stays float stay, too; so does one of which a part is kept back.
    assert fused.build("last").precisions[fused.key("last.silu")] == "fp32"
    parted = fused.build("stem.gate").precisions
    assert parted[fused.key("stem")] == "int8" and parted[fused.key("stem.silu")] == "fp32"
