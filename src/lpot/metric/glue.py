"""Scores of the GLUE tasks."""

from __future__ import annotations

from typing import Any

from lpot.core.errors import ConfigError, did_you_mean
from lpot.metric.base import BaseMetric, Floats
from lpot.metric.classification import F1, MCC, Accuracy
from lpot.metric.regression import Pearson, Spearman

# task → the number that stands for it; the details have all of them
HEADLINES = {
    "cola": "mcc",
    "sst-2": "acc",
    "mrpc": "f1",
    "sts-b": "corr",
    "qqp": "f1",
    "mnli": "acc",
    "mnli-mm": "acc",
    "qnli": "acc",
    "rte": "acc",
    "wnli": "acc",
}
_SPELLINGS = {"sst2": "sst-2", "stsb": "sts-b", "mnlimm": "mnli-mm", "mnlimismatched": "mnli-mm"}
_SPELLINGS["mnlimatched"] = "mnli"


def task_name(task: str) -> str:
    """The usual spelling of a task's name.

    >>> task_name("STS_B"), task_name("mnli_mismatched")
    ('sts-b', 'mnli-mm')
    """
    bare = str(task).lower().replace("-", "").replace("_", "").replace("/", "").replace(" ", "")
    name = _SPELLINGS.get(bare, bare)
    if name not in HEADLINES:
        raise ConfigError(
            f"unknown GLUE task {task!r}, expected one of {', '.join(HEADLINES)}"
            + did_you_mean(str(task), HEADLINES),
            path="GLUE.task",
        )
    return name


def _parts(task: str) -> dict[str, BaseMetric]:
    if task == "cola":
        return {"mcc": MCC()}
    if task == "sts-b":
        return {"pearson": Pearson(), "spearmanr": Spearman()}
    if task in ("mrpc", "qqp"):
        return {"acc": Accuracy(), "f1": F1()}
    return {"acc": Accuracy()}


class GLUE(BaseMetric):
    """The headline number of a GLUE task, from logits (or class numbers) and labels.

    Matthews correlation for cola, F1 for mrpc and qqp, the mean of Pearson and Spearman for sts-b,
    accuracy for the others. `details` has all numbers of the task; `key` makes another of them the
    result (acc, f1, acc_and_f1, mcc, pearson, spearmanr, corr).

    >>> metric = GLUE(task="mrpc")
    >>> metric.update([[0.1, 0.9], [0.3, 0.7], [0.8, 0.2]], [1, 0, 0])
    >>> {name: round(score, 4) for name, score in metric.details.items()}
    {'acc': 0.6667, 'f1': 0.6667, 'acc_and_f1': 0.6667}
    """

    name = "GLUE"
    bounds = (-1.0, 1.0)

    def __init__(self, task: str = "mrpc", key: str | None = None) -> None:
        self.task = task_name(task)
        self.parts = _parts(self.task)
        known = [*self.parts, *_combined(self.parts)]
        if key is not None and key not in known:
            raise ConfigError(
                f"key {key!r} is not known for task {self.task!r}, expected one of "
                f"{', '.join(known)}{did_you_mean(key, known)}",
                path="GLUE.key",
            )
        self.key = key or HEADLINES[self.task]
        for part in self.parts.values():
            part.name = f"GLUE/{self.task}"
        if self.key == "acc":
            self.is_mean = True
            self.bounds = (0.0, 1.0)

    def reset(self) -> None:
        for part in self.parts.values():
            part.reset()

    def update(self, preds: Any, labels: Any = None) -> None:
        for part in self.parts.values():
            part.update(preds, labels)

    def per_sample(self, preds: Any, labels: Any = None) -> Floats:
        if not self.is_mean:
            return super().per_sample(preds, labels)
        return self.parts["acc"].per_sample(preds, labels)

    @property
    def tally(self) -> tuple[int, float] | None:
        return self.parts["acc"].tally if self.key == "acc" else None

    @property
    def latest(self) -> Floats | None:  # type: ignore[override]  # of the part that counts
        return self.parts["acc"].latest if self.key == "acc" else None

    def result(self) -> float:
        if self.key in self.parts:
            return self.parts[self.key].result()
        return self.details[self.key]

    @property
    def details(self) -> dict[str, float]:
        scores = {name: part.result() for name, part in self.parts.items()}
        for name, pair in _combined(self.parts).items():
            scores[name] = sum(scores[one] for one in pair) / 2
        return scores


def _combined(parts: dict[str, BaseMetric]) -> dict[str, tuple[str, str]]:
    if "f1" in parts:
        return {"acc_and_f1": ("acc", "f1")}
    return {"corr": ("pearson", "spearmanr")} if "pearson" in parts else {}
