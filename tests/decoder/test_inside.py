"""Few bits for single ops inside another approach: one recipe, one search, one history."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import lpot
from lpot.backends.onnx.weight_only.guard import Guard
from lpot.core.errors import ConfigError, HistoryError

SIZE = 64
NO_FORMAT = "no weight that can be stored in few bits"
INT4 = {"weight": {"dtype": "int4", "group_size": 32}}


@pytest.fixture(autouse=True)
def _any_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guard, "allows", lambda *given: True)


def _net(path: Path) -> Path:
    """A convolution, two products with biases (Gemm, and MatMul with Add) and one without."""
    rng = np.random.default_rng(0)
    weights = {
        "cw": rng.standard_normal((4, 1, 3, 3)) / 3,
        "w1": rng.standard_normal((256, SIZE)) / 16,
        "b1": rng.standard_normal(SIZE),
        "w2": rng.standard_normal((SIZE, 96)) / 8,
        "b2": rng.standard_normal(96),
        "w3": rng.standard_normal((96, 48)) / 8,
    }
    nodes = [
        helper.make_node("Conv", ["x", "cw"], ["c"], name="conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["c"], ["r"], name="relu"),
        helper.make_node("Flatten", ["r"], ["f"], name="flat"),
        helper.make_node("Gemm", ["f", "w1", "b1"], ["g"], name="first"),
        helper.make_node("Tanh", ["g"], ["t"], name="bend"),
        helper.make_node("MatMul", ["t", "w2"], ["m"], name="second"),
        helper.make_node("Add", ["m", "b2"], ["a"], name="bias"),
        helper.make_node("Tanh", ["a"], ["u"], name="bend2"),
        helper.make_node("MatMul", ["u", "w3"], ["y"], name="third"),
    ]
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 1, 8, 8])
    made = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 48])
    tensors = [numpy_helper.from_array(a.astype(np.float32), n) for n, a in weights.items()]
    graph = helper.make_graph(nodes, "net", [given], [made], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.save(model, path)
    return path


def _batches() -> list[np.ndarray]:
    rng = np.random.default_rng(1)
    return [rng.standard_normal((8, 1, 8, 8)).astype(np.float32) for _ in range(4)]


def _run(path: Path, batch: np.ndarray) -> np.ndarray:
    (found,) = onnxruntime.InferenceSession(path).run(None, {"x": batch})
    return np.asarray(found)


def _tuned(folder: Path, approach: str, rules: dict[str, Any], **more: Any) -> Any:
    path = _net(folder / "net.onnx")
    batches = _batches()
    expected = [_run(path, batch) for batch in batches]

    @lpot.takes_session
    def evaluate(session: Any) -> float:
        found = [session.run(None, {"x": batch})[0] for batch in batches]
        return -float(
            np.mean([np.square(a - b).mean() for a, b in zip(found, expected, strict=True)])
        )

    return lpot.tune(
        path,
        calib=more.pop("calib", batches),
        evaluate=more.pop("evaluate", evaluate),
        approach=approach,
        goal=lpot.Goal(absolute=10.0),
        config={"quantization": rules, **more.pop("config", {})},
        workspace=folder / "run",
        measure_speed=False,
        **more,
    )


def _kinds(tuned: Any) -> dict[str, str]:
    return {node.name: node.op_type for node in onnx.load(tuned.path).graph.node}


@pytest.mark.parametrize("approach", ("static", "dynamic", "auto"))
def test_few_bits_for_a_type_of_op_and_int8_for_the_others(tmp_path: Path, approach: str) -> None:
    tuned = _tuned(tmp_path, approach, {"optype_wise": {"MatMul": INT4}})
    kinds = _kinds(tuned)
    assert kinds["second"] == kinds["third"] == "MatMulNBits"
    low = {key.name: config for key, config in tuned.best.recipe.ops.items()}
    assert low["second"].mode == "weight_only" and low["first"].mode != "weight_only"
    assert low["first"].weight.dtype == "int8"
    if approach == "static":
        assert low["conv"].mode == "static"
    found = _run(tuned.path, _batches()[0])
    truth = _run(tmp_path / "net.onnx", _batches()[0])
    assert 0 < np.square(found - truth).mean() < 0.02 * np.square(truth).mean()


def test_without_data_weights_are_rounded_to_nearest_and_the_recipe_says_so(
    tmp_path: Path,
) -> None:
    rules = {"op_wise": {"second": INT4}}
    tuned = _tuned(tmp_path, "dynamic", rules, calib=None)
    low = {key.name: config for key, config in tuned.best.recipe.ops.items()}
    assert low["second"].weight.algorithm == "rtn" and low["second"].weight.dtype == "int4"
    assert low["third"].mode == "dynamic" and _kinds(tuned)["second"] == "MatMulNBits"


def test_an_op_that_loses_too_much_in_few_bits_is_given_more(tmp_path: Path) -> None:
    """Where the rule allows FP32 too, the search takes few bits back."""
    wish = {"weight": {"dtype": ["int2", "fp32"], "group_size": 32}}
    path, batches = _net(tmp_path / "net.onnx"), _batches()
    truth = [_run(path, batch) for batch in batches]

    @lpot.takes_session
    def evaluate(session: Any) -> float:
        found = [session.run(None, {"x": batch})[0] for batch in batches]
        off = np.mean([np.square(a - b).mean() for a, b in zip(found, truth, strict=True)])
        return 20.0 if off < 0.003 * np.square(truth[0]).mean() else 0.0

    tuned = _tuned(tmp_path, "dynamic", {"optype_wise": {"MatMul": wish}}, evaluate=evaluate)
    assert tuned.met
    kept = [config.precision for config in tuned.best.recipe.ops.values()]
    assert "fp32" in kept


def test_a_run_goes_on_with_the_same_weights(tmp_path: Path) -> None:
    rules = {"optype_wise": {"MatMul": INT4}}
    first = _tuned(tmp_path, "static", rules)
    kept = {path: path.read_bytes() for path in (tmp_path / "run").rglob("weights-*/**/*.npz")}
    assert len(kept) == 2
    again = _tuned(tmp_path, "static", rules)
    assert again.best.recipe == first.best.recipe
    assert {path: path.read_bytes() for path in kept} == kept
    batch = _batches()[0]
    np.testing.assert_array_equal(_run(first.path, batch), _run(again.path, batch))


def test_a_trial_is_recovered_with_its_weights_or_not_at_all(tmp_path: Path) -> None:
    tuned = _tuned(tmp_path, "static", {"optype_wise": {"MatMul": INT4}})
    net, batch = tmp_path / "net.onnx", _batches()[0]
    again = lpot.recover(net, tmp_path / "run", tuned.best.number)
    again.save(tmp_path / "again.onnx")
    np.testing.assert_array_equal(_run(tuned.path, batch), _run(tmp_path / "again.onnx", batch))
    for path in (tmp_path / "run").rglob("weights-*/**/*.npz"):
        path.unlink()
    with pytest.raises(HistoryError, match="rounded weights"):
        lpot.recover(net, tmp_path / "run", tuned.best.number)


@pytest.mark.parametrize(
    ("rules", "words"),
    (
        (
            "optype_wise: {Conv: {weight: {dtype: int4}}}",
            "no weight that can be stored in few bits",
        ),
        ("op_wise: {conv: {weight: {dtype: int4}}}", "no weight that can be stored in few bits"),
        ("op_wise: {bend: {weight: {dtype: int2}}}", "bend"),
        ("op_wise: {nobody: {weight: {dtype: int4}}}", "matches no op"),
        ("optype_wise: {MatMul: {weight: {dtype: int4, group_size: 33}}}", "33"),
    ),
)
def test_combinations_that_do_not_exist_are_told_with_their_line(
    tmp_path: Path, rules: str, words: str
) -> None:
    path = _net(tmp_path / "net.onnx")
    conf = tmp_path / "conf.yaml"
    conf.write_text(
        "model: {name: net, framework: onnxrt_qlinearops}\nquantization:\n"
        f"  approach: post_training_static_quant\n  {rules}\n"
    )
    with pytest.raises(ConfigError, match=words) as told:
        lpot.tune(path, config=conf, calib=_batches(), workspace=tmp_path / "run")
    assert "conf.yaml:4" in str(told.value)


def test_a_type_of_op_passes_over_those_that_can_not(tmp_path: Path) -> None:
    tuned = _tuned(tmp_path, "static", {"op_wise": {".*": INT4}})
    assert any("is not available for" in note and "Tanh" in note for note in tuned.notes)
    kinds = _kinds(tuned)
    assert kinds["first"] == kinds["second"] == "MatMulNBits"


def test_other_frameworks_say_that_few_bits_need_an_onnx_model(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    module = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 64))
    with pytest.raises(ConfigError, match="give an ONNX model"):
        lpot.tune(
            module,
            calib=[torch.zeros(2, 64)],
            approach="dynamic",
            config={"quantization": {"optype_wise": {"Linear": INT4}}},
            workspace=tmp_path,
        )
