"""The original's awkward inputs, one by one, through its own door: none may go wrong again."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

import lpot
import onnx_models
from lpot.core.errors import CalibrationError, ConfigError, EvaluationError
from lpot.core.trial import State

YAML = """\
# about this model: bert
model:
  name: net
  framework: onnxrt_qlinearops   # static
tuning:
  accuracy_criterion:
    relative: 0.01
  exit_policy:
    timeout: 0
    max_trials: 4
  random_seed: 9527
"""

Quantize = Callable[..., Any]


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "conf.yaml"
    path.write_text(YAML, "utf-8")
    return path


@pytest.fixture
def quantizer(conf: Path) -> lpot.Quantization:
    made = lpot.Quantization(str(conf))
    made.measure_speed = False
    return made


class Loader:
    """No batch_size, no labels, as one tutorial has it."""

    def __iter__(self) -> Iterator[Any]:
        return ([feed["x"]] for feed in onnx_models.feeds(onnx_models.mlp()))


def scores(*values: Any) -> Callable[[Any], Any]:
    """An eval_func that gives these one after the other, raising those that are errors."""
    rest = iter(values)

    def eval_func(model: Any) -> Any:
        value = next(rest)
        if isinstance(value, Exception):
            raise value
        return value

    return eval_func


def run(quantizer: lpot.Quantization, *values: Any, loader: Any = None) -> Any:
    return quantizer(onnx_models.mlp(), loader or Loader(), eval_func=scores(*values))


@pytest.mark.parametrize("value", [None, {"a": 1.0, "b": 2.0}, float("nan"), "0.9"])
def test_a_baseline_that_is_no_number(quantizer: lpot.Quantization, value: Any) -> None:
    with pytest.raises(EvaluationError, match=r"on the FP32 baseline: eval_func"):
        run(quantizer, value)
    assert quantizer.result is None


def test_nan_on_a_trial(quantizer: lpot.Quantization) -> None:
    made = run(quantizer, 1.0, float("nan"), 0.999)
    assert isinstance(made, onnx.ModelProto)
    assert [trial.state for trial in quantizer.result.trials] == [State.FAILED, State.DONE]


def test_a_trial_that_raises(quantizer: lpot.Quantization) -> None:
    made = run(quantizer, 1.0, RuntimeError("no kernel"), 0.999)
    assert isinstance(made, onnx.ModelProto)
    assert quantizer.result.met is True


def test_a_baseline_of_zero(quantizer: lpot.Quantization) -> None:
    with pytest.raises(EvaluationError, match="absolute"):
        run(quantizer, 0.0, 0.0)


def test_nothing_is_good_enough(quantizer: lpot.Quantization) -> None:
    made = run(quantizer, 1.0, 0.5, 0.6, 0.7, 0.8)
    assert isinstance(made, onnx.ModelProto)
    assert quantizer.result.met is False
    assert quantizer.result.accuracy == max(t.accuracy for t in quantizer.result.trials)
    assert quantizer.result.path.is_file()
    assert any("was not reached" in note for note in quantizer.result.notes)


def test_no_loader(quantizer: lpot.Quantization) -> None:
    with pytest.raises(CalibrationError, match=r"q_dataloader.*dynamic.* needs none"):
        quantizer(onnx_models.mlp(), eval_func=scores(1.0))


def test_no_eval_func(quantizer: lpot.Quantization) -> None:
    made = quantizer(onnx_models.mlp(), Loader())
    assert isinstance(made, onnx.ModelProto)
    assert quantizer.result.met is None
    assert any("not evaluated" in note for note in quantizer.result.notes)


def test_no_model(quantizer: lpot.Quantization) -> None:
    with pytest.raises(ConfigError, match="no model was given"):
        quantizer(None, Loader())


def test_no_op_to_quantize(quantizer: lpot.Quantization) -> None:
    model = onnx_models.no_compute()
    made = quantizer(model, onnx_models.feeds(model), eval_func=scores(1.0))
    assert isinstance(made, onnx.ModelProto)
    assert quantizer.result.met is True
    assert any("no op of this model can be quantized" in n for n in quantizer.result.notes)


def test_the_users_file_is_never_written_to(quantizer: lpot.Quantization, conf: Path) -> None:
    before = conf.stat().st_mtime_ns
    run(quantizer, 1.0, 0.999)
    assert conf.read_text("utf-8") == YAML
    assert conf.stat().st_mtime_ns == before
    lpot.Quantization(str(conf))


def test_a_file_that_is_missing(conf: Path) -> None:
    with pytest.raises((FileNotFoundError, ConfigError), match=r"conf\.yml"):
        lpot.Quantization("conf.yml")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("exit_policy", "exit_polcy", r"conf\.yaml:8.*exit_polcy.*exit_policy"),
        ("onnxrt_qlinearops", "onnxrt_qlinearop", "onnxrt_qlinearops"),
        ("relative: 0.01", "relative: 1", "relative"),
        ("relative: 0.01", "relative: 0.01\n    absolute: 0.01", "absolute"),
        ("random_seed: 9527", "strategy:\n    name: basik", "basic"),
    ],
)
def test_mistakes_in_the_file(conf: Path, old: str, new: str, message: str) -> None:
    conf.write_text(YAML.replace(old, new), "utf-8")
    with pytest.raises(ConfigError, match=message):
        lpot.Quantization(str(conf))


def test_a_strategy_that_is_not_offered_does_not_end_the_process(conf: Path) -> None:
    conf.write_text(YAML + "  strategy:\n    name: sigopt\n", "utf-8")
    made = lpot.Quantization(str(conf))
    made.measure_speed = False
    run(made, 1.0, 0.999)
    assert any("sigopt" in note and "basic is used" in note for note in made.result.notes)


def test_the_same_object_is_called_twice(quantizer: lpot.Quantization) -> None:
    first = run(quantizer, 1.0, 0.999)
    again = run(quantizer, 1.0, 0.999)  # FP32 and the best, to see that they score as before
    assert first.SerializeToString(True) == again.SerializeToString(True)
    assert all(trial.recalled for trial in quantizer.result.trials)


def test_a_generator_that_is_used_up_says_so(quantizer: lpot.Quantization) -> None:
    loader = iter(Loader())
    run(quantizer, 1.0, 0.999, loader=loader)
    with pytest.raises(CalibrationError, match="exhausted"):
        run(quantizer, 1.0, 0.999, loader=loader)


def test_the_workspace_is_deleted_while_it_is_used(quantizer: lpot.Quantization) -> None:
    judge, calls = scores(1.0, 0.5, 0.6, 0.7, 0.8), []

    def vandal(model: Any) -> Any:
        calls.append(model)
        if len(calls) == 2:
            shutil.rmtree("lpot_workspace")
        return judge(model)

    made = quantizer(onnx_models.mlp(), Loader(), eval_func=vandal)
    assert isinstance(made, onnx.ModelProto)
    assert "the workspace failed" in quantizer.result.stopped
    assert quantizer.result.accuracy == 0.5
    assert quantizer.result.path.is_file()  # the folder was made again for the best
