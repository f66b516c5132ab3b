"""A tuning for MLflow: one run, its trials as steps."""

from __future__ import annotations

import importlib
import math
from collections.abc import Mapping
from typing import Any

from lpot.core.errors import BackendUnavailable
from lpot.core.goal import Goal
from lpot.core.progress import Listener
from lpot.core.trial import Score, Trial

LONGEST_PARAM = 500  # characters, which every store takes


class MlflowListener(Listener):
    """Writes through a client of its own: the process's active run and URI are left alone.

    Wrap it in `Aside`, so that a slow or absent server costs no time:
    `lpot.tune(model, ..., listener=Aside(MlflowListener(experiment="digits")))`.
    """

    def __init__(
        self, uri: str | None = None, experiment: str = "lpot", name: str | None = None
    ) -> None:
        try:
            tracking = importlib.import_module("mlflow.tracking")
        except ImportError as error:
            raise BackendUnavailable("MLflow", "mlflow") from error
        self._make = tracking.MlflowClient
        self.uri = uri
        self.experiment = experiment
        self.name = name
        self._client: Any = None
        self._run = ""
        self._higher = True

    def _ready(self) -> Any:
        """The client, with a run begun. On the log's thread: a server may be far away."""
        if self._client is None:
            client = self._make(tracking_uri=self.uri)
            known = client.get_experiment_by_name(self.experiment)
            number = (
                client.create_experiment(self.experiment) if known is None else known.experiment_id
            )
            self._run = client.create_run(number, run_name=self.name).info.run_id
            self._client = client
        return self._client

    def baseline(self, score: Score, goal: Goal) -> None:
        client = self._ready()
        self._higher = goal.higher_is_better
        client.log_param(self._run, "goal", str(goal))
        self._metric("accuracy", score.accuracy, 0)
        self._metric("fp32_accuracy", score.accuracy, 0)
        self._metric("bar", goal.bar(score.accuracy), 0)

    def trial(self, trial: Trial, best: Trial | None) -> None:
        self._ready()
        step = trial.number
        self._metric("fp32_ops", len(trial.recipe.float_ops), step)
        self._metric("trial_seconds", trial.seconds, step)
        if trial.score is not None:
            what = "accuracy_bound" if trial.score.raced_out else "accuracy"
            self._metric(what, trial.score.at_best(self._higher), step)
            self._metric("met", float(trial.met), step)
            if trial.score.latency is not None:
                self._metric("latency_ms", trial.score.latency * 1e3, step)
        if best is not None and best.score is not None and not best.score.raced_out:
            self._metric("best_accuracy", best.score.accuracy, step)

    def finished(self, report: Mapping[str, Any]) -> None:
        client, result = self._ready(), report["result"]
        for key in ("speed", "evaluations"):
            if result[key] is not None:
                self._metric(key, result[key], 0)
        client.set_tag(self._run, "lpot.met", str(result["met"]))
        client.set_tag(self._run, "lpot.model", report["name"])
        for key, value in report["environment"].items():
            client.log_param(self._run, key.replace(" ", "_"), str(value)[:LONGEST_PARAM])

    def close(self) -> None:
        if self._client is not None:
            self._client.set_terminated(self._run)
            self._client = None

    def _metric(self, key: str, value: float, step: int) -> None:
        if math.isfinite(value):
            self._client.log_metric(self._run, key, float(value), step=step)
