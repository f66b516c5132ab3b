"""Each pass leaves the FP32 function as it was, to float accuracy."""

from __future__ import annotations

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

import onnxruntime as ort

from backends.onnx.nets import Net, cnn, images, mlp, tokens
from lpot.backends.onnx import OnnxBackend
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.load import load_graph
from lpot.backends.onnx.prepare import PASSES, Pass, Probe, apart, prepare
from lpot.backends.onnx.run import session
from lpot.core.space import restrict
from onnx_models import Net as Writer
from random_graphs import odd_graph


def outputs(graph: object, feeds: dict[str, np.ndarray]) -> list[np.ndarray]:
    return session(graph).run(None, feeds)  # type: ignore[arg-type]


def check(model: onnx.ModelProto, feeds: dict[str, np.ndarray], kinds: set[str]) -> OnnxBackend:
    """The folded graph computes the same and has these kinds of ops."""
    backend = OnnxBackend()
    loaded = backend.load(model)
    assert {node.op_type for node in loaded.prepared.nodes} == kinds
    for one, other in zip(
        outputs(loaded.graph, feeds), outputs(loaded.prepared, feeds), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-4)
    return backend


def test_fold_batchnorm() -> None:
    kinds = {"Conv", "Relu", "Add", "MaxPool", "GlobalAveragePool", "Flatten", "Gemm"}
    check(cnn(), {"x": images()[0][0]}, kinds)


@pytest.mark.parametrize("shape", [[4, 5, 32], ["n", 5, 32], [4, "t", 32]])
def test_fuse_matmul_bias_with_at_most_one_open_dimension(shape: list) -> None:
    model = mlp()
    fixed = onnx.helper.make_tensor_value_info("x", 1, shape)
    model.graph.input[0].CopyFrom(fixed)
    x = np.random.default_rng(0).standard_normal((4, 5, 32)).astype(np.float32)
    check(model, {"x": x}, {"Reshape", "Gemm", "Tanh", "MatMul", "Add"})


def test_two_open_dimensions_stay_matmul() -> None:
    check(mlp(), {"x": tokens()[0][0]}, {"MatMul", "Tanh", "Add"})


@pytest.mark.parametrize(
    ("kernel", "stride", "pads", "extra"),
    [(2, 2, 0, 0), (4, 2, 1, 0), (3, 2, 1, 1), (3, 2, 0, 0), (5, 3, 1, 0), (3, 3, 0, 0)],
)
def test_spread_transposed_conv(kernel: int, stride: int, pads: int, extra: int) -> None:
    net = Net()
    up = [net.weight("w", (6, 4, kernel, kernel)), net.weight("b", (4,))]
    attributes = {"kernel_shape": [kernel] * 2, "strides": [stride] * 2, "pads": [pads] * 4}
    net.add("ConvTranspose", ["x", *up], "up", **attributes, output_padding=[extra] * 2)
    net.conv("up", "conv", (3, 4, 3, 3))
    model = net.make({"x": ["n", 6, 7, 9]}, ["conv"])
    x = np.random.default_rng(0).standard_normal((2, 6, 7, 9)).astype(np.float32)
    backend = OnnxBackend()
    loaded = backend.load(model)
    assert "ConvTranspose" not in {node.op_type for node in loaded.prepared.nodes}
    for one, other in zip(
        outputs(loaded.graph, {"x": x}), outputs(loaded.prepared, {"x": x}), strict=True
    ):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)
    space = restrict(backend.inspect(loaded), ())
    assert {(key.name, key.kind) for key in space.choices} == {
        ("up", "ConvTranspose"),
        ("conv", "Conv"),
    }
    seen = backend.observe(loaded, [(x,)], (0,))[0]
    built = backend.build(loaded, space.default(), seen)
    (truth,), (low,) = backend.run(loaded, (x,)), backend.run(built, (x,))
    assert 0 < np.abs(truth - low).max() < 0.05 * np.abs(truth).max()


def test_transposed_conv_that_has_no_kernel_says_so() -> None:
    net = Net()
    net.add("ConvTranspose", ["x", net.weight("w", (6, 2, 2, 2))], "up", group=2, strides=[2, 2])
    net.conv("up", "conv", (3, 4, 3, 3))
    backend = OnnxBackend()
    loaded = backend.load(net.make({"x": ["n", 6, 7, 9]}, ["conv"]))
    (info,) = (i for key, i in backend.inspect(loaded).ops.items() if key.kind == "ConvTranspose")
    assert "its INT8 kernel needs two dimensions, one group" in info.reason


def test_reorder_gelu_lets_the_runtime_fuse_it(tmp_path) -> None:  # type: ignore[no-untyped-def]
    net = Net()
    net.weights |= {"root": np.float32(2**0.5), "one": np.float32(1), "half": np.float32(0.5)}
    x = net.add("MatMul", ["x", net.weight("w", (8, 8))], "up")
    erf = net.add("Erf", [net.add("Div", [x, "root"], "divided")], "erf")
    shifted = net.add("Add", [erf, "one"], "shifted")
    net.add("Mul", [x, net.add("Mul", ["half", shifted], "halved")], "y")
    loaded = OnnxBackend().load(net.make({"x": ["n", 8]}, ["y"]))
    feeds = {"x": np.random.default_rng(0).standard_normal((4, 8)).astype(np.float32)}
    np.testing.assert_allclose(
        outputs(loaded.graph, feeds)[0], outputs(loaded.prepared, feeds)[0], rtol=1e-5, atol=1e-6
    )
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimized.onnx")
    ort.InferenceSession(loaded.prepared.embedded().SerializeToString(), options)
    kinds = {node.op_type for node in onnx.load(tmp_path / "optimized.onnx").graph.node}
    assert "Gelu" in kinds or "BiasGelu" in kinds


@pytest.mark.parametrize("opset", [11, 12, 13, 17])
def test_every_opset_from_11_is_quantized_per_channel(opset: int) -> None:
    backend = OnnxBackend()
    loaded = backend.load(cnn(opset))
    space = restrict(backend.inspect(loaded), ())
    conv = next(options for key, options in space.choices.items() if key.kind == "Conv")
    assert conv[0].weight is not None
    assert conv[0].weight.granularity == "per_channel"
    seen = backend.observe(loaded, images(), (0,))[0]
    built = backend.build(loaded, space.default(), seen)
    (truth,), (low,) = (backend.run(model, images()[0]) for model in (loaded, built))
    assert 0 < np.abs(truth - low).max() < 0.1 * np.abs(truth).max()


def test_gemm_with_alpha_beta_and_scalar_bias() -> None:
    net = Net()
    net.weights["b"] = np.array([0.5], np.float32)
    inputs = ["x", net.weight("w", (8, 6)), "b"]
    net.add("Gemm", inputs, "y", alpha=0.3, beta=2.0)
    backend = check(net.make({"x": ["n", 8]}, ["y"]), {"x": np.ones((3, 8), np.float32)}, {"Gemm"})
    assert backend.name == "onnx"


def torn(model: onnx.ModelProto, maker: str, reader: str, seed: int = 0) -> onnx.ModelProto:
    """The same function with the channels between two layers scaled by 2**k, k in [-4, 4]."""
    rng = np.random.default_rng(seed)
    arrays = {t.name: onnx.numpy_helper.to_array(t) for t in model.graph.initializer}
    channels = arrays[f"{maker}.w"].shape[0]
    scale = (2.0 ** rng.integers(-4, 5, channels)).astype(np.float32)
    arrays[f"{maker}.w"] = arrays[f"{maker}.w"] * scale.reshape(-1, 1, 1, 1)
    arrays[f"{maker}.b"] = arrays[f"{maker}.b"] * scale
    depthwise = arrays[f"{reader}.w"].shape[1] == 1
    shape = (-1, 1, 1, 1) if depthwise else (1, -1, 1, 1)
    arrays[f"{reader}.w"] = arrays[f"{reader}.w"] / scale.reshape(shape)
    twin = onnx.ModelProto()
    twin.CopyFrom(model)
    del twin.graph.initializer[:]
    twin.graph.initializer.extend(onnx.numpy_helper.from_array(a, n) for n, a in arrays.items())
    return twin


@pytest.mark.parametrize(
    "pair", [("block.conv1", "block.conv2"), ("depthwise", "pointwise"), ("pointwise", "last")]
)
def test_equalize_layers_mends_what_was_torn(pair: tuple[str, str]) -> None:
    feeds = {"x": images()[0][0]}
    backend = OnnxBackend()
    loaded = backend.load(torn(cnn(), *pair))
    truth = outputs(loaded.graph, feeds)[0]
    # Folding BN rounds; equalization on top of it must not change a single bit.
    from lpot.backends.onnx.passes.equalize_layers import equalize_layers

    graph = loaded.graph
    for step in PASSES:
        if step is not equalize_layers:
            graph = step(graph)
    mended = equalize_layers(graph)
    assert any(not np.array_equal(mended.weights[n], graph.weights[n]) for n in mended.weights)
    np.testing.assert_array_equal(outputs(graph, feeds)[0], outputs(mended, feeds)[0])
    space = restrict(backend.inspect(loaded), ())
    seen = backend.observe(loaded, images(), (0,))[0]
    low = backend.run(backend.build(loaded, space.default(), seen), feeds)[0]
    assert np.abs(truth - low).max() < 0.1 * np.abs(truth).max()


def test_a_sound_net_is_left_alone() -> None:
    from lpot.backends.onnx.passes.equalize_layers import equalize_layers

    graph = OnnxBackend().load(cnn()).prepared
    assert equalize_layers(graph) is graph


def test_fused_ops_of_an_optimised_file_are_taken_apart(tmp_path) -> None:  # type: ignore[no-untyped-def]
    options = ort.SessionOptions()
    options.optimized_model_filepath = str(tmp_path / "optimised.onnx")
    disabled = ["NchwcTransformer"]
    ort.InferenceSession(cnn().SerializeToString(), options, disabled_optimizers=disabled)
    model = onnx.load(tmp_path / "optimised.onnx")
    fused = {node.name for node in model.graph.node if node.op_type.startswith("Fused")}
    assert fused, "the runtime no longer fuses: this test is void"
    backend = OnnxBackend()
    loaded = backend.load(model)
    feeds = {"x": images()[0][0]}
    np.testing.assert_allclose(
        outputs(loaded.graph, feeds)[0], outputs(loaded.prepared, feeds)[0], rtol=1e-4, atol=1e-4
    )
    space = restrict(backend.inspect(loaded), ())
    assert fused <= {key.name for key in space.choices}
    seen = backend.observe(loaded, images(), (0,))[0]
    built = backend.build(loaded, space.default(), seen)
    assert all(built.precisions[key] == "int8" for key in space.choices if key.name in fused)


PLAIN = ort.GraphOptimizationLevel.ORT_DISABLE_ALL


@pytest.mark.parametrize("block", range(4))
def test_no_pass_changes_what_an_odd_graph_computes(block: int) -> None:
    for seed in range(500 * block, 500 * (block + 1)):
        graph, _ = load_graph(odd_graph(seed))
        feeds = {"x": np.random.default_rng(seed).standard_normal(graph.shapes["x"]).astype("f")}
        truth = session(graph, PLAIN).run(None, feeds)
        whole = graph
        for step in PASSES:
            whole = step(whole)
        if whole is not graph:
            found = session(whole, PLAIN).run(None, feeds)
            assert apart(truth, found) < 1e-4, f"seed {seed}"


def test_an_empty_optional_input_does_not_end_the_runtime() -> None:
    """Its fusions of LayerNormalization look at a bias that is named as missing."""
    net = Writer()
    shape = [2, 4, 4]
    names = [net.input("x", shape), net.weight("scale", 4, 4), ""]
    model = net.model(net.op("LayerNormalization", names, axis=1))
    OnnxBackend().load(model)
    for seed in (9, 11, 17):  # the same, in graphs drawn at random
        OnnxBackend().load(odd_graph(seed))


def test_the_odd_graphs_have_what_they_are_for() -> None:
    nodes, shared, twice, changed = set(), 0, 0, set()
    for seed in range(300):
        model = odd_graph(seed)
        read = [name for node in model.graph.node for name in node.input if name]
        constants = {tensor.name for tensor in model.graph.initializer}
        nodes |= {node.op_type for node in model.graph.node}
        shared += any(read.count(name) > 1 for name in constants)
        twice += any(len(set(node.input)) < len(node.input) for node in model.graph.node)
        graph, _ = load_graph(model)
        for step in PASSES:
            changed |= {step.__name__} if step(graph) is not graph else set()
    assert len(nodes) > 20 and shared > 30 and twice > 10
    # The ops of two are other files' own; guards are drawn in a file of their own.
    never = {"split_fused", "widen_halves", "move_guards"}
    assert changed == {step.__name__ for step in PASSES} - never


def _worse(graph: Graph) -> Graph:
    """A pass that is wrong in one channel of one weight."""
    name = next(name for name, array in graph.weights.items() if array.ndim > 1)
    array = graph.weights[name].copy()
    array[0] *= 1.5
    return graph.replaced(graph.nodes, {**graph.weights, name: array})


def _broken(graph: Graph) -> Graph:
    """One whose graph the runtime refuses."""
    return graph.replaced(graph.nodes[1:], graph.weights)


@pytest.mark.parametrize("wrong", [_worse, _broken])
def test_a_pass_that_changes_the_model_is_left_out_and_told(
    wrong: Pass, caplog: pytest.LogCaptureFixture
) -> None:
    graph, _ = load_graph(cnn())
    prepared = prepare(graph, session(graph), (*PASSES[:6], wrong, *PASSES[6:]))
    kinds = {node.op_type for node in prepared.nodes}
    assert "BatchNormalization" not in kinds, "the passes that are right must stay"
    assert wrong.__name__ in caplog.text
    feeds = {"x": images()[0][0]}
    assert apart(outputs(graph, feeds), outputs(prepared, feeds)) < 1e-4


def test_a_model_that_rounding_itself_tosses_about_keeps_its_passes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    net = Writer()
    last = net.input("x", ["n", 3, 8, 8])
    for index in range(2):
        last = net.op("Conv", [last, net.weight(f"w{index}", 3, 3, 3, 3)], pads=[1] * 4)
        parts = [net.const(f"{part}{index}", np.full(3, 0.7, np.float32)) for part in "gbmv"]
        last = net.op("BatchNormalization", [last, *parts])
    scaled = net.op("Mul", [last, net.const("much", np.float32(1e7))])
    graph, _ = load_graph(net.model(net.op("Sin", [scaled], "y")))
    prepared = prepare(graph, session(graph))
    assert "BatchNormalization" not in {node.op_type for node in prepared.nodes}
    assert not caplog.text


def test_a_deep_net_that_forgets_its_input_keeps_its_passes(
    caplog: pytest.LogCaptureFixture,
) -> None:
    net = Writer()
    last = net.input("x", ["n", 8, 4, 4])
    for index in range(150):
        last = net.op("Conv", [last, net.weight(f"w{index}", 8, 8, 1, 1)])
        parts = [net.const(f"{part}{index}", np.ones(8, np.float32)) for part in "gbmv"]
        last = net.op("Relu", [net.op("BatchNormalization", [last, *parts])])
    graph, _ = load_graph(net.model(last))
    kinds = {node.op_type for node in prepare(graph, session(graph)).nodes}
    assert kinds == {"Conv", "Relu"} and not caplog.text


def test_open_sizes_are_guessed_until_the_model_runs() -> None:
    net = Writer()
    image = net.input("x", ["n", 3, "h", "w"])
    last = net.op("Conv", [image, net.weight("w", 4, 3, 3, 3)])
    flat = net.op("Reshape", [last, net.const("shape", np.array([-1, 4 * 30 * 30]))])
    graph, _ = load_graph(net.model(net.op("MatMul", [flat, net.weight("v", 3600, 2)], "y")))
    probe = Probe.found(graph, session(graph))
    assert probe is not None and probe.feeds["x"].shape == (2, 3, 32, 32)
