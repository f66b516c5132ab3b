"""GLUE tasks on the real labels, against scikit-learn and scipy."""

from __future__ import annotations

import csv

import numpy as np
import pytest

from lpot.core.errors import ConfigError, EvaluationError
from lpot.metric import get_metric
from lpot.metric.glue import HEADLINES, task_name

sklearn_metrics = pytest.importorskip("sklearn.metrics")
stats = pytest.importorskip("scipy.stats")


def rows(file):
    if not file.is_file():
        pytest.skip(f"no {file}")
    with file.open(encoding="utf-8-sig", newline="") as stream:
        return list(csv.reader(stream, delimiter="\t", quoting=csv.QUOTE_NONE))


def feed(metric, preds, labels, size=32):
    for at in range(0, len(labels), size):
        metric.update(preds[at : at + size], labels[at : at + size])
    return metric.result()


def logits_near(labels, kinds, right, seed=0):
    rng = np.random.default_rng(seed)
    logits = rng.normal(size=(len(labels), kinds)).astype(np.float32)
    lift = rng.random(len(labels)) < right
    logits[np.flatnonzero(lift), np.asarray(labels)[lift]] += 4
    return logits


def test_mrpc_dev_equals_sklearn(data):
    labels = np.asarray([int(row[0]) for row in rows(data / "glue" / "MRPC" / "dev.tsv")[1:]])
    assert len(labels) == 408 and labels.sum() == 279
    for right in (0.2, 0.6, 0.9):
        logits = logits_near(labels, 2, right)
        chosen = logits.argmax(axis=1)
        f1 = sklearn_metrics.f1_score(labels, chosen)
        accuracy = sklearn_metrics.accuracy_score(labels, chosen)
        metric = get_metric("GLUE", task="mrpc")
        assert feed(metric, logits, labels) == pytest.approx(f1, abs=1e-12)
        assert metric.details == {
            "acc": accuracy,
            "f1": pytest.approx(f1, abs=1e-12),
            "acc_and_f1": pytest.approx((f1 + accuracy) / 2),
        }
        assert feed(get_metric("F1"), logits, labels) == pytest.approx(f1, abs=1e-12)
        assert feed(get_metric("Accuracy"), logits, labels) == accuracy
        assert feed(get_metric("topk"), logits, labels) == accuracy


def test_cola_equals_sklearn(data):
    labels = [int(row[1]) for row in rows(data / "glue" / "CoLA" / "out_of_domain_dev.tsv")]
    logits = logits_near(labels, 2, 0.5)
    wanted = sklearn_metrics.matthews_corrcoef(labels, logits.argmax(axis=1))
    assert feed(get_metric("GLUE", task="CoLA"), logits, labels) == pytest.approx(wanted, abs=1e-12)


def test_stsb_equals_scipy(data):
    labels = [float(row[4]) for row in rows(data / "glue" / "STS-B" / "sts-dev.csv")]
    assert len(labels) == 1500
    guess = np.asarray(labels) + np.random.default_rng(1).normal(size=1500)
    pearson = stats.pearsonr(guess, labels).statistic
    spearman = stats.spearmanr(guess, labels).statistic
    metric = get_metric("GLUE", task="sts-b")
    assert feed(metric, guess[:, None], labels) == pytest.approx((pearson + spearman) / 2, abs=1e-9)
    assert metric.details["pearson"] == pytest.approx(pearson, abs=1e-9)
    assert metric.details["spearmanr"] == pytest.approx(spearman, abs=1e-12)


@pytest.mark.parametrize("task", HEADLINES)
def test_every_task_gives_its_headline(task):
    metric = get_metric("GLUE", task=task)
    rng = np.random.default_rng(2)
    if task == "sts-b":
        labels = rng.random(80)
        preds = labels + rng.random(80)
    else:
        labels = rng.integers(0, 3 if task.startswith("mnli") else 2, 80)
        preds = logits_near(labels, int(labels.max()) + 1, 0.6)
    result = feed(metric, preds, labels)
    assert result == metric.details[HEADLINES[task]]
    assert 0.3 < result < 1
    if HEADLINES[task] == "acc":
        assert metric.is_mean
        assert metric.per_sample(preds, labels).mean() == pytest.approx(result)
    else:
        with pytest.raises(EvaluationError, match="not a mean"):
            metric.per_sample(preds, labels)


def test_key_chooses_another_number():
    logits, labels = logits_near([0, 1] * 20, 2, 0.5), np.array([0, 1] * 20)
    metric = get_metric("GLUE", task="mrpc", key="acc")
    assert feed(metric, logits, labels) == np.mean(logits.argmax(axis=1) == labels)
    assert metric.is_mean
    with pytest.raises(ConfigError, match=r"GLUE\.key.*acc_and_f1"):
        get_metric("GLUE", task="mrpc", key="acc_f1")


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("MRPC", "mrpc"),
        ("sst2", "sst-2"),
        ("SST-2", "sst-2"),
        ("STSB", "sts-b"),
        ("MNLI", "mnli"),
        ("mnli_matched", "mnli"),
        ("mnli-mm", "mnli-mm"),
        ("mnli/mm", "mnli-mm"),
    ],
)
def test_spellings(given, name):
    assert task_name(given) == name


def test_unknown_task():
    with pytest.raises(ConfigError, match="did you mean 'mrpc'"):
        get_metric("GLUE", task="mprc")


def test_wrapped_outputs_and_label_range():
    logits = logits_near([0, 1, 1], 2, 1.0)
    metric = get_metric("GLUE", task="rte")
    metric.update([logits], [np.array([0, 1, 1])])
    assert metric.result() == 1.0
    with pytest.raises(EvaluationError, match="'GLUE/rte', sample 4: label 2"):
        metric.update(logits, [0, 2, 1])
