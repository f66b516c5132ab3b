"""The original's scripts, as they are: both call styles and the three usages, on ONNX models."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import onnx
import onnxruntime

import lpot
from lpot.core.model import Model
from lpot.demo import demo_data, demo_model_path

DATA = demo_data()
CONF = """
model:                                               # mandatory.
  name: digits
  framework: onnxrt_qlinearops

quantization:
  calibration:
    sampling_size: 100
  model_wise:
    weight:
      granularity: per_channel
  op_wise: {
             'mix': {
               'activation':  {'dtype': ['fp32']},
             }
           }
tuning:
  accuracy_criterion:
    relative:  0.01
  exit_policy:
    timeout: 0
    max_trials: 100
  random_seed: 9527
"""


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf.yaml").write_text(CONF, "utf-8")


def predict(model: onnx.ModelProto) -> np.ndarray:
    session = onnxruntime.InferenceSession(model.SerializeToString())
    return session.run(None, {session.get_inputs()[0].name: DATA.images})[0].argmax(1)


def accuracy(model: onnx.ModelProto) -> float:
    return float((predict(model) == DATA.labels).mean())


class Images:
    """A dataset of the user's own: nothing but __getitem__ and __len__."""

    def __getitem__(self, index: int) -> tuple[np.ndarray, int]:
        return DATA.calib_images[index], int(DATA.calib_labels[index])

    def __len__(self) -> int:
        return 200


class Infer:
    """Tutorial 003: __iter__ yields [images], no labels, no batch_size; accuracy is a method."""

    def __iter__(self) -> Iterator[list[np.ndarray]]:
        for index in range(0, 200, 10):
            yield [DATA.calib_images[index : index + 10]]

    def accuracy_check(self, graph: onnx.ModelProto) -> float:
        return accuracy(graph)


def quick(quantizer: object) -> object:
    quantizer.measure_speed = False  # type: ignore[attr-defined]
    return quantizer


class TestFirstApi:
    def test_loader_and_eval_func(self) -> None:
        from lpot.quantization import Quantization

        quantizer = quick(Quantization("./conf.yaml"))
        dataloader = quantizer.dataloader(Images(), batch_size=10)
        q_model = quantizer(demo_model_path(), q_dataloader=dataloader, eval_func=accuracy)
        assert isinstance(q_model, onnx.ModelProto)
        assert accuracy(q_model) == quantizer.result.accuracy
        assert quantizer.result.met is True
        assert quantizer.result.evaluations == 2, "timeout 0 stops at the first success"
        assert quantizer.result.float_ops == ("mix",)

    def test_second_positional_is_the_loader_and_files_lie_ready(self) -> None:
        quantizer = quick(lpot.Quantization("conf.yaml"))
        quantizer(str(demo_model_path()), Infer(), eval_func=Infer().accuracy_check)
        folder = Path("lpot_workspace/onnxrt_qlinearops/digits")
        for name in ("history.jsonl", "best_model.onnx", "deploy.yaml", "result.json"):
            assert (folder / name).is_file(), name
        session = onnxruntime.InferenceSession(folder / "best_model.onnx")
        assert session.get_inputs()

    def test_running_again_goes_on(self) -> None:
        calls: list[int] = []

        def counted(model: onnx.ModelProto) -> float:
            calls.append(1)
            return accuracy(model)

        for _ in range(2):
            quantizer = quick(lpot.Quantization("conf.yaml"))
            quantizer(demo_model_path(), Infer(), eval_func=counted)
        assert len(calls) == 4  # both scores are looked at again
        assert all(trial.recalled for trial in quantizer.result.trials)

    def test_without_evaluation_it_says_so(self) -> None:
        quantizer = quick(lpot.Quantization("conf.yaml"))
        q_model = quantizer(demo_model_path(), q_dataloader=Infer())
        assert isinstance(q_model, onnx.ModelProto)
        assert quantizer.result.met is None
        assert any("not evaluated" in note for note in quantizer.result.notes)

    def test_own_metric_class(self) -> None:
        class Right:
            def __init__(self) -> None:
                self.reset()

            def reset(self) -> None:
                self.hits = self.seen = 0

            def update(self, preds: np.ndarray, labels: np.ndarray) -> None:
                self.hits += int((preds.argmax(1) == labels).sum())
                self.seen += len(labels)

            def result(self) -> float:
                return self.hits / self.seen

        quantizer = quick(lpot.Quantization("conf.yaml"))
        quantizer.metric("right", Right)
        evaluation = [(DATA.images[i : i + 50], DATA.labels[i : i + 50]) for i in range(0, 200, 50)]
        quantizer(demo_model_path(), q_dataloader=Infer(), eval_dataloader=evaluation)
        assert quantizer.result.met is True

    def test_metric_in_yaml_loaders_in_code(self) -> None:
        text = CONF + "evaluation:\n  accuracy:\n    metric:\n      topk: 1\n"
        Path("conf.yaml").write_text(text, "utf-8")
        quantizer = quick(lpot.Quantization("conf.yaml"))
        evaluation = [(DATA.images[i : i + 50], DATA.labels[i : i + 50]) for i in range(0, 200, 50)]
        quantizer(demo_model_path(), q_dataloader=Infer(), eval_dataloader=evaluation)
        assert quantizer.result.met is True
        assert quantizer.result.baseline.samples == 200

    def test_everything_in_yaml(self) -> None:
        dummy = "dataset: {dummy: {shape: [40, 1, 8, 8], low: 0.0, high: 1.0, label: true}}"
        loader = f"dataloader: {{batch_size: 10, {dummy}}}"
        text = CONF.replace("sampling_size: 100", f"sampling_size: 100\n    {loader}")
        text = text.replace(
            "relative:  0.01", "absolute: 1000.0\n    really: true\n    higher_is_better: false"
        )
        metric = "metric: {MSE: {compare_label: false}}"
        text += f"evaluation:\n  accuracy:\n    {metric}\n    {loader}\n"
        Path("conf.yaml").write_text(text, "utf-8")
        quantizer = quick(lpot.Quantization("conf.yaml"))
        quantizer(demo_model_path())
        assert quantizer.result.met is True
        assert quantizer.result.baseline.accuracy == 0.0


class TestExperimental:
    def test_attributes_then_call(self) -> None:
        from lpot.experimental import Quantization, common

        quantizer = quick(Quantization("conf.yaml"))
        quantizer.model = common.Model(str(demo_model_path()))
        quantizer.calib_dataloader = common.DataLoader(Images(), batch_size=20)
        quantizer.eval_func = accuracy
        q_model = quantizer()
        assert isinstance(q_model, Model)
        assert q_model.met is True
        assert isinstance(q_model.model, onnx.ModelProto)
        assert q_model.graph.nodes
        assert q_model.opset_import, "unknown attributes pass to the native object"
        (logits,) = q_model(DATA.images)
        assert (logits.argmax(1) == predict(q_model.model)).all()
        path = q_model.save("saved/int8.onnx")
        again = lpot.load(path)
        np.testing.assert_array_equal(again(DATA.images)[0], logits)

    def test_metric_record(self) -> None:
        from lpot.experimental import Quantization, common
        from lpot.metric.classification import TopK

        quantizer = quick(Quantization("conf.yaml"))
        quantizer.model = str(demo_model_path())
        quantizer.calib_dataloader = Infer()
        quantizer.eval_dataloader = common.DataLoader(Images(), batch_size=20)
        quantizer.metric = common.Metric(TopK, k=1)
        assert quantizer().met is True

    def test_without_model(self) -> None:
        from lpot.experimental import Quantization

        with pytest.raises(lpot.LpotError, match="no model was given"):
            Quantization("conf.yaml")()


def test_dict_configuration() -> None:
    conf = {
        "model": {"name": "d", "framework": "onnx"},
        "tuning": {"exit_policy": {"max_trials": 1}},
    }
    quantizer = quick(lpot.Quantization(conf))
    quantizer(demo_model_path(), q_dataloader=Infer(), eval_func=accuracy)
    assert quantizer.result.met is False
    assert len(quantizer.result.trials) == 1


def test_integerops_means_dynamic_and_needs_no_data() -> None:
    conf = {"model": {"name": "d", "framework": "onnxrt_integerops"}}
    quantizer = quick(lpot.Quantization(conf))
    quantizer(demo_model_path())
    recipe = quantizer.result.recipe
    assert {config.mode for config in recipe.ops.values() if not config.is_float} == {"dynamic"}


def test_a_backend_that_can_not_train_says_so() -> None:
    conf = {"model": {"name": "net"}, "quantization": {"approach": "quant_aware_training"}}
    with pytest.raises(lpot.LpotError, match="backend onnx can't train"):
        lpot.Quantization(conf)(demo_model_path(), q_func=lambda model: model)
