"""Rewrites that make the model quicker: the same numbers, in ops that the runtime does well."""

from __future__ import annotations

from collections import Counter

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

from backends.onnx.nets import Net
from lpot.backends.onnx import OnnxBackend
from lpot.backends.onnx.load import load_graph
from lpot.backends.onnx.passes.merge_reshapes import merge_reshapes
from lpot.backends.onnx.passes.move_guards import move_guards
from lpot.backends.onnx.passes.pool_means import pool_means
from lpot.backends.onnx.passes.spread_layernorm import spread_layernorm
from lpot.backends.onnx.run import session
from lpot.core.space import restrict
from onnx_models import Net as Writer


def kinds(graph: object) -> Counter:
    return Counter(node.op_type for node in graph.nodes)  # type: ignore[attr-defined]


def agree(before: object, after: object, x: np.ndarray) -> None:
    one, other = (session(graph).run(None, {"x": x}) for graph in (before, after))  # type: ignore[arg-type]
    for left, right in zip(one, other, strict=True):
        assert left.shape == right.shape
        np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)


def norm(shape: list, width: int = 64, bias: bool = True, **attributes: object) -> onnx.ModelProto:
    net = Net()
    inputs = ["x", net.weight("g", (width,), 1.0)] + [net.weight("b", (width,))] * bias
    net.add("LayerNormalization", inputs, "y", **attributes)
    return net.make({"x": shape}, ["y"])


@pytest.mark.parametrize("shape", [[4, 32, 64], ["n", "t", 64], ["n", 64], ["n", 2, "t", 64]])
@pytest.mark.parametrize("bias", [True, False])
def test_layernorm_in_any_number_of_dimensions(shape: list, bias: bool) -> None:
    graph, _ = load_graph(norm(shape, bias=bias, epsilon=0.1))
    spread = spread_layernorm(graph)
    assert kinds(spread)["InstanceNormalization"] == 1
    assert kinds(spread)["LayerNormalization"] == 0
    sizes = [size if isinstance(size, int) else 3 for size in shape]
    x = np.random.default_rng(0).standard_normal(sizes).astype(np.float32)
    agree(graph, spread, x * 3 + 100)  # a mean far from zero costs no digits


def test_layernorm_over_several_axes_or_tiny_is_left() -> None:
    for model in (
        norm([4, 32, 64], 64, axis=2, epsilon=1e-5),
        norm([2, 3, 64]),
    ):
        graph, _ = load_graph(model)
        small = graph.shapes["x"] == (2, 3, 64)
        assert (spread_layernorm(graph) is graph) == small
    net = Net()
    net.weights["g"] = np.ones((32, 64), np.float32)
    net.add("LayerNormalization", ["x", "g"], "y", axis=1)
    graph, _ = load_graph(net.make({"x": [4, 32, 64]}, ["y"]))
    assert spread_layernorm(graph) is graph


def test_only_models_with_low_precision_are_rewritten() -> None:
    net = Net()
    net.add("LayerNormalization", ["x", net.weight("g", (64,), 1.0)], "n")
    net.add("MatMul", ["n", net.weight("w", (64, 64))], "y")
    backend = OnnxBackend()
    model = backend.load(net.make({"x": ["n", "t", 64]}, ["y"]))
    recipe = restrict(backend.inspect(model), ()).default()
    x = np.random.default_rng(0).standard_normal((2, 40, 64)).astype(np.float32)
    seen = backend.observe(model, [(x,)], (0,))[0]
    assert kinds(backend.build(model, recipe, seen).graph)["InstanceNormalization"] == 1
    low = backend.build(model, recipe.with_float(recipe.low_ops), seen)
    assert kinds(low.graph)["LayerNormalization"] == 1


@pytest.mark.parametrize("opset", [13, 18])
@pytest.mark.parametrize("keepdims", [0, 1])
@pytest.mark.parametrize("axes", [[2, 3], [-1, -2]])
def test_mean_over_pixels_is_a_pool(opset: int, keepdims: int, axes: list[int]) -> None:
    graph, _ = load_graph(mean(opset, axes, keepdims))
    pooled = pool_means(graph)
    assert kinds(pooled)["GlobalAveragePool"] == 1
    agree(graph, pooled, np.random.default_rng(0).standard_normal((2, 8, 5, 7)).astype(np.float32))


@pytest.mark.parametrize("axes", [[1, 2], [2], [1, 2, 3]])
def test_other_means_are_left(axes: list[int]) -> None:
    graph, _ = load_graph(mean(18, axes, 1))
    assert pool_means(graph) is graph


def mean(opset: int, axes: list[int], keepdims: int) -> onnx.ModelProto:
    net = Net()
    if opset < 18:
        net.add("ReduceMean", ["x"], "y", axes=axes, keepdims=keepdims)
    else:
        net.weights["axes"] = np.array(axes)
        net.add("ReduceMean", ["x", "axes"], "y", keepdims=keepdims)
    return net.make({"x": ["n", 8, 5, 7]}, ["y"], opset)


def test_a_net_ends_in_int8_where_its_mean_does_not_say_pool() -> None:
    net = Net()
    net.weights["axes"] = np.array([2, 3])
    x = net.add("Relu", [net.conv("x", "conv", (8, 3, 3, 3))], "relu")
    x = net.add("ReduceMean", [x, "axes"], "mean", keepdims=0)
    net.add("Gemm", [x, net.weight("w", (8, 4)), net.weight("b", (4,))], "y")
    backend = OnnxBackend()
    model = backend.load(net.make({"x": ["n", 3, 8, 8]}, ["y"], 18))
    recipe = restrict(backend.inspect(model), ()).default()
    batch = np.random.default_rng(0).standard_normal((4, 3, 8, 8)).astype(np.float32)
    built = backend.build(model, recipe, backend.observe(model, [(batch,)], (0,))[0])
    assert {key.name: word for key, word in built.precisions.items()}["mean"] == "int8"


def test_reshapes_in_a_row() -> None:
    net = Net()
    net.weights |= {
        "flat": np.array([-1, 6]),
        "deep": np.array([-1, 3, 2]),
        "keep": np.array([0, -1]),
    }
    net.add("Reshape", ["x", "flat"], "a")
    net.add("Reshape", ["a", "deep"], "b")
    net.add("Reshape", ["b", "keep"], "c")  # takes its first size from what it reads
    net.add("Relu", ["c"], "y")
    graph, _ = load_graph(net.make({"x": [4, 3, 2]}, ["y"]))
    merged = merge_reshapes(graph)
    assert [node.input[0] for node in merged.nodes if node.op_type == "Reshape"] == ["x", "b"]
    agree(graph, merged, np.arange(24, dtype=np.float32).reshape(4, 3, 2))


def test_a_reshape_that_others_read_stays() -> None:
    net = Net()
    net.weights |= {"flat": np.array([-1, 6]), "deep": np.array([-1, 3, 2])}
    net.add("Reshape", ["x", "flat"], "a")
    net.add("Reshape", ["a", "deep"], "b")
    graph, _ = load_graph(net.make({"x": [4, 3, 2]}, ["a", "b"]))
    assert merge_reshapes(graph) is graph


ROWS = (2, 2, 5, 4)
FORBIDDEN = -np.inf


def attention(mask: np.ndarray | None, given: bool, read_twice: bool = False) -> onnx.ModelProto:
    """As exporters write it: rows of NaN, which have no key at all, become zeros."""
    net = Writer()
    q, k, v = (net.input(name, ROWS) for name in "qkv")
    scores = net.op("MatMul", [q, net.op("Transpose", [k], perm=[0, 1, 3, 2])])
    if given:
        scores = net.op("Add", [scores, net.input("mask", [2, 1, 5, 5])])
    elif mask is not None:
        parts = [np.isfinite(mask), np.float32(0), np.float32(FORBIDDEN)]
        names = [net.const(f"mask{index}", np.asarray(part)) for index, part in enumerate(parts)]
        scores = net.op("Add", [scores, net.op("Where", names)])
    soft = net.op("Softmax", [scores], axis=-1)
    zero = net.const("zero", np.float32(0))
    sure = net.op("Where", [net.op("IsNaN", [soft]), zero, soft])
    outputs = [net.op("MatMul", [sure, v], "y")]
    return net.model(*outputs, *([net.op("Abs", [soft], "seen")] if read_twice else []))


def masks() -> dict[str, np.ndarray]:
    triangle = np.where(np.tri(5) > 0, 0.0, FORBIDDEN).astype(np.float32)
    empty = triangle.copy()
    empty[2] = FORBIDDEN
    wide = {"open": np.zeros((5, 5), np.float32), "triangle": triangle, "empty": empty}
    return {name: np.broadcast_to(mask, (2, 1, 5, 5)).copy() for name, mask in wide.items()}


@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("word", ["none", *masks()])
def test_guards_leave_the_probabilities(word: str, given: bool) -> None:
    if word == "none" and given:
        return
    mask = masks().get(word)
    graph = load_graph(attention(mask, given))[0]
    moved = move_guards(graph)
    random = np.random.default_rng(0)
    feeds = {name: random.standard_normal(ROWS).astype(np.float32) for name in "qkv"}
    feeds |= {"mask": mask} if given and mask is not None else {}
    (truth,), (found,) = (session(one).run(None, feeds) for one in (graph, moved))
    np.testing.assert_allclose(found, truth, rtol=1e-6, atol=1e-7)
    assert np.isfinite(found).all()
    tested = [node.input[0] for node in moved.nodes if node.op_type == "IsNaN"]
    behind = {name for node in moved.nodes if node.op_type == "MatMul" for name in node.output}
    assert len(tested) == (given or word == "empty") and behind.issuperset(tested)
    assert ("Add" in {node.op_type for node in moved.nodes}) == (given or word[0] in "te")


def test_a_guard_that_others_read_stays() -> None:
    graph = load_graph(attention(None, False, read_twice=True))[0]
    assert move_guards(graph) is graph
