"""Models of every shape: what can be INT8 is, the rest says why not, and outputs stay close."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

import lpot
import onnx_models
from lpot.backends.onnx import OnnxBackend
from lpot.core.ptq.distance import distance

MAKERS: dict[str, Callable[[], ModelProto]] = {
    "mlp": onnx_models.mlp,
    "cnn": onnx_models.cnn,
    "fixed batch": lambda: onnx_models.cnn(batch=8),
    "transposed convolution": onnx_models.conv_transpose,
    "transformer": onnx_models.transformer,
    "subgraph": onnx_models.with_if,
    "tied weights": onnx_models.tied,
    "odd names": onnx_models.odd_names,
    "empty tensors": onnx_models.empty_tensor,
    "half quantized": lambda: onnx_models.quantized(rest=True),
    **{f"mlp opset {n}": lambda n=n: onnx_models.mlp(opset=n) for n in (11, 12, 13, 21)},
    **{f"cnn opset {n}": lambda n=n: onnx_models.cnn(opset=n) for n in (11, 12, 13)},
}


CASES = [
    (name, approach)
    for name in MAKERS
    for approach in ("static", "dynamic", "auto")
    if (name, approach) != ("transposed convolution", "dynamic")  # no kernel does it
    and ("opset" not in name or approach == "static")
    and (approach != "auto" or name in ("mlp", "cnn", "transformer"))
]


@pytest.mark.parametrize(("name", "approach"), CASES)
def test_each_model_is_quantized_and_stays_close(tune: Any, name: str, approach: str) -> None:
    model = MAKERS[name]()
    data = onnx_models.feeds(model, count=8)
    result = tune(model, data, onnx_models.fidelity(model, data), goal=0.002, approach=approach)
    assert result.met is True
    assert not any(trial.error for trial in result.trials)
    assert result.recipe.low_ops
    assert result.precisions.get("int8", 0) > 0
    # Data never seen, in a batch never seen.
    other = onnx_models.feeds(model, count=1, batch=8 if name == "fixed batch" else 3, seed=77)
    assert onnx_models.fidelity(model, other)(result.path) > 0.95


def test_every_op_of_every_model_is_listed_with_a_reason() -> None:
    backend = OnnxBackend()
    for name, maker in MAKERS.items():
        model = maker()
        capability = backend.inspect(backend.load(model))
        listed = len(capability.ops)
        plumbing = sum(
            node.op_type in ("Constant", "Shape", "Identity") for node in model.graph.node
        )
        inner = sum(
            len(item.g.node)
            for node in model.graph.node
            if node.op_type == "If"
            for item in node.attribute
        )
        assert listed == len(model.graph.node) + inner - plumbing, name
        for key, info in capability.ops.items():
            assert info.can_be_low or info.reason, (name, key)


NOTHING: dict[str, tuple[Callable[[], ModelProto], str]] = {
    "no such ops": (onnx_models.no_compute, "INT8 Softmax runs at a fifth"),
    "float64": (onnx_models.float64, "not a float32 op"),
    "already quantized": (onnx_models.quantized, "already quantized"),
}


@pytest.mark.parametrize("name", NOTHING)
@pytest.mark.parametrize("judged", [True, False])
def test_nothing_to_quantize_is_flagged_with_the_reason(tune: Any, name: str, judged: bool) -> None:
    maker, reason = NOTHING[name]
    model = maker()
    result = tune(model, evaluate=(lambda given: 1.0) if judged else None)
    assert result.met is (True if judged else None)
    assert any("no op of this model can be quantized" in n and reason in n for n in result.notes)
    feed = onnx_models.feeds(model)[0]
    expected = onnx_models.run(model, feed)[0]
    assert np.array_equal(onnx_models.run(result.model.native, feed)[0], expected)
    assert np.array_equal(onnx_models.run(result.path, feed)[0], expected)


def test_all_ops_kept_by_the_user_says_so(tune: Any) -> None:
    result = tune(evaluate=lambda model: 1.0, keep_fp32=[".*"])
    assert result.met is True
    assert any("kept in FP32 under your rules" in note for note in result.notes)


def test_what_is_quantized_already_is_left_alone(tune: Any) -> None:
    model = onnx_models.quantized(rest=True)
    result = tune(model)
    assert [key.name for key in result.recipe.low_ops if key.kind == "MatMul"] == ["free"]
    before = {tensor.name: tensor.raw_data for tensor in model.graph.initializer}
    after = {tensor.name: tensor.raw_data for tensor in result.model.native.graph.initializer}
    assert after["w"] == before["w"]


def test_a_model_made_here_is_not_quantized_again(tune: Any) -> None:
    first = tune(onnx_models.cnn())
    data = onnx_models.feeds(onnx_models.cnn())
    again = tune(str(first.path), data, new_run=True)
    assert not again.recipe.low_ops or len(again.recipe.low_ops) < len(first.recipe.low_ops)
    for feed in data:
        one, other = (onnx_models.run(path, feed)[0] for path in (first.path, again.path))
        assert np.abs(one - other).max() <= 0.05 * np.abs(one).max()


def test_tied_weights_are_stored_once(tune: Any) -> None:
    model = tune(onnx_models.tied()).model.native
    matrices = [t for t in model.graph.initializer if list(t.dims) == [8, 8]]
    assert {tensor.data_type for tensor in matrices} == {TensorProto.INT8}
    assert len(matrices) <= 2  # one a side: the two MatMuls share theirs
    assert len({tensor.raw_data for tensor in matrices}) == len(matrices)


def test_branches_are_quantized_and_share_weights_with_the_rest(tune: Any) -> None:
    model = onnx_models.with_if()
    data = onnx_models.feeds(model, count=8)
    result = tune(model, data)
    low = {key.name for key in result.recipe.low_ops}
    assert {"before", "after", "branch/then/before", "branch/else/before"} <= low
    made = result.model.native
    (branch,) = [node for node in made.graph.node if node.op_type == "If"]
    for item in branch.attribute:
        assert "QuantizeLinear" in {node.op_type for node in item.g.node}
        assert all(
            tensor.data_type != TensorProto.FLOAT or not tensor.dims or len(tensor.dims) < 2
            for tensor in item.g.initializer
        )
    stored = [t.name for t in made.graph.initializer]
    assert not {"w0", "inner"} & set(stored)
    for feed in data:
        before, after = (onnx_models.run(given, feed) for given in (model, result.path))
        assert distance(before, after) < 0.02


def test_a_branch_that_no_sample_takes_stays_as_it_is(tune: Any) -> None:
    model = onnx_models.with_if()
    data = [{"x": np.abs(feed["x"])} for feed in onnx_models.feeds(model, count=4)]
    result = tune(model, data)
    words = {key.name: word for key, word in result.model.precisions.items()}
    assert words["branch/then/before"] == "int8"
    assert words.get("branch/else/before", "fp32") == "fp32"
    (branch,) = [node for node in result.model.native.graph.node if node.op_type == "If"]
    kinds = {item.name: {node.op_type for node in item.g.node} for item in branch.attribute}
    assert kinds["else_branch"] == {"MatMul"}
    assert "QuantizeLinear" in kinds["then_branch"]


def test_an_op_in_a_branch_can_be_kept(tune: Any) -> None:
    result = tune(onnx_models.with_if(), keep_fp32=["branch/then/before"])
    assert "branch/then/before" not in {key.name for key in result.recipe.low_ops}
    assert "branch/else/before" in {key.name for key in result.recipe.low_ops}


def test_names_are_kept_as_the_user_knows_them(tune: Any) -> None:
    model = onnx_models.odd_names()
    result = tune(model, keep_fp32=["block/0:conv;a b", "слой_日本"])
    assert [value.name for value in result.model.native.graph.input] == ["in/put:0"]
    assert [value.name for value in result.model.native.graph.output] == ["out/7:0"]
    assert {"block/0:conv;a b", "слой_日本"} & {key.name for key in result.recipe.ops} == set()
    assert lpot.load(result.path).recipe == result.recipe
    names = [node.name for node in result.model.native.graph.node]
    assert len(names) == len(set(names)) and all(names)


def test_outputs_keep_names_and_order() -> None:
    for maker in MAKERS.values():
        model = maker()
        made = onnx_models.build(model).native
        assert [v.name for v in made.graph.output] == [v.name for v in model.graph.output]
        assert [v.name for v in made.graph.input] == [v.name for v in model.graph.input]


def test_weights_that_are_listed_as_inputs_too(tune: Any) -> None:
    """IR version 3 asks for it."""
    model = onnx_models.cnn(opset=11)
    model.ir_version = 3
    for tensor in model.graph.initializer:
        value = helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims)
        model.graph.input.append(value)
    plain = onnx_models.cnn(opset=11)
    data = onnx_models.feeds(plain)
    result = tune(model, data, onnx_models.fidelity(plain, data))
    assert result.met is True
    assert [value.name for value in result.model.native.graph.input] == ["image"]


def test_constants_in_nodes_and_behind_other_ops(tune: Any) -> None:
    """Exporters hide weights in Constant nodes, and turn them in the graph."""
    net = onnx_models.Net()
    x = net.input("x", ["n", 8])
    weight = net.random.standard_normal((4, 8)).astype(np.float32)
    value = helper.make_tensor("value", TensorProto.FLOAT, weight.shape, weight.ravel())
    net.nodes.append(helper.make_node("Constant", [], ["w"], name="c", value=value))
    turned = net.op("Transpose", [net.op("Identity", ["w"], name="same")], name="turn", perm=[1, 0])
    model = net.model(net.op("MatMul", [x, turned], name="matmul"))
    result = tune(model)
    assert [key.name for key in result.recipe.low_ops] == ["matmul"]


def test_a_weight_that_is_an_output_too(tune: Any) -> None:
    net = onnx_models.Net()
    x = net.input("x", ["n", 8])
    net.weight("w", 8, 8)
    model = net.model(net.op("MatMul", [x, "w"], "y", name="matmul"), "w")
    feed = onnx_models.feeds(model)[0]
    made = tune(model).path
    assert np.array_equal(onnx_models.run(made, feed)[1], onnx_models.run(model, feed)[1])


def test_an_input_that_is_an_output_and_one_that_nobody_reads(tune: Any) -> None:
    net = onnx_models.Net()
    x = net.input("x", ["n", 8])
    net.input("unused", ["n", 3])
    net.weight("w", 8, 4)
    net.weight("idle", 64, 64)
    net.op("MatMul", [x, "w"], "y", name="matmul")
    net.op("Identity", [x], "copy", name="copy")
    model = net.model("y", "copy")
    feed = onnx_models.feeds(model)[0]
    made = tune(model).path
    assert np.array_equal(onnx_models.run(made, feed)[1], feed["x"])


def test_one_tensor_read_twice_by_one_op(tune: Any) -> None:
    net = onnx_models.Net()
    x = net.input("x", ["n", 8])
    net.weight("w", 8, 8)
    net.weight("w2", 8, 4)
    hidden = net.op("MatMul", [x, "w"], name="first")
    squared = net.op("Mul", [hidden, hidden], name="square")
    doubled = net.op("Add", [squared, squared], name="double")
    model = net.model(net.op("MatMul", [doubled, "w2"], name="second"))
    data = onnx_models.feeds(model)
    assert tune(model, data, onnx_models.fidelity(model, data), goal=0.01).met is True


def test_a_scalar_model_without_inputs(tune: Any) -> None:
    """Nothing to feed, nothing to calibrate, nothing to gain."""
    net = onnx_models.Net()
    net.const("a", np.ones((4, 4), np.float32))
    model = net.model(net.op("MatMul", ["a", "a"], name="fixed"))
    result = tune(model, calib=[{}])
    assert result.met is None


def test_one_dimensional_and_batched_products(tune: Any) -> None:
    net = onnx_models.Net()
    x = net.input("x", ["n", 3, 2, 8])
    net.weight("stack", 3, 8, 8)
    net.weight("vector", 8)
    hidden = net.op("MatMul", [x, "stack"], name="stacked")
    model = net.model(net.op("MatMul", [hidden, "vector"], name="vectored"))
    data = onnx_models.feeds(model)
    for approach in ("static", "dynamic"):
        judge = onnx_models.fidelity(model, data)
        result = tune(model, data, judge, goal=0.01, approach=approach, new_run=True)
        assert not any(trial.error for trial in result.trials), approach


@pytest.mark.parametrize("shape", [(4, 1), (4, 4), (1, 4), (4,), (1,), (), (1, 1)])
@pytest.mark.parametrize("approach", ["static", "dynamic"])
def test_biases_of_every_shape(shape: tuple[int, ...], approach: str) -> None:
    """One number per row looks like one per column when there are as many of both."""
    net = onnx_models.Net()
    x = net.input("x", [4, 8])
    net.weight("w", 8, 4)
    net.const("b", net.random.standard_normal(shape).astype(np.float32))
    gemm = net.op("Gemm", [x, "w", "b"], name="gemm", alpha=0.5, beta=3.0)
    net.weight("w2", 4, 4)
    model = net.model(net.op("MatMul", [gemm, "w2"], name="after"))
    data = onnx_models.feeds(model, batch=4)
    made = onnx_models.build(model, data, approach)
    assert ("gemm" in {key.name for key in made.recipe.low_ops}) is (shape not in [(4, 1), (4, 4)])
    assert onnx_models.fidelity(model, data)(made.native) > 0.999


def test_scalars_stay_scalars(tune: Any) -> None:
    """A scalar input, and a scalar constant behind an op that is folded away."""
    net = onnx_models.Net()
    x = net.input("x", ["n", 2, 8])
    gain = net.input("gain", [])
    index = net.op("Cast", [net.const("one", np.int32(1))], name="cast", to=TensorProto.INT64)
    row = net.op("Gather", [x, index], name="row", axis=1)
    net.weight("w", 8, 4)
    model = net.model(net.op("MatMul", [net.op("Mul", [row, gain]), "w"], name="matmul"))
    random = np.random.default_rng(0)
    data = [
        {"x": random.standard_normal((4, 2, 8)).astype(np.float32), "gain": np.array(n, np.float32)}
        for n in (1, 2)
    ]
    result = tune(model, data, onnx_models.fidelity(model, data))
    assert result.met is True
