"""Ops inside If, Loop and Scan: quantized like any other, with ranges of the turns really taken."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

pytest.importorskip("onnxruntime")

import lpot
import onnx_models
from lpot.backends.onnx import OnnxBackend, child
from lpot.backends.onnx.abilities import bits_for, worst_error
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.load import load_graph
from lpot.backends.onnx.run import session
from lpot.backends.onnx.turns import EACH, Taps, calls, thinned
from lpot.core.errors import UnsupportedModel
from lpot.core.recipe import Recipe
from lpot.jobs.recover import recover
from zoo import onnx_odd

value = helper.make_tensor_value_info


def tensors(graph: onnx.GraphProto) -> list[onnx.TensorProto]:
    """Initializers of a graph and of all graphs in it."""
    inner = [item.g for node in graph.node for item in node.attribute if item.HasField("g")]
    return [*graph.initializer, *(tensor for below in inner for tensor in tensors(below))]


@pytest.mark.parametrize("name", ["loop", "loop that gathers", "scan", "if in loop"])
def test_products_in_bodies_are_int8(name: str, tmp_path: Path) -> None:
    model = onnx_odd.ODD[name]()
    data = onnx_odd.feeds(model)
    result = lpot.tune(model, data, workspace=tmp_path, measure_speed=False)
    products = [key for key in result.recipe.low_ops if key.kind == "MatMul"]
    inside = [key for key in products if "/body/" in key.name]
    assert inside and result.precisions["int8"] >= len(products)
    stored = tensors(onnx.load(str(result.path)).graph)
    assert not [t.name for t in stored if t.data_type == TensorProto.FLOAT and len(t.dims) == 2]
    weight = result.recipe.ops[inside[0]].weight
    assert weight is not None and weight.bits == bits_for(worst_error("MatMul"), "this")
    bound = 2e-3 * 4 ** (8 - weight.bits)  # a step of 7 bits is twice as long, its error's square 4
    for one, other in zip(
        onnx_models.run(model, data[0]), onnx_models.run(result.path, data[0]), strict=True
    ):
        assert np.square(one - other).sum() < bound * np.square(one).sum()


def test_a_trial_with_bodies_is_rebuilt_from_its_statistics(tmp_path: Path) -> None:
    model = onnx_odd.ODD["loop"]()
    data = onnx_odd.feeds(model)
    lpot.tune(model, data, lambda proto: 1.0, workspace=tmp_path, measure_speed=False)
    stored = tensors(recover(model, tmp_path, 1).native.graph)
    assert not [t.name for t in stored if t.data_type == TensorProto.FLOAT and len(t.dims) == 2]


def test_a_loop_that_no_sample_enters_stays_as_it_is(tmp_path: Path) -> None:
    model = onnx_odd.ODD["loop without turns"]()
    result = lpot.tune(model, onnx_odd.feeds(model), workspace=tmp_path, measure_speed=False)
    kept = {t.name: t.data_type for t in tensors(onnx.load(str(result.path)).graph)}
    assert kept["inner_w"] == TensorProto.FLOAT


@pytest.mark.parametrize("backwards", [0, 1])
def test_the_turns_taken_here_are_those_of_the_runtime(backwards: int) -> None:
    model = onnx_odd.ODD["scan"]()
    (node,) = [node for node in model.graph.node if node.op_type == "Scan"]
    node.attribute.append(helper.make_attribute("scan_input_directions", [backwards]))
    backend = OnnxBackend()
    loaded = backend.load(model)
    (body,) = loaded.bodies
    (feed, *_) = onnx_odd.feeds(model)
    taps = Taps(loaded, loaded.bodies)
    turns = list(calls(body, taps._values(feed)))
    state, given = backend.run(body.model, turns[-1])
    _, last = onnx_models.run(model, feed)
    assert len(turns) == 5 and np.array_equal(state, given)
    assert np.allclose(state, last, atol=1e-6)


def test_a_loop_ends_by_its_own_condition() -> None:
    net = onnx_models.Net()
    x = net.input("x", ["n", 16])
    inner = onnx_models.Net(seed=1)
    inner.op("MatMul", ["state", inner.weight("w", 16, 16, scale=0.01)], "next")
    size = inner.op("ReduceMax", [inner.op("Abs", ["next"])], keepdims=0)
    inner.op("Greater", [size, inner.const("small", np.float32(1e-3))], "still")
    body = helper.make_graph(
        inner.nodes,
        "body",
        [value("i", 7, []), value("on", 9, []), value("state", 1, None)],
        [value("still", 9, []), value("next", 1, None), value("next", 1, None)],
        inner.weights,
    )
    net.nodes.append(helper.make_node("Loop", ["", "", x], ["y", "all"], name="l", body=body))
    model = net.model("y", "all")
    loaded = OnnxBackend().load(model)
    feed = {"x": np.ones((2, 16), np.float32)}
    turns = list(calls(loaded.bodies[0], Taps(loaded, loaded.bodies)._values(feed)))
    assert len(turns) == len(onnx_models.run(model, feed)[1])


def test_calls_are_thinned_evenly() -> None:
    kept = [int(one["i"]) for one in thinned({"i": np.array(i)} for i in range(100))]
    gaps = set(np.diff(kept))
    assert kept[0] == 0 and len(gaps) == 1 and EACH // 2 <= len(kept) <= EACH
    assert kept[-1] >= 80


def test_weights_in_bodies_count_and_are_stored_once(tmp_path: Path) -> None:
    model = onnx_models.with_if()
    (branch,) = [node for node in model.graph.node if node.op_type == "If"]
    for item in branch.attribute:
        extra = numpy_helper.from_array(np.ones((64, 64), np.float32), f"{item.name}/big")
        item.g.initializer.append(extra)
    assert OnnxBackend().load(model).nbytes > 2 * 64 * 64 * 4

    net = onnx_models.Net()
    first = net.op("MatMul", [net.input("x", ["n", 16]), net.weight("w", 16, 16)], name="outside")
    turns, go = net.const("turns", np.array(2)), net.const("go", np.array(True))
    body = helper.make_graph(
        [
            helper.make_node("MatMul", ["state", "w"], ["next"], name="inside"),
            helper.make_node("Identity", ["on"], ["still"], name="still"),
        ],
        "body",
        [value("i", 7, []), value("on", 9, []), value("state", 1, None)],
        [value("still", 9, []), value("next", 1, None)],
    )
    model = net.model(net.op("Loop", [turns, go, first], body=body))
    data = [{"x": np.ones((2, 16), np.float32)}]
    result = lpot.tune(model, data, workspace=tmp_path, measure_speed=False)
    kept = [t.data_type for t in tensors(onnx.load(str(result.path)).graph) if len(t.dims) == 2]
    assert kept == [TensorProto.INT8]


@pytest.mark.parametrize("declared", [[1, 16], [2, 3, 16], [16], [4, 16]])
def test_states_need_not_have_the_shape_that_a_body_declares(
    declared: list[int], tmp_path: Path
) -> None:
    """The runtime takes them as they come."""
    net = onnx_models.Net()
    begun = net.input("x", [4, 16])
    net.weight("w", 16, 16)
    net.const("turns", np.int64(3))
    nodes = [
        helper.make_node("MatMul", ["before", "w"], ["product"], name="product"),
        helper.make_node("Tanh", ["product"], ["after"], name="tanh"),
        helper.make_node("Identity", ["going"], ["goes on"], name="same"),
    ]
    flags = [value(name, TensorProto.BOOL, []) for name in ("going", "goes on")]
    states = [value(name, TensorProto.FLOAT, declared) for name in ("before", "after")]
    turn = value("turn", TensorProto.INT64, [])
    body = helper.make_graph(nodes, "body", [turn, flags[0], states[0]], [flags[1], states[1]])
    model = net.model(net.op("Loop", ["turns", "", begun], "y", name="loop", body=body))
    data = [{"x": np.random.default_rng(0).standard_normal((4, 16)).astype("f")}]
    result = lpot.tune(model, data, workspace=tmp_path, measure_speed=False)
    assert result.precisions == {"int8": 1}


# -- what the runtime dies of --------------------------------------------------------------------


def moved(kinds: tuple[str, ...], outside: bool = False) -> onnx.ModelProto:
    """Conv, then ops that move what it made, to where only the branches of an If read it."""
    net = onnx_models.Net()
    image, flag = net.input("x", [2, 3, 8, 8]), net.input("c", [1], TensorProto.BOOL)
    made = last = net.op("Conv", [image, net.weight("w0", 4, 3, 3, 3)], name="made")
    for number, kind in enumerate(kinds):
        inputs = [net.const("all", np.array([0, -1, 6]))] if kind == "Reshape" else []
        ends = [net.const(f"{word}{number}", np.array([2])) for word in ("first", "end", "axis")]
        inputs = [ends[0], net.const("last", np.array([4])), ends[2]] if kind == "Slice" else inputs
        extra = {"MaxPool": {"kernel_shape": [1, 1]}}.get(kind, {})
        last = net.op(kind, [last, *inputs], name=f"moved{number}", **extra)
    branches = {
        place: helper.make_graph(
            [helper.make_node(kind, [last], [f"{kind}/out"], name=kind)],
            kind,
            [],
            [value(f"{kind}/out", TensorProto.FLOAT, None)],
        )
        for place, kind in (("then_branch", "Relu"), ("else_branch", "Sigmoid"))
    }
    branched = net.op("If", [flag], "y", name="if", **branches)
    beside = net.op("Conv", [made, net.weight("w1", 4, 4, 3, 3)], "z", name="beside")
    return net.model(branched, beside, *([net.op("Neg", [last], "v")] if outside else []))


@pytest.mark.parametrize("outside", [False, True])
@pytest.mark.parametrize(
    "kinds",
    [("Transpose",), ("Reshape",), ("MaxPool",), ("Slice",), ("Slice", "Transpose"), ("Relu",)],
)
def test_what_branches_alone_read_is_moved_in_int8(kinds: tuple[str, ...], outside: bool) -> None:
    model = moved(kinds, outside)
    rng = np.random.default_rng(0)
    data = [
        {"x": rng.standard_normal((2, 3, 8, 8)).astype("f"), "c": np.array([turn])}
        for turn in (True, False)
    ]
    backend = OnnxBackend()
    loaded = backend.load(model)
    able = backend.inspect(loaded)
    seen = backend.observe(loaded, data)[0]
    convs = [info.key for info in able.low() if info.key.kind == "Conv"]
    recipe = Recipe({info.key: info.choices[0] for info in able.low() if info.key in convs})
    low = backend.build(loaded, recipe, seen)
    assert len(convs) == 2 and all(low.precisions[key] == "int8" for key in convs)
    for feed in data:
        for one, other in zip(backend.run(loaded, feed), backend.run(low, feed), strict=True):
            assert np.square(one - other).mean() < 1e-2 * np.square(one).mean()


def deadly() -> Graph:
    """What made the runtime end its process: a DequantizeLinear that it moves into a branch."""
    net = onnx_models.Net()
    net.const("scale", np.float32(0.05))
    net.const("zero", np.uint8(128))
    model = moved(("Transpose",))
    quantized = helper.make_node("QuantizeLinear", ["x", "scale", "zero"], ["q"], name="q")
    dequantized = helper.make_node("DequantizeLinear", ["q", "scale", "zero"], ["d"], name="d")
    moving = next(node for node in model.graph.node if node.op_type == "Transpose")
    moving.input[0] = "d"
    nodes = [quantized, dequantized, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)
    model.graph.initializer.extend(net.weights)
    return load_graph(model)[0]


def test_a_model_that_ends_the_runtime_costs_no_process() -> None:
    for _ in range(2):  # it is not taken for known the second time
        with pytest.raises(UnsupportedModel, match="crashes while it opens the model \\(SIG"):
            session(deadly())
    sound = load_graph(moved(("Transpose",)))[0]
    session(sound)  # the next one has a child again


def test_plain_graphs_need_no_child(monkeypatch: pytest.MonkeyPatch) -> None:
    def started() -> None:
        raise AssertionError("a child was started")

    monkeypatch.setattr(child, "_started", started)
    monkeypatch.setattr(child, "_CHILD", child._Child())
    session(load_graph(onnx_models.cnn())[0])
    with pytest.raises(AssertionError, match="started"):
        session(load_graph(moved(("Transpose",)))[0])


def test_what_is_made_alike_is_tried_once(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[Graph] = []
    monkeypatch.setattr(child._Child, "open", lambda self, graph, level: opened.append(graph))
    monkeypatch.setattr(child, "_CHILD", child._Child())
    graph = load_graph(moved(("Transpose",)))[0]
    for other in (graph, graph, load_graph(moved(("Slice", "Transpose")))[0]):
        child.check_opens(other, 99)
    assert len(opened) == 2
