"""`lpot.Benchmark` and `lpot.experimental.Benchmark`: call styles, modes, the yaml's settings."""

from __future__ import annotations

import json
import logging
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lpot
from lpot.core.cpu import probe
from lpot.core.errors import ConfigError, DataError
from lpot.demo import demo_data, demo_model_path

pytest.importorskip("onnxruntime")

DATA = demo_data()
CONF: dict[str, Any] = {
    "model": {"name": "digits", "framework": "onnxrt_qlinearops"},
    "evaluation": {
        "accuracy": {"metric": {"topk": 1}},
        "performance": {"warmup": 1, "iteration": 5},
    },
}


class Loader:
    batch_size = 20

    def __iter__(self) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for start in range(0, 60, 20):
            yield DATA.images[start : start + 20], DATA.labels[start : start + 20]


def conf(**performance: Any) -> dict[str, Any]:
    return {**CONF, "evaluation": {"accuracy": {"metric": {"topk": 1}}, "performance": performance}}


def experimental(configuration: Any) -> Any:
    from lpot.experimental import Benchmark, common

    evaluator = Benchmark(configuration)
    evaluator.model = common.Model(str(demo_model_path()))
    evaluator.b_dataloader = Loader()
    return evaluator


def test_attributes_then_a_mode(caplog: pytest.LogCaptureFixture) -> None:
    evaluator = experimental(CONF)
    with caplog.at_level(logging.INFO, logger="lpot"):
        evaluator("performance")
        evaluator(mode="accuracy")
    accuracy, size, seconds = evaluator.results["performance"]
    assert math.isnan(accuracy) and size == 20 and len(seconds) == 5
    assert "Accuracy is {:.3f}".format(accuracy) == "Accuracy is nan"  # noqa: UP032 - old scripts
    accuracy, size, seconds = evaluator.results()["accuracy"]
    session = __import__("onnxruntime").InferenceSession(str(demo_model_path()))
    (scores,) = session.run(None, {session.get_inputs()[0].name: DATA.images[:60]})
    assert accuracy == pytest.approx((scores.argmax(1) == DATA.labels[:60]).mean())
    assert size == 20 and len(seconds) == 3
    assert "Latency: " in caplog.text and "images/sec" in caplog.text
    assert "Accuracy is " in caplog.text
    assert evaluator.result.models[0].timing is not None and evaluator.score.samples == 60
    json.dumps(evaluator.result.to_json())


def test_first_api_runs_the_modes_the_yaml_names(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "conf.yaml").write_text(json.dumps(CONF))
    evaluator = lpot.Benchmark(str(tmp_path / "conf.yaml"))
    loader = evaluator.dataloader(
        list(zip(DATA.images[:40], DATA.labels[:40], strict=True)), batch_size=10
    )
    results = evaluator(str(demo_model_path()), b_dataloader=loader, b_func=print)
    assert list(results) == ["accuracy", "performance"]
    assert results["performance"].batch_size == 10
    assert "b_func is not used" in caplog.text
    alone = lpot.Benchmark({"model": CONF["model"]})
    assert list(alone(demo_model_path())) == ["performance"]


def test_all_batches_at_least_once_and_no_more_than_asked() -> None:
    evaluator = experimental(conf(warmup=0))
    evaluator()
    assert len(evaluator.results["performance"].seconds) >= 3
    evaluator = experimental(conf(warmup=0, iteration=2))
    evaluator()
    assert len(evaluator.results["performance"].seconds) == 2


@pytest.mark.skipif(probe().cores < 2, reason="needs two cores")
def test_configs_are_acted_upon() -> None:
    configs = {"cores_per_instance": 1, "num_of_instance": 2, "kmp_blocktime": 1}
    evaluator = experimental(conf(iteration=4, configs={**configs, "intra_num_of_threads": 1}))
    evaluator()
    (model,) = evaluator.result.models
    assert [len(part.cores) for part in model.parts] == [1, 1]
    assert len(evaluator.results["performance"].seconds) == 8
    assert evaluator.result.settings.threads == 1


def test_more_instances_than_cores_is_refused_with_the_yaml_s_line(tmp_path: Path) -> None:
    path = tmp_path / "deploy.yaml"
    path.write_text(
        "model: {name: digits, framework: onnxrt_qlinearops}\n"
        "evaluation:\n  performance:\n    configs:\n      num_of_instance: 4000\n"
    )
    with pytest.raises(ConfigError) as caught:
        experimental(str(path))()
    assert "deploy.yaml:5" in str(caught.value) and "num_of_instance" in str(caught.value)
    assert "4000 instance(s)" in str(caught.value) and str(probe().cores) in str(caught.value)


@pytest.mark.parametrize("iteration", [0, -2])
def test_zero_iterations(iteration: int) -> None:
    with pytest.raises(ConfigError, match=r"performance\.iteration"):
        experimental(conf(iteration=iteration))


def test_mistakes() -> None:
    with pytest.raises(ConfigError, match="did you mean 'accuracy'"):
        experimental(CONF)("acuracy")
    evaluator = experimental(CONF)
    evaluator.model = None
    with pytest.raises(ConfigError, match="no model was given"):
        evaluator()
    evaluator = experimental({"model": CONF["model"]})
    with pytest.raises(ConfigError, match="metric"):
        evaluator("accuracy")
    evaluator.b_dataloader = []
    with pytest.raises(DataError, match="yielded no batch"):
        evaluator()


class Sum:
    """A metric of the user's own."""

    def reset(self) -> None:
        self.seen = 0

    def update(self, preds: Any, labels: Any) -> None:
        self.seen += len(labels)

    def result(self) -> float:
        return float(self.seen)


def test_metric_and_postprocess_by_attribute() -> None:
    from lpot.experimental import common

    evaluator = experimental({"model": CONF["model"]})
    evaluator.metric = common.Metric(Sum)
    assert evaluator("accuracy")["accuracy"].accuracy == 60


@pytest.mark.slow
def test_a_torch_module_is_timed_in_a_process_of_its_own() -> None:
    torch = pytest.importorskip("torch")
    from lpot.experimental import Benchmark

    evaluator = Benchmark({"evaluation": {"performance": {"iteration": 4, "warmup": 0}}})
    evaluator.model = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(64, 10))
    evaluator.b_dataloader = [(torch.rand(8, 1, 8, 8), torch.zeros(8))]
    evaluator()
    result = evaluator.result
    assert result.models[0].framework == "pytorch" and result.batch_size == 8
    assert not any("calling process" in note for note in result.notes)
    assert result.models[0].peak_memory > 0


@pytest.mark.slow
def test_what_can_not_be_sent_is_timed_here() -> None:
    torch = pytest.importorskip("torch")
    from lpot.experimental import Benchmark

    class Locked(torch.nn.Linear):
        def __init__(self) -> None:
            super().__init__(4, 2)
            self.handle = _Handle()

    evaluator = Benchmark({"evaluation": {"performance": {"iteration": 4}}})
    evaluator.model = Locked()
    evaluator.b_dataloader = [torch.rand(3, 4)]
    assert evaluator()["performance"].batch_size == 3
    assert any("calling process" in note for note in evaluator.result.notes)
    evaluator = Benchmark(
        {
            "evaluation": {
                "performance": {"configs": {"num_of_instance": 2, "cores_per_instance": 1}}
            }
        }
    )
    evaluator.model, evaluator.b_dataloader = Locked(), [torch.rand(3, 4)]
    with pytest.raises(lpot.LpotError, match=r"can't be sent to another process|need"):
        evaluator()


class _Handle:
    """Something of the system's, as a lock or a socket, which no other process can have."""

    def __deepcopy__(self, memo: Any) -> _Handle:
        return self

    def __reduce__(self) -> Any:
        raise TypeError("cannot pickle a handle")
