"""`approach: quant_aware_training` through the doors: q_func in, a model that meets the bar out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

import lpot
from backends.torch.test_torch_train import digits, train, uneven_net
from lpot.core.errors import ConfigError, TrainingError
from lpot.data import DataLoader
from lpot.experimental import Quantization, common
from lpot.utils.utility import recover

QAT = "quant_aware_training"


class Task:
    """A net that post-training quantization hurts, its data and an ordinary training loop."""

    def __init__(self) -> None:
        x, y = digits()
        self.train, self.test = (x[:1200], y[:1200]), (x[1200:], y[1200:])
        self.module = uneven_net(*self.train)
        self.trainings = 0

    def q_func(self, model: nn.Module) -> None:
        self.trainings += 1
        train(model, *self.train, 2, 3e-3)

    def evaluate(self, model: Any) -> float:
        with torch.no_grad():
            right = model(self.test[0]).argmax(1) == self.test[1]
        return float(right.float().mean())

    def calibration(self) -> list[Any]:
        x, y = self.train
        return [(x[start : start + 100], y[start : start + 100]) for start in range(0, 300, 100)]


@pytest.fixture(scope="module")
def task() -> Task:
    return Task()


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def tuned(task: Task, workspace: str, **options: Any) -> Any:
    given = {"goal": 0.01, "strategy": "basic", "measure_speed": False, **options}
    return lpot.tune(task.module, evaluate=task.evaluate, workspace=workspace, **given)


def conf(approach: str = QAT, **more: Any) -> dict[str, Any]:
    return {
        "model": {"name": "uneven", "framework": "pytorch"},
        "quantization": {"approach": approach, **more},
        "tuning": {"workspace": {"path": "space"}},
    }


def test_training_holds_a_bar_that_calibration_alone_misses(task: Task) -> None:
    before = {name: value.clone() for name, value in task.module.state_dict().items()}
    plain = tuned(task, "plain", calib=task.calibration(), max_trials=1)
    assert not plain.met
    trained = tuned(task, "trained", train=task.q_func)
    assert trained.met
    assert not trained.float_ops
    assert trained.baseline.accuracy == plain.baseline.accuracy, "the bar is FP32's, as given"
    assert task.evaluate(trained.model.native) == trained.accuracy
    assert all(torch.equal(before[name], value) for name, value in task.module.state_dict().items())


def test_a_second_run_uses_the_trained_weights(task: Task) -> None:
    first = tuned(task, "space", train=task.q_func)
    trainings = task.trainings
    again = tuned(task, "space", train=task.q_func)
    assert task.trainings == trainings
    assert any("trained earlier" in note for note in again.notes)
    assert task.evaluate(again.model.native) == first.accuracy
    rebuilt = recover(task.module, "space", first.best.number)
    assert task.evaluate(rebuilt.native) == first.accuracy

    def other(model: nn.Module) -> None:
        task.q_func(model)
        train(model, *task.train, 1, 1e-3)

    tuned(task, "space", train=other)
    assert task.trainings == trainings + 1, "another loop trains again"


@pytest.mark.slow
def test_weights_that_are_gone_are_trained_again(task: Task) -> None:
    tuned(task, "space", train=task.q_func)
    trainings = task.trainings
    Path("space/trained/model.safetensors").write_bytes(b"")
    again = tuned(task, "space", train=task.q_func)
    assert task.trainings == trainings + 1
    assert any("can't be used" in note for note in again.notes)
    assert not any(trial.recalled for trial in again.trials), "scores of other weights"


def test_both_doors_take_q_func(task: Task) -> None:
    quantizer = lpot.Quantization(conf())
    quantizer.measure_speed = False
    native = quantizer(task.module, q_func=task.q_func, eval_func=task.evaluate)
    assert isinstance(native, nn.Module)
    assert quantizer.result is not None
    assert quantizer.result.met

    other = Quantization(conf())
    other.measure_speed = False
    other.model = common.Model(task.module)
    other.calib_dataloader = task.calibration()
    other.q_func = task.q_func
    other.eval_func = task.evaluate
    assert task.evaluate(other().native) >= 0.99 * task.evaluate(task.module)


@pytest.mark.slow
def test_nothing_to_evaluate_with_trains_all_the_same(task: Task) -> None:
    quantizer = lpot.Quantization(conf())
    quantizer.measure_speed = False
    native = quantizer(task.module, q_func=task.q_func)
    assert task.evaluate(native) >= 0.99 * task.evaluate(task.module)


class Digits:
    """A dataset of the yaml's kind."""

    def __init__(self, **kwargs: Any) -> None:
        x, self.labels = digits()
        self.images = x.numpy()

    def __getitem__(self, index: int) -> Any:
        return self.images[index], int(self.labels[index])

    def __len__(self) -> int:
        return 1200


def test_the_yaml_alone_can_train(task: Task, monkeypatch: pytest.MonkeyPatch) -> None:
    from lpot.jobs.tune import train as loop

    monkeypatch.setattr(loop, "yaml_loader", lambda *_: DataLoader(Digits(), batch_size=50))
    section = {
        "optimizer": {"SGD": {"learning_rate": 0.02, "momentum": 0.9}},
        "criterion": {"CrossEntropyLoss": {}},
        "dataloader": {"batch_size": 50, "dataset": {"dummy": {"shape": [100, 1, 8, 8]}}},
        "end_epoch": 4,
    }
    quantizer = lpot.Quantization(conf(train=section))
    quantizer.measure_speed = False
    native = quantizer(task.module, eval_func=task.evaluate)
    assert task.evaluate(native) > 0.9 * task.evaluate(task.module)


# -- what can go wrong ----------------------------------------------------------------------------


def test_no_loop_is_said_before_anything_is_evaluated(task: Task) -> None:
    def evaluate(model: Any) -> float:
        raise AssertionError

    with pytest.raises(ConfigError, match="needs your training loop"):
        lpot.Quantization(conf())(task.module, eval_func=evaluate)


def test_a_yaml_section_that_lacks_something_is_said(task: Task) -> None:
    with pytest.raises(ConfigError, match="criterion and dataloader and end_epoch not given"):
        section = {"optimizer": {"SGD": {"learning_rate": 0.1}}}
        lpot.Quantization(conf(train=section))(task.module, eval_func=task.evaluate)


def test_what_is_no_function_is_refused(task: Task) -> None:
    with pytest.raises(ConfigError, match=r"q_func.*given a float"):
        lpot.Quantization(conf())(task.module, q_func=0.1, eval_func=task.evaluate)


def test_a_loop_that_raises_keeps_its_cause(task: Task) -> None:
    def broken(model: nn.Module) -> None:
        raise KeyError("lr")

    with pytest.raises(TrainingError, match="train raised KeyError: 'lr'") as caught:
        tuned(task, "space", train=broken)
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_optimizer_of_another_model_is_found_out(task: Task) -> None:
    stranger = uneven_net(*task.train)
    optimizer = torch.optim.SGD(stranger.parameters(), 0.1)

    def loop(model: nn.Module) -> None:
        model(task.train[0][:8]).sum().backward()
        optimizer.step()

    with pytest.raises(TrainingError, match="inside q_func from the parameters of its argument"):
        tuned(task, "space", train=loop)


def test_a_diverging_loop_is_named(task: Task) -> None:
    with pytest.raises(TrainingError, match="NaN or infinite"):
        tuned(task, "space", train=lambda model: train(model, *task.train, 1, float("inf")))


def test_q_func_without_training_is_told_to_be_idle(task: Task) -> None:
    quantizer = lpot.Quantization(conf("post_training_static_quant"))
    quantizer.measure_speed = False
    trainings = task.trainings
    quantizer(task.module, task.calibration(), q_func=task.q_func, eval_func=task.evaluate)
    assert task.trainings == trainings
    assert quantizer.result is not None
    assert any("q_func is not used" in note for note in quantizer.result.notes)


def test_a_backend_that_can_not_train_says_so(task: Task) -> None:
    pytest.importorskip("onnxruntime")
    from lpot.demo import demo_model_path

    with pytest.raises(ConfigError, match="backend onnx can't train"):
        lpot.tune(demo_model_path(), train=task.q_func)
