"""topk, Accuracy, F1, MCC and ROC against scikit-learn, and their faults."""

from __future__ import annotations

import numpy as np
import pytest

from lpot.core.errors import ConfigError, EvaluationError
from lpot.metric import get_metric

sklearn_metrics = pytest.importorskip("sklearn.metrics")


@pytest.fixture
def scores():
    return np.random.default_rng(3).normal(size=(200, 12)).astype(np.float32)


@pytest.fixture
def labels():
    return np.random.default_rng(4).integers(0, 12, 200)


def feed(metric, preds, labels, size=33):
    for at in range(0, len(labels), size):
        metric.update(preds[at : at + size], labels[at : at + size])
    return metric.result()


@pytest.mark.filterwarnings("ignore:'k'")
@pytest.mark.parametrize("k", [1, 2, 3, 5, 11, 12])
def test_topk_equals_sklearn(scores, labels, k):
    wanted = sklearn_metrics.top_k_accuracy_score(labels, scores, k=k, labels=np.arange(12))
    assert feed(get_metric("topk", k=k), scores, labels) == wanted


@pytest.mark.parametrize(
    "form",
    [
        lambda labels: labels.reshape(-1, 1),
        lambda labels: labels.tolist(),
        lambda labels: labels.astype(np.float32),
        lambda labels: np.eye(12)[labels],
        lambda labels: [labels],
        lambda labels: tuple(labels.tolist()),
    ],
)
def test_topk_takes_labels_in_any_form(scores, labels, form):
    metric = get_metric("topk")
    metric.update(scores, form(labels))
    assert metric.result() == np.mean(scores.argmax(axis=1) == labels)


def test_topk_takes_predictions_in_any_form(scores, labels):
    wanted = np.mean(scores.argmax(axis=1) == labels)
    for preds in (scores, [scores], (scores,), list(scores), scores.tolist(), scores[:, :, None]):
        metric = get_metric("topk")
        metric.update(preds, labels)
        assert metric.result() == wanted
    metric = get_metric("topk")
    metric.update([scores], [labels])
    assert metric.result() == wanted
    metric.reset()
    for row, label in zip(scores, labels, strict=True):
        metric.update(row, label)  # one sample, no batch axis
    assert metric.result() == wanted
    metric.reset()
    metric.update(scores[0].tolist(), int(scores[0].argmax()))
    assert metric.result() == 1.0


def test_topk_breaks_ties_as_argmax():
    ties = np.random.default_rng(5).integers(0, 3, (300, 6)).astype(np.float32)
    labels = np.random.default_rng(6).integers(0, 6, 300)
    assert feed(get_metric("topk"), ties, labels) == np.mean(ties.argmax(axis=1) == labels)
    constant = get_metric("topk", k=2)
    constant.update(np.zeros((6, 6)), np.arange(6))
    assert constant.result() == pytest.approx(2 / 6)


def test_topk_faults(scores, labels):
    metric = get_metric("topk")
    metric.update(scores, labels)
    with pytest.raises(
        EvaluationError, match=r"'topk', sample 202: label 12 is out of range.*LabelShift"
    ):
        metric.update(scores[:4], [0, 1, 12, 3])
    with pytest.raises(EvaluationError, match="sample 200: label -1"):
        metric.update(scores[:1], [-1])
    with pytest.raises(EvaluationError, match=r"sample 201: the label is .*0\.5"):
        metric.update(scores[:2], [1.0, 0.5])
    with pytest.raises(EvaluationError, match="use the metric Accuracy"):
        metric.update(np.array([[1], [2]]), [1, 2])
    with pytest.raises(EvaluationError, match="sample 200: the batch is empty"):
        metric.update(np.zeros((0, 12)), np.zeros(0))
    with pytest.raises(EvaluationError, match="labels can't be read as one array"):
        metric.update(scores[:2], [np.zeros(2), np.zeros(3)])
    with pytest.raises(EvaluationError, match="expected numbers"):
        metric.update([["a", "b"]], [0])
    for wrong in (0, -1, True, "one", 1.5):
        with pytest.raises(ConfigError, match=r"topk\.k"):
            get_metric("topk", k=wrong)
    assert metric.result() == np.mean(scores.argmax(axis=1) == labels)  # faults changed nothing


def test_several_outputs_are_refused_with_a_word(scores, labels):
    with pytest.raises(EvaluationError, match="postprocess must choose"):
        get_metric("topk").update([scores, scores[:, :5]], labels)


def test_accuracy_equals_sklearn(scores, labels):
    chosen = scores.argmax(axis=1)
    wanted = sklearn_metrics.accuracy_score(labels, chosen)
    for preds in (scores, chosen, chosen[:, None], chosen.astype(np.float32)):
        assert feed(get_metric("Accuracy"), preds, labels) == wanted
    assert feed(get_metric("Accuracy"), scores, np.eye(12)[labels]) == wanted


def test_accuracy_of_probabilities_and_logits():
    rng = np.random.default_rng(7)
    probability, truth = rng.random((50, 1)), rng.integers(0, 2, 50)
    wanted = sklearn_metrics.accuracy_score(truth, probability[:, 0] > 0.5)
    assert feed(get_metric("Accuracy"), probability, truth) == wanted
    logits = np.log(probability / (1 - probability))
    with pytest.raises(EvaluationError, match="threshold: 0"):
        feed(get_metric("Accuracy"), logits, truth)
    assert feed(get_metric("Accuracy", threshold=0), logits, truth) == wanted


def test_accuracy_of_pixels_and_labels_by_the_dozen():
    rng = np.random.default_rng(8)
    scores, truth = rng.normal(size=(6, 4, 5, 7)), rng.integers(0, 4, (6, 5, 7))
    wanted = np.mean(scores.argmax(axis=1) == truth)
    assert feed(get_metric("Accuracy"), scores, truth, 2) == pytest.approx(wanted)
    assert feed(get_metric("Accuracy"), np.moveaxis(scores, 1, -1), truth, 2) == pytest.approx(
        wanted
    )
    marks, real = rng.integers(0, 2, (30, 9)), rng.integers(0, 2, (30, 9))
    assert feed(get_metric("Accuracy"), marks, real, 7) == pytest.approx(np.mean(marks == real))
    with pytest.raises(EvaluationError, match="threshold"):
        get_metric("Accuracy").update(rng.random((30, 9)), real)
    soft = rng.random((30, 9))
    wanted = np.mean((soft > 0.5) == real)
    assert feed(get_metric("Accuracy", threshold=0.5), soft, real) == pytest.approx(wanted)


def test_accuracy_refuses_shapes_that_do_not_fit():
    with pytest.raises(EvaluationError, match=r"\(3, 4\).*\(3, 2\)"):
        get_metric("Accuracy").update(np.zeros((3, 4)), np.zeros((3, 2)))


@pytest.mark.parametrize("average", ["macro", "micro", "weighted"])
def test_f1_equals_sklearn(scores, labels, average):
    wanted = sklearn_metrics.f1_score(labels, scores.argmax(axis=1), average=average)
    assert feed(get_metric("F1", average=average), scores, labels) == pytest.approx(wanted)


def test_f1_binary_equals_sklearn():
    rng = np.random.default_rng(9)
    scores, truth = rng.normal(size=(90, 2)), rng.integers(0, 2, 90)
    chosen = scores.argmax(axis=1)
    wanted = sklearn_metrics.f1_score(truth, chosen)
    assert feed(get_metric("F1"), scores, truth) == pytest.approx(wanted)
    assert feed(get_metric("F1"), chosen.tolist(), truth.tolist()) == pytest.approx(wanted)
    wanted = sklearn_metrics.f1_score(truth, chosen, pos_label=0)
    assert feed(get_metric("F1", pos_label=0), scores, truth) == pytest.approx(wanted)
    assert feed(get_metric("F1"), np.zeros(9, int), np.zeros(9, int)) == 0.0


def test_f1_binary_refuses_many_labels(scores, labels):
    with pytest.raises(EvaluationError, match="average is binary"):
        feed(get_metric("F1"), scores, labels)
    with pytest.raises(ConfigError, match=r"F1\.average"):
        get_metric("F1", average="mean")


def test_f1_of_texts():
    metric = get_metric("F1")
    metric.update(["The red fox", "nothing"], ["a red fox ran", ["some", "thing or nothing"]])
    # red fox | red fox ran: 2*2/5; nothing | thing or nothing: 2*1/4
    assert metric.result() == pytest.approx((0.8 + 0.5) / 2)
    assert metric.is_mean
    with pytest.raises(EvaluationError, match="strings before"):
        metric.update([1, 0], [1, 1])
    metric.reset()
    metric.update([1, 0], [1, 1])
    assert not metric.is_mean
    with pytest.raises(EvaluationError, match="labels before"):
        metric.update(["a"], ["b"])
    metric.reset()
    metric.update(np.array(["one two"]), np.array(["two"]))
    assert metric.result() == pytest.approx(2 / 3)


@pytest.mark.parametrize("kinds", [2, 5])
def test_mcc_equals_sklearn(kinds):
    rng = np.random.default_rng(10)
    truth = rng.integers(0, kinds, 300)
    chosen = np.where(rng.random(300) < 0.6, truth, rng.integers(0, kinds, 300))
    wanted = sklearn_metrics.matthews_corrcoef(truth, chosen)
    assert feed(get_metric("MCC"), chosen, truth) == pytest.approx(wanted, abs=1e-12)
    assert feed(get_metric("MCC"), np.ones(9, int), truth[:9]) == 0.0


def test_roc_equals_sklearn():
    rng = np.random.default_rng(11)
    truth = rng.integers(0, 2, 500)
    score = np.round(truth * 0.3 + rng.random(500), 2)  # rounded: many ties
    wanted = sklearn_metrics.roc_auc_score(truth, score)
    for preds in (score, score[:, None], np.stack([1 - score, score], axis=1)):
        assert feed(get_metric("ROC"), preds, truth) == pytest.approx(wanted, abs=1e-12)
    metric = get_metric("ROC", task="dien")
    feed(metric, score, truth)
    right = sklearn_metrics.accuracy_score(truth, score > 0.5)
    assert metric.details == {"auc": pytest.approx(wanted), "acc": right}


def test_roc_faults():
    with pytest.raises(EvaluationError, match="sample 2: label 2"):
        get_metric("ROC").update([0.1, 0.2, 0.3], [0, 1, 2])
    metric = get_metric("ROC")
    metric.update([0.1, 0.2], [1, 1])
    with pytest.raises(EvaluationError, match="all 2 labels are 1"):
        metric.result()
    with pytest.raises(ConfigError, match="dlrm"):
        get_metric("ROC", task="bert")


def test_tensors_of_torch_score_the_same(scores, labels):
    torch = pytest.importorskip("torch")
    for name in ("topk", "Accuracy"):
        plain = feed(get_metric(name), scores, labels)
        assert feed(get_metric(name), torch.tensor(scores), torch.tensor(labels)) == plain
