"""Logs beside a tuning: written by another thread, and never in its way."""

from __future__ import annotations

import logging
import struct
import sys
import threading
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from lpot.core.errors import BackendUnavailable
from lpot.core.evaluation.evaluate import takes_session
from lpot.core.goal import Goal
from lpot.core.progress import Chorus, Listener
from lpot.core.recipe import OpConfig, OpKey, Recipe, TensorConfig
from lpot.core.trial import Score, State, Trial
from lpot.data.record import RecordFile
from lpot.demo import demo_data, demo_model_path
from lpot.jobs.callbacks.aside import Aside
from lpot.jobs.callbacks.mlflow import MlflowListener
from lpot.jobs.callbacks.tensorboard import TensorboardListener
from lpot.jobs.tune.api import tune
from patience import PATIENCE

INT8 = OpConfig(TensorConfig("uint8", "asym"), TensorConfig("int8", "sym"))
RECIPE = Recipe({OpKey("conv", "Conv"): INT8})
TRIAL = Trial(1, RECIPE, State.DONE, Score(0.895, latency=0.01), True, seconds=2.0)
GOAL = Goal(relative=0.01)


class Recording(Listener):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def baseline(self, score: Score, goal: Goal) -> None:
        self.heard.append("baseline")

    def trial(self, trial: Trial, best: Trial | None) -> None:
        self.heard.append(f"trial {trial.number}")

    def close(self) -> None:
        self.heard.append("close")


class Failing(Listener):
    def trial(self, trial: Trial, best: Trial | None) -> None:
        raise ConnectionError("the server is down")


class Hanging(Listener):
    def __init__(self) -> None:
        self.release = threading.Event()
        self.ended = False

    def trial(self, trial: Trial, best: Trial | None) -> None:
        self.release.wait(PATIENCE)
        self.ended = True


def test_everything_arrives_in_order() -> None:
    inner, twin = Recording(), Recording()
    chorus = Chorus(Aside(inner), twin)
    chorus.baseline(Score(0.9), GOAL)
    chorus.trial(TRIAL, TRIAL)
    chorus.close()
    assert inner.heard == twin.heard == ["baseline", "trial 1", "close"]


def test_a_failure_is_told_once_and_goes_no_further(caplog: pytest.LogCaptureFixture) -> None:
    aside = Aside(Failing())
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            aside.trial(TRIAL, TRIAL)
        aside.close()
    assert [record.message for record in caplog.records] == [
        "Failing failed, the tuning continues: the server is down"
    ]


def test_a_log_that_hangs_is_left_behind(caplog: pytest.LogCaptureFixture) -> None:
    inner = Hanging()
    aside = Aside(inner, patience=0.1)
    for _ in range(3000):
        aside.trial(TRIAL, TRIAL)
    aside.close()
    assert not inner.ended, "the tuning waited for it"
    assert "still busy" in caplog.text
    inner.release.set()


def records(folder: Path) -> list[bytes]:
    (file,) = folder.glob("events.out.tfevents.*")
    return [bytes(record) for record in RecordFile(file)]


def test_events_are_records_with_checksums(tmp_path: Path) -> None:
    log = TensorboardListener(tmp_path / "tb")
    assert not (tmp_path / "tb").exists()
    log.baseline(Score(0.9), GOAL)
    log.trial(TRIAL, TRIAL)
    log.close()
    found = records(tmp_path / "tb")
    assert b"brain.Event:2" in found[0]
    (accuracy,) = [r for r in found if b"tuning/accuracy" in r and r[10:11] == b"\x01"]
    assert struct.pack("<f", 0.895) in accuracy


def test_tensorboard_itself_reads_them(tmp_path: Path) -> None:
    loader = pytest.importorskip("tensorboard.backend.event_processing.event_accumulator")
    log = TensorboardListener(tmp_path)
    log.baseline(Score(0.9), GOAL)
    log.trial(TRIAL, TRIAL)
    contrast = {"op": ["a", "Conv"], "edges": [-1.0, 1.0]}
    counts = {"fp32_counts": [1, 5, 2], "low_counts": [2, 4, 2]}
    log.finished(
        {
            "trials": [{"number": 1}],
            "result": {"speed": 2.5},
            "tensors": [{**contrast, **counts}],
            "ops": [{"name": "a", "sqnr": 30.0}],
            "config": "model: {}",
        }
    )
    log.close()
    found = loader.EventAccumulator(str(tmp_path))
    found.Reload()
    assert [e.value for e in found.Scalars("tuning/accuracy")] == pytest.approx([0.9, 0.895])
    assert found.Scalars("result/speed")[0].value == 2.5
    (histogram,) = found.Histograms("a/fp32")
    assert histogram.histogram_value.num == 8
    assert b"bar 0.891" in found.Tensors("goal")[0].tensor_proto.string_val[0]


def test_the_yaml_turns_it_on(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    data = demo_data()

    @takes_session
    def score(session: Any) -> float:
        (logits,) = session.run(None, {"image": data.images[:100]})
        return float((logits.argmax(axis=1) == data.labels[:100]).mean())

    result = tune(
        demo_model_path(),
        calib=[data.calib_images[:50]],
        evaluate=score,
        config={"tuning": {"tensorboard": True, "exit_policy": {"max_trials": 1}}},
        workspace=tmp_path,
        measure_speed=False,
    )
    assert not any("tensorboard" in note for note in result.notes)
    text = b"".join(records(tmp_path / "tensorboard"))
    assert b"tuning/accuracy" in text and b"/tuned" in text


class Client:
    """As much of MLflow's client as is used."""

    made: list[Client] = []  # noqa: RUF012

    def __init__(self, tracking_uri: str | None) -> None:
        self.uri = tracking_uri
        self.logged: list[tuple[Any, ...]] = []
        Client.made.append(self)

    def get_experiment_by_name(self, name: str) -> None:
        return None

    def create_experiment(self, name: str) -> str:
        return "7"

    def create_run(self, number: str, run_name: str | None) -> Any:
        return SimpleNamespace(info=SimpleNamespace(run_id=f"run of {number}"))

    def log_metric(self, run: str, key: str, value: float, step: int) -> None:
        self.logged.append((key, value, step))

    def log_param(self, run: str, key: str, value: str) -> None:
        self.logged.append((key, value))

    def set_tag(self, run: str, key: str, value: str) -> None:
        self.logged.append((key, value))

    def set_terminated(self, run: str) -> None:
        self.logged.append(("end",))


def test_mlflow_gets_one_run(monkeypatch: pytest.MonkeyPatch) -> None:
    tracking = ModuleType("mlflow.tracking")
    tracking.MlflowClient = Client  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mlflow", ModuleType("mlflow"))
    monkeypatch.setitem(sys.modules, "mlflow.tracking", tracking)
    log = Aside(MlflowListener("file:store", name="digits"))
    log.baseline(Score(0.9), GOAL)
    log.trial(TRIAL, TRIAL)
    log.finished(
        {
            "result": {"speed": None, "evaluations": 2, "met": True},
            "name": "digits",
            "environment": {"model hash": "abc"},
        }
    )
    log.close()
    (client,) = Client.made
    assert client.uri == "file:store"
    assert ("accuracy", 0.895, 1) in client.logged
    assert ("model_hash", "abc") in client.logged
    assert client.logged[-1] == ("end",)


def test_without_mlflow_its_name_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mlflow", None)
    monkeypatch.setitem(sys.modules, "mlflow.tracking", None)
    with pytest.raises(BackendUnavailable, match="pip install mlflow"):
        MlflowListener()


def test_a_log_is_closed_with_the_tuning(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    inner = Recording()
    tune(
        demo_model_path(),
        calib=[demo_data().calib_images[:10]],
        evaluate=lambda model: 1.0,
        workspace=tmp_path,
        measure_speed=False,
        max_trials=1,
        listener=Aside(inner),
    )
    assert inner.heard == ["baseline", "trial 1", "close"]
