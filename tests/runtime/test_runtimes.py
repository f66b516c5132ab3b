"""Models tuned for another runtime than their framework's own."""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lpot
import onnx_models
from lpot.backends import RUNTIMES, Entry, get_runtime
from lpot.core.errors import BackendUnavailable, ConfigError
from lpot.core.recipe import FP32, OpConfig, OpKey, Recipe, TensorConfig
from lpot.core.repairs import Repairs
from lpot.demo import demo_data, demo_model_path
from lpot.jobs.runtime.starts import Start, candidates_of, harmless, in_order

INT8 = OpConfig(TensorConfig("uint8"), TensorConfig("int8"))
CONV, HEAD = OpKey("conv", "Conv"), OpKey("head", "Gemm")
LOW = Recipe({CONV: INT8, HEAD: INT8})


def floats(recipe: Recipe, word: str) -> Recipe:
    return Recipe(recipe.ops, recipe.samples, Repairs(floats=word))


@lpot.takes_session
def digits(session: Any) -> float:
    data = demo_data()
    (logits,) = session.run(None, {session.get_inputs()[0].name: data.images})
    return float((logits.argmax(1) == data.labels).mean())


def calibration() -> list[np.ndarray]:
    return [demo_data().calib_images[at : at + 50] for at in range(0, 200, 50)]


# -- what a search begins with -------------------------------------------------------------------


def test_each_precision_of_floats_with_int8_and_alone() -> None:
    with_int8, plain, alone = candidates_of(("bf16",), LOW)
    assert with_int8.repairs.floats == alone.repairs.floats == "bf16"
    assert with_int8.low_ops == plain.low_ops == LOW.low_ops and not alone.low_ops
    assert plain == LOW


def test_the_fastest_comes_first_and_nothing_that_is_worse_in_both() -> None:
    quick, near, poor = Start(LOW, 1.0, 0.1), Start(floats(LOW, "bf16"), 2.0, 0.01), None
    poor = Start(LOW.with_float([CONV]), 3.0, 0.05)
    assert in_order([poor, near, quick]) == [quick, near]


def test_of_equally_fast_ones_the_nearer_to_fp32() -> None:
    one, two = Start(LOW, 1.0, 0.1), Start(floats(LOW, "bf16"), 1.02, 0.01)
    assert in_order([one, two]) == [two]


def test_int8_is_not_mixed_with_floats_that_do_harm_themselves() -> None:
    alone = Start(floats(LOW.with_float(LOW.low_ops), "bf16"), 2.0, 0.09)
    mixed, plain = Start(floats(LOW, "bf16"), 1.0, 0.1), Start(LOW, 1.1, 0.1)
    assert harmless([mixed, plain, alone]) == [plain, alone]
    exact = Start(alone.recipe, 2.0, 0.009)
    assert harmless([mixed, plain, exact]) == [mixed, plain, exact]


def test_floats_are_part_of_a_recipe_s_identity() -> None:
    assert floats(LOW, "bf16").digest != LOW.digest
    assert Recipe.from_json(floats(LOW, "bf16").to_json()) == floats(LOW, "bf16")
    with pytest.raises(ValueError, match="unknown"):
        Repairs.from_json(["floats=fp8"])


# -- what can't be -------------------------------------------------------------------------------


def test_a_runtime_that_is_not_known() -> None:
    with pytest.raises(ConfigError, match=r"openvin.*did you mean 'openvino'"):
        lpot.tune(demo_model_path(), calibration(), digits, runtime="openvin")


def test_a_runtime_that_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    gone = Entry("lpot.backends.openvino", "OpenvinoBackend", {"openvino_": "openvino"})
    monkeypatch.setitem(RUNTIMES, "openvino", gone)  # type: ignore[arg-type]
    with pytest.raises(BackendUnavailable, match="pip install openvino"):
        get_runtime("openvino")


@pytest.mark.parametrize(
    ("approach", "why"), [("dynamic", "only emulates"), ("weight_only", "run by ONNX Runtime")]
)
def test_an_approach_that_a_runtime_does_not_have(approach: str, why: str, tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    with pytest.raises(ConfigError, match=why):
        lpot.tune(
            demo_model_path(),
            calibration(),
            digits,
            approach=approach,
            runtime="openvino",
            workspace=tmp_path,
        )


# -- tunings -------------------------------------------------------------------------------------


def test_an_onnx_model_is_tuned_and_evaluated_in_openvino(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    kinds: set[str] = set()

    @lpot.takes_session
    def accuracy(session: Any) -> float:
        kinds.add(type(session).__module__)
        return digits(session)

    result = lpot.tune(
        demo_model_path(), calibration(), accuracy, 0.02, runtime="openvino", workspace=tmp_path
    )
    assert result.met and result.runtime == "openvino"
    assert kinds == {"lpot.backends.openvino.session"}
    again = lpot.load(tmp_path)
    assert again.framework == "openvino" and again.recipe == result.recipe
    batch = demo_data().images[:8]
    np.testing.assert_array_equal(again(batch)[0], result.model(batch)[0])
    assert "INFERENCE_PRECISION_HINT" in result.model.backend.usage(result.model, tmp_path)
    assert any(row.seconds for row in again.backend.profile(again, (batch,), 2))


def test_a_score_from_another_runtime_is_told_with_the_distance(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    import onnxruntime

    def accuracy(model: Any) -> float:
        return digits(onnxruntime.InferenceSession(model.SerializeToString()))

    result = lpot.tune(
        demo_model_path(), calibration(), accuracy, 0.02, runtime="openvino", workspace=tmp_path
    )
    assert any("the accuracy is that of ONNX Runtime" in note for note in result.notes)


def test_a_module_keeps_its_calls_and_attributes(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    torch = pytest.importorskip("torch")

    class Net(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.body = torch.nn.Conv2d(3, 8, 3)
            self.head = torch.nn.Linear(8, 4)
            self.config = {"labels": 4}

        def forward(self, x: Any, scale: Any) -> dict[str, Any]:
            logits = self.head(self.body(x).relu().mean((2, 3)) * scale)
            return {"logits": logits, "shares": logits.softmax(-1)}

    torch.manual_seed(0)
    net = Net().eval()
    x, scale = torch.randn(32, 3, 8, 8), torch.ones(32, 1)
    with torch.no_grad():
        labels = net(x, scale)["logits"].argmax(1)
    seen: list[Any] = []

    def accuracy(model: Any) -> float:
        seen.append(model)
        assert model.config == {"labels": 4} and next(model.parameters()).device.type == "cpu"
        out = model(x, scale=scale)
        assert set(out) == {"logits", "shares"}
        return float((out["logits"].argmax(1) == labels).float().mean())

    batches = [((x[at : at + 8], scale[at : at + 8]), labels[at : at + 8]) for at in (0, 8)]
    result = lpot.tune(
        net, batches, accuracy, 0.1, runtime="openvino", workspace=tmp_path, measure_speed=False
    )
    assert result.met and isinstance(seen[0], torch.nn.Module)
    assert result.model.native(x, scale)["shares"].shape == (32, 4)
    assert (tmp_path / "best_model.onnx").exists()


def keras_net() -> Any:
    tf = pytest.importorskip("tensorflow")
    tf.keras.utils.set_random_seed(0)
    layers = tf.keras.layers
    given = tf.keras.Input((8, 8, 3))
    x = layers.Conv2D(8, 3, activation="relu")(given)
    return tf.keras.Model(given, layers.Dense(4)(layers.GlobalAveragePooling2D()(x)))


def by_call(model: Any, x: Any) -> Any:
    return np.asarray(model(x))


def by_predict(model: Any, x: Any) -> Any:
    return model.predict(x)


@pytest.mark.parametrize("use", [by_call, by_predict])
def test_a_keras_model_is_called_as_before(use: Callable[[Any, Any], Any], tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    pytest.importorskip("tf2onnx")
    net = keras_net()
    x = np.random.default_rng(0).standard_normal((16, 8, 8, 3)).astype("float32")
    labels = net.predict(x, verbose=0).argmax(1)

    def accuracy(model: Any) -> float:
        return float((use(model, x).argmax(1) == labels).mean())

    result = lpot.tune(
        net, [x], accuracy, 0.2, runtime="openvino", workspace=tmp_path, measure_speed=False
    )
    assert result.met and result.runtime == "openvino"


# -- the fastest ---------------------------------------------------------------------------------


def test_auto_times_the_runtimes_once_and_stays_with_its_choice(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    for _ in range(2):
        result = lpot.tune(
            demo_model_path(),
            iter(calibration()),
            digits,
            0.02,
            runtime="auto",
            workspace=tmp_path,
            measure_speed=False,
        )
        told = [note for note in result.notes if note.startswith("runtime: ")]
        assert len(told) == 1 and "INT8 in ONNX Runtime" in told[0]
        assert result.met and result.runtime in ("onnxruntime", "openvino")
    assert all(trial.recalled for trial in result.trials), "the second run goes on from the first"
    assert len(list(tmp_path.glob("runtime-*.json"))) == 1


def test_another_model_in_the_folder_is_timed_itself(tmp_path: Path) -> None:
    pytest.importorskip("openvino")
    options: dict[str, Any] = {"runtime": "auto", "workspace": tmp_path, "measure_speed": False}
    for layers in (1, 2):
        model = onnx_models.mlp(layers=layers)
        lpot.tune(model, onnx_models.feeds(model), progress=False, **options)
    assert len(list(tmp_path.glob("runtime-*.json"))) == 2


def test_the_other_runtimes_are_measured_beside_the_best(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("openvino")
    monkeypatch.setattr("lpot.jobs.finish.speed.RIVALS", True)
    result = lpot.tune(demo_model_path(), calibration(), digits, 0.02, workspace=tmp_path)
    assert result.benchmark is not None
    labels = [model.label for model in result.benchmark.models]
    assert labels[0] == "FP32" and "tuned in OpenVINO" in labels
    assert result.runtime == "onnxruntime"


def test_an_op_kept_in_bf16_is_told_as_such() -> None:
    pytest.importorskip("openvino")
    backend: Any = get_runtime("openvino")
    model = backend.load(str(demo_model_path()))
    keys = list(backend.inspect(model).ops)
    built = backend.build(model, Recipe(dict.fromkeys(keys, FP32), 0, Repairs(floats="bf16")))
    assert set(built.precisions.values()) == {"bf16"}


def test_bf16_on_a_cpu_without_it_is_warned_of(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    pytest.importorskip("openvino")
    backend: Any = get_runtime("openvino")
    model = backend.load(str(demo_model_path()))
    keys = list(backend.inspect(model).ops)
    built = backend.build(model, Recipe(dict.fromkeys(keys, FP32), 0, Repairs(floats="bf16")))
    path = built.save(tmp_path / "model.onnx")
    monkeypatch.setattr("lpot.backends.openvino.has_bf16", lambda: False)
    with caplog.at_level(logging.WARNING):
        get_runtime("openvino").restore(path)
    assert "no bf16" in caplog.text


def test_a_runtime_is_chosen_by_its_undisturbed_rounds() -> None:
    """Others' load only ever adds: a few rounds without it tell which runtime is the faster."""
    from lpot.core.measure import Timing
    from lpot.core.results.benchmark import Measured
    from lpot.jobs.runtime.choose import _is_faster

    def row(name: str, *rounds: float) -> Measured:
        return Measured(name, timing=Timing(tuple((seconds,) * 3 for seconds in rounds)))

    best = {"own": row("own", 1.2, 9.0, 1.3, 8.0), "other": row("other", 9.0, 1.0, 7.0, 6.0)}
    assert _is_faster(best, "other", "own") and not _is_faster(best, "own", "other")
    best["own"] = row("own", 1.02, 1.3)
    assert not _is_faster(best, "other", "own"), "a near tie stays with the framework's own"
