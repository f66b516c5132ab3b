"""mIOU against scikit-learn's Jaccard score, and its faults."""

from __future__ import annotations

import numpy as np
import pytest

from lpot.core.errors import ConfigError, EvaluationError
from lpot.metric import get_metric

sklearn_metrics = pytest.importorskip("sklearn.metrics")


@pytest.fixture
def maps():
    rng = np.random.default_rng(0)
    truth = rng.integers(0, 5, (6, 9, 11))
    truth[truth == 3] = 1  # a class that occurs nowhere
    guess = np.where(rng.random(truth.shape) < 0.7, truth, 0)
    return guess, truth


def test_equals_sklearn(maps):
    guess, truth = maps
    scores = sklearn_metrics.jaccard_score(truth.ravel(), guess.ravel(), average=None)
    metric = get_metric("mIOU", num_classes=5)
    metric.update(guess[:4], truth[:4])
    metric.update(guess[4:], truth[4:])
    assert metric.result() == pytest.approx(scores.mean())
    assert list(metric.per_class) == [0, 1, 2, 4]
    assert metric.details["IOU/4"] == pytest.approx(scores[3])


def test_forms(maps):
    guess, truth = maps
    wanted = get_metric("mIOU", num_classes=5)
    wanted.update(guess, truth)
    scores = np.eye(5)[guess]
    for preds, labels in (
        (guess[..., None], truth[..., None]),
        (scores, truth),
        (np.moveaxis(scores, -1, 1), truth),
        ([guess], truth),
        (list(guess), list(truth)),
        (guess.astype(np.float32), truth.astype(np.uint8)),
    ):
        metric = get_metric("mIOU", num_classes=5)
        metric.update(preds, labels)
        assert metric.result() == wanted.result()
        assert metric.seen == 6
    metric = get_metric("mIOU", num_classes=5)
    metric.update([guess[0], guess[1, :4]], [truth[0], truth[1, :4]])  # images of several sizes
    assert metric.seen == 2


def test_ignored_pixels(maps):
    guess, truth = maps
    marked = truth.copy()
    marked[:, :3] = 255
    metric, cropped = get_metric("mIOU", num_classes=5), get_metric("mIOU", num_classes=5)
    metric.update(guess, marked)
    cropped.update(guess[:, 3:], truth[:, 3:])
    assert metric.result() == cropped.result()
    marked[:, :3] = -1
    metric = get_metric("mIOU", num_classes=5, ignore_label=[-1, 255])
    metric.update(guess, marked)
    assert metric.result() == cropped.result()


def test_faults(maps):
    guess, truth = maps
    metric = get_metric("mIOU", num_classes=4)
    with pytest.raises(EvaluationError, match="sample 0: label 4 is out of range"):
        metric.update(guess, truth)
    metric = get_metric("mIOU", num_classes=5)
    metric.update(guess, truth)
    with pytest.raises(EvaluationError, match="sample 6: predicted class 7"):
        metric.update(np.full_like(guess[:1], 7), truth[:1])
    with pytest.raises(
        EvaluationError, match=r"\(3, 9, 11\) doesn't fit a label of shape \(9, 11\)"
    ):
        metric.update(np.zeros((1, 3, 9, 11)), truth[:1])
    with pytest.raises(ConfigError, match="num_classes"):
        get_metric("mIOU", num_classes=0)
