"""Products that do not say MatMul with a constant on the right, and models in float16."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime")

import lpot
import onnx_models
from lpot.backends.onnx import OnnxBackend
from lpot.core.ptq.distance import distance
from lpot.core.space import restrict

X = np.random.default_rng(0).standard_normal((2, 8, 16)).astype(np.float32)


def einsum(equation: str, *shape: int) -> onnx.ModelProto:
    net = onnx_models.Net()
    inputs = [net.input("x", ["n", 8, 16]), net.weight("w", *shape)]
    net.op("Einsum", inputs, "y", name="product", equation=equation)
    return net.model("y")


def left() -> onnx.ModelProto:
    net = onnx_models.Net()
    net.op("MatMul", [net.weight("w", 24, 8), net.input("x", ["n", 8, 16])], "y", name="product")
    return net.model("y")


def chain() -> onnx.ModelProto:
    """The weight is a float16 Constant behind an Identity, a Cast and a Transpose."""
    net = onnx_models.Net()
    net.input("x", ["n", 8, 16])
    values = np.random.default_rng(1).standard_normal((24, 16)).astype(np.float16)
    constant = helper.make_node(
        "Constant", [], ["half"], name="half", value=numpy_helper.from_array(values)
    )
    net.nodes.append(constant)
    wide = net.op("Cast", [net.op("Identity", ["half"])], to=TensorProto.FLOAT)
    net.op("MatMul", ["x", net.op("Transpose", [wide])], "y", name="product")
    return net.model("y")


MAKERS: dict[str, Callable[[], onnx.ModelProto]] = {
    "bsh,hd->bsd": lambda: einsum("bsh,hd->bsd", 16, 24),
    "bsh,dh->bsd": lambda: einsum("bsh, dh -> bsd", 24, 16),
    "bsd,dhe->bshe": lambda: einsum("bsd,dhe->bshe", 16, 3, 4),
    "constant on the left": left,
    "chain": chain,
}


@pytest.mark.parametrize("name", MAKERS)
def test_every_form_of_a_product_is_quantized(name: str, tmp_path: Path) -> None:
    model = MAKERS[name]()
    loaded = OnnxBackend().load(model)
    (exact,) = onnx_models.run(model, {"x": X})
    (folded,) = onnx_models.run(loaded.prepared.embedded(), {"x": X})
    np.testing.assert_allclose(folded, exact, rtol=1e-4, atol=1e-4)
    result = lpot.tune(model, [{"x": X}], workspace=tmp_path, measure_speed=False)
    assert [key.name for key in result.recipe.low_ops if key.name == "product"] == ["product"]
    assert distance([exact], onnx_models.run(result.path, {"x": X})) < 0.01


@pytest.mark.parametrize(
    ("equation", "shape"),
    [("bsh,bsh->bs", (2, 8, 16)), ("bsh,sd->bhd", (8, 4)), ("bsh,hd->dbs", (16, 4))],
)
def test_other_equations_are_left(equation: str, shape: tuple[int, ...]) -> None:
    loaded = OnnxBackend().load(einsum(equation, *shape))
    assert [node.op_type for node in loaded.prepared.nodes] == ["Einsum"]


def half(inner: bool) -> onnx.ModelProto:
    """All in float16; with `inner` its input and output are float32 and cast by the model."""
    net = onnx_models.Net()
    source = net.input("x", ["n", 8, 16], TensorProto.FLOAT if inner else TensorProto.FLOAT16)
    if inner:
        source = net.op("Cast", [source], to=TensorProto.FLOAT16)
    random = np.random.default_rng(1)
    for name in ("w", "v"):
        net.const(name, (random.standard_normal((16, 16)) / 4).astype(np.float16))
    hidden = net.op("Relu", [net.op("MatMul", [source, "w"])])
    made = net.op("MatMul", [hidden, "v"], "" if inner else "y")
    if inner:
        net.op("Cast", [made], "y", to=TensorProto.FLOAT)
    return net.model("y", kind=TensorProto.FLOAT if inner else TensorProto.FLOAT16)


@pytest.mark.parametrize("inner", [True, False])
def test_float16_models_go_to_int8(inner: bool, tmp_path: Path) -> None:
    model = half(inner)
    feed = {"x": X if inner else X.astype(np.float16)}
    result = lpot.tune(model, [feed], workspace=tmp_path, measure_speed=False)
    assert len([key for key in result.recipe.low_ops if key.kind == "MatMul"]) == 2
    (exact,), (made,) = (onnx_models.run(given, feed) for given in (model, result.path))
    assert made.dtype == exact.dtype
    assert distance([exact.astype(np.float32)], [made.astype(np.float32)]) < 0.01
    kinds = [t.data_type for t in onnx.load(str(result.path)).graph.initializer if len(t.dims) == 2]
    assert set(kinds) == {TensorProto.INT8}


def embedding(rows: int = 4096, tied: bool = False) -> onnx.ModelProto:
    """Tokens looked up in a table, a product behind it; `tied` reads the table again."""
    net = onnx_models.Net()
    ids = net.input("ids", ["n", "t"], TensorProto.INT64)
    table = net.weight("table", rows, 32, scale=1.0)
    found = net.op("Gather", [table, ids], name="look_up")
    made = net.op("MatMul", [found, net.weight("w", 32, 32)], "" if tied else "y", name="product")
    if tied:
        whole = net.op("ReduceMean", [table], name="tie")
        net.op("Add", [made, whole], "y")
    return net.model("y")


@pytest.mark.parametrize("approach", ["static", "dynamic"])
def test_embeddings_are_stored_in_int8(approach: str, tmp_path: Path) -> None:
    model = embedding()
    feed = {"ids": np.random.default_rng(0).integers(0, 4096, (4, 9))}
    result = lpot.tune(model, [feed], workspace=tmp_path, measure_speed=False, approach=approach)
    assert "look_up" in {key.name for key in result.recipe.low_ops}
    stored = {t.name: t for t in onnx.load(str(result.path)).graph.initializer}
    assert "table" not in stored
    assert any(t.data_type == TensorProto.INT8 and t.dims[0] == 4096 for t in stored.values())
    exact, made = (onnx_models.run(given, feed) for given in (model, result.path))
    assert distance(exact, made) < 0.01


@pytest.mark.parametrize(
    ("model", "reason"),
    [(embedding(rows=64), "small"), (embedding(tied=True), "read by other ops")],
)
def test_tables_that_stay(model: onnx.ModelProto, reason: str) -> None:
    backend = OnnxBackend()
    ops = backend.inspect(backend.load(model)).ops
    (info,) = [info for key, info in ops.items() if key.kind == "Gather"]
    assert reason in info.reason


def test_an_embedding_can_go_back_alone() -> None:
    backend = OnnxBackend()
    model = backend.load(embedding())
    feed = {"ids": np.random.default_rng(0).integers(0, 4096, (4, 9))}
    recipe = restrict(backend.inspect(model), ()).default()
    seen = backend.observe(model, [feed], (0,))[0]
    sensitivity = backend.rank(model, recipe, seen)
    assert {key.name for key in sensitivity} == {"look_up", "product"}
    (key,) = [key for key in recipe.low_ops if key.kind == "Gather"]
    built = backend.build(model, recipe.with_float([key]), seen)
    assert "table" in built.graph.weights
