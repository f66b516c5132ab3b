"""Per-op times of real models in child processes, and the choice among runtimes."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from click.testing import CliRunner

from lpot.backends import get_backend
from lpot.cli import cli
from lpot.core.errors import EvaluationError, LpotError, UnsupportedModel
from lpot.core.results.benchmark import Settings
from lpot.core.space import restrict
from lpot.demo import demo_data, demo_model_path
from lpot.jobs.benchmark.contestant import Contestant, Loaded, _profile
from lpot.jobs.benchmark.profile import profile
from lpot.jobs.benchmark.runtimes import precisions, runtimes

QUICK = Settings(warmup=1, rounds=8, iteration=16)


def quantized(framework: str, source: Any, batch: Any) -> tuple[Any, Any]:
    """A model and itself with everything in INT8, without a tuning."""
    backend = get_backend(framework)
    model = backend.load(source)
    observed = backend.observe(model, [batch], (0,))
    recipe = restrict(backend.inspect(model), (), (0,)).default()
    return model, backend.build(model, recipe, observed[0])


@pytest.fixture(scope="module")
def digits() -> tuple[Any, Any]:
    pytest.importorskip("onnxruntime")
    return quantized("onnx", demo_model_path(), (demo_data().images[:8],))


def test_onnx_ops_go_by_the_model_s_own_names(digits: tuple[Any, Any]) -> None:
    steps: list[tuple[int, int]] = []
    found = profile(*digits, batch_size=8, seconds=1.0, progress=lambda *s: steps.append(s))
    rows = {row.name: row for row in found.rows if row.role == "op"}
    for name in ("conv1", "conv2", "conv3", "conv4", "fc1"):
        assert rows[name].before and rows[name].after, name
        assert rows[name].precision == "int8"
    assert found.framework == "onnx"
    assert found.overhead > 0 and found.before > 0
    assert any(row.kind == "QuantizeLinear" for row in found.rows)
    assert steps[-1] == (6, 6)
    json.dumps(found.to_json())


@pytest.mark.slow
def test_torch_modules_and_the_functions_between() -> None:
    torch = pytest.importorskip("torch")
    import torch_profiled

    batch = (torch.rand(2, 3, 16, 16),)
    model, low = quantized("pytorch", torch_profiled.Net().eval(), batch)
    found = profile(model, low, feeds=batch)
    rows = {row.name: row for row in found.rows if row.role == "op"}
    assert rows["c1"].before and rows["c1"].after and rows["c1"].precision == "int8"
    assert "add" in rows, "functions are timed, too"
    assert rows["b"].before is not None and rows["b"].after is None, "folded into c1"
    x = np.random.default_rng(0).random((2, 3, 16, 16), dtype=np.float32)
    before = model.backend.run(low, (x,))[0]
    low.backend.profile(low, (x,), 2)
    np.testing.assert_array_equal(model.backend.run(low, (x,))[0], before)
    assert not any(module._forward_hooks for module in low.native.modules())


@pytest.mark.slow
def test_tensorflow_fused_ops_go_by_their_product() -> None:
    tf = pytest.importorskip("tensorflow")
    layers = tf.keras.layers
    given = tf.keras.Input((16, 16, 3))
    x = layers.ReLU()(layers.BatchNormalization()(layers.Conv2D(8, 3, padding="same")(given)))
    x = layers.Dense(10)(layers.GlobalAveragePooling2D()(x))
    batch = (np.random.default_rng(0).random((2, 16, 16, 3), dtype=np.float32),)
    model, low = quantized("tensorflow", tf.keras.Model(given, x), batch)
    found = profile(model, low, feeds=batch)
    both = [row for row in found.rows if row.before and row.after and row.precision == "int8"]
    assert [row.name.rpartition("/")[2] for row in both].count("convolution") == 1
    assert any(row.name.endswith("MatMul") for row in both)
    assert found.overhead > 0
    pytest.importorskip("tf2onnx")
    choice = runtimes(low, settings=QUICK)
    assert [model.label for model in choice.result.models][:2] == ["tensorflow", "ONNX Runtime"]


def test_who_can_not_tell_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "made_here.py").write_text(
        "from lpot.core.batch import InputSpec\n"
        "def make(): return (lambda feed: feed['x'], [InputSpec('x', 'float32', (1, 2))])\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    one = Contestant("made_here:make", "callable", "mine")
    with pytest.raises(EvaluationError, match="mine: callable can't time single ops"):
        profile(one, one)


def test_runtimes_of_an_onnx_model(digits: tuple[Any, Any]) -> None:
    pytest.importorskip("openvino")
    choice = runtimes(digits[1], settings=QUICK)
    labels = [model.label for model in choice.result.models]
    words = precisions("openvino")
    assert labels == ["ONNX Runtime", *(f"OpenVINO {word}" for word in words)] and choice.result.ok
    assert choice.result.models[1].versions["openvino"]
    told = any("INFERENCE_PRECISION_HINT" in note for note in choice.result.notes)
    assert told == (len(words) == 2)
    assert choice.fastest in labels and choice.runner_up in labels
    assert choice.fastest in choice.sentence
    assert not any("OpenVINO f32 differ" in note for note in choice.result.notes)
    json.dumps(choice.to_json())


def test_the_choice_follows_the_rounds_not_the_pooled_times() -> None:
    """A machine that is busy in a few rounds must not turn the answer round."""
    from lpot.core.cpu import probe
    from lpot.core.measure import Timing, compare
    from lpot.core.results.benchmark import BenchmarkResult, Measured
    from lpot.jobs.benchmark.runtimes import choose

    # Quick calls make up most of the slow one's samples: pooled, it looks the faster one.
    slow = [[3.0]] * 10 + [[0.9] * 50] * 2
    quick = [[1.0]] * 12
    models = (
        Measured("slow", timing=Timing(tuple(map(tuple, slow)))),
        Measured("quick", timing=Timing(tuple(map(tuple, quick))), comparison=compare(slow, quick)),
    )
    assert models[0].throughput > models[1].throughput
    result = BenchmarkResult(models, (), 1, QUICK, probe())
    choice = choose(result)
    assert choice.fastest == result.fastest.label == "quick" and choice.margin.ratio > 1
    assert "quick is the fastest here: " in choice.sentence


def test_runtimes_without_openvino(
    digits: tuple[Any, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    import importlib.util

    monkeypatch.setattr(importlib.util, "find_spec", lambda name, package=None: None)
    choice = runtimes(digits[1], settings=QUICK)
    assert choice.margin is None and "only one" in choice.sentence
    assert any("pip install openvino" in note for note in choice.result.notes)


@pytest.mark.slow
def test_runtimes_of_a_torch_model() -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("onnxscript")
    import torch_profiled

    batch = (torch.rand(2, 3, 16, 16),)
    _, low = quantized("pytorch", torch_profiled.Net().eval(), batch)
    choice = runtimes(low, batch, settings=QUICK)
    assert [model.label for model in choice.result.models][:2] == ["pytorch", "ONNX Runtime"]
    assert choice.result.ok


def test_command_line(digits: tuple[Any, Any], tmp_path: Path) -> None:
    low = digits[1].save(tmp_path / "low.onnx")
    words = [str(demo_model_path()), str(low), "--profile", "--batch-size", "4"]
    done = CliRunner().invoke(cli, ["benchmark", *words])
    assert done.exit_code == 0, done.stderr
    assert "conv3" in done.stdout and "times faster" in done.stdout
    done = CliRunner().invoke(cli, ["benchmark", str(low), "--profile"])
    assert done.exit_code == 2 and "expected two" in done.stderr
    quick = ["--iteration", "8", "--rounds", "8", "--json"]
    done = CliRunner().invoke(cli, ["benchmark", str(low), "--runtimes", *quick])
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["sentence"]


def test_a_model_that_no_other_runtime_reads(digits: tuple[Any, Any]) -> None:
    import toy_backend

    model = toy_backend.ToyModel(toy_backend.ToyBackend(), toy_backend.Net(()))
    with pytest.raises(LpotError, match="toy model can't be exported to ONNX"):
        runtimes(model, (np.zeros((1, 2), np.float32),))


def test_ops_that_can_not_be_timed_do_not_lose_the_model() -> None:
    def refuse(*given: Any) -> None:
        raise UnsupportedModel("the graph reads its data itself")

    model: Any = SimpleNamespace(backend=SimpleNamespace(profile=refuse))
    found = _profile(Loaded(lambda feed: None, None, model=model), None, 3)
    assert found == {"ops": None, "why": "the graph reads its data itself"}
