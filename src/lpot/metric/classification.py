"""Scores of class predictions: topk, Accuracy, F1, MCC, ROC."""

from __future__ import annotations

import logging
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError
from lpot.metric.arrays import average_ranks, column, pair, read, whole
from lpot.metric.base import Array, BaseMetric, Floats, SampleMean
from lpot.metric.squad import best_token_f1

logger = logging.getLogger(__name__)


class TopK(SampleMean):
    """Share of samples whose label is among the k highest scores.

    Equal scores are ordered by class number, as `argmax` does, so a model that returns a constant
    does not look perfect. Labels are class numbers or one-hot rows.

    >>> metric = TopK(k=2)
    >>> metric.update([[0.1, 0.7, 0.2], [0.6, 0.1, 0.3]], [2, 1])
    >>> metric.result()
    0.5
    """

    name = "topk"

    def __init__(self, k: int = 1) -> None:
        if isinstance(k, bool) or not isinstance(k, int) or k < 1:
            raise ConfigError(f"k is {k!r}, expected a whole number of 1 or more", path="topk.k")
        self.k = k
        super().__init__()

    def per_sample(self, preds: Any, labels: Any = None) -> Floats:
        guess, truth = pair(self, _one_row(self, preds, labels), labels, self.seen)
        scores = guess.reshape(len(guess), -1)
        classes = scores.shape[1]
        if classes < 2:
            raise self.fault(
                f"predictions have shape {guess.shape}, expected a score for each class; "
                "for predicted class numbers use the metric Accuracy"
            )
        if self.k >= classes and self.seen == 0:
            logger.warning("metric 'topk': k=%d, but there are only %d classes", self.k, classes)
        target = _targets(self, truth, classes, self.seen)
        own = np.take_along_axis(scores, target[:, None], axis=1)
        earlier = np.arange(classes) < target[:, None]
        ahead = (scores > own).sum(axis=1) + ((scores == own) & earlier).sum(axis=1)
        return np.asarray(ahead < self.k, dtype=np.float64)


def _one_row(metric: BaseMetric, preds: Any, labels: Any) -> Any:
    """Scores of a single sample may come without the batch axis, as (classes,)."""
    if read(metric, labels, "labels").size == 1:
        scores = read(metric, preds, "predictions")
        return scores[None] if scores.ndim == 1 else preds
    return preds


def _targets(metric: BaseMetric, truth: Array, classes: int, seen: int) -> Array:
    """Class numbers from (n,), (n, 1) or one-hot (n, classes) labels, range checked."""
    rows = truth.reshape(len(truth), -1)
    if rows.shape[1] == classes and classes > 1:
        hot: Array = rows.argmax(axis=1)
        return hot
    if rows.shape[1] != 1:
        raise metric.fault(
            f"labels have shape {truth.shape}, expected a class number per sample or one-hot rows "
            f"of {classes}"
        )
    return _in_range(metric, whole(metric, rows[:, 0], "label", seen), classes, seen)


def _in_range(metric: BaseMetric, target: Array, classes: int, seen: int) -> Array:
    bad = ((target < 0) | (target >= classes)).reshape(len(target), -1)
    if bad.any():
        at = int(bad.any(axis=1).argmax())
        value = target.reshape(len(target), -1)[at, int(bad[at].argmax())]
        raise metric.fault(
            f"label {value} is out of range: the model gives {classes} classes, 0 to {classes - 1};"
            " if labels count from 1, use the postprocess LabelShift",
            seen + at,
        )
    return target


def decide(
    metric: BaseMetric, preds: Any, labels: Any, threshold: float | None, seen: int
) -> tuple[Array, Array]:
    """Predicted and true classes, int64 arrays of one shape, first axis samples.

    Accepts scores with a class axis (1 or last), class numbers, probabilities of the positive
    class, and multilabel rows.
    """
    guess, truth = pair(metric, preds, labels, seen)
    axis = _class_axis(list(guess.shape), list(truth.shape))
    if axis is not None:
        target = _in_range(metric, whole(metric, truth, "label", seen), guess.shape[axis], seen)
        return guess.argmax(axis=axis), target
    if guess.size != truth.size and guess.ndim == 2 and truth.size == len(truth):
        return guess.argmax(axis=1), _targets(metric, truth, guess.shape[1], seen)
    if guess.size != truth.size:
        raise metric.fault(
            f"predictions of shape {guess.shape} don't fit labels of shape {truth.shape}: expected "
            "the same shape, or one more axis with a score for each class"
        )
    guess = guess.reshape(truth.shape)
    several = guess.ndim == 2 and guess.size > len(guess)
    if several and guess.dtype.kind == "f" and threshold is None:
        if not ((truth.sum(axis=1) == 1).all() and np.isin(truth, (0, 1)).all()):
            raise metric.fault("for multilabel scores set a threshold, e.g. threshold: 0.5")
        return guess.argmax(axis=1), truth.argmax(axis=1)
    return _cut(metric, guess, threshold, seen), whole(metric, truth, "label", seen)


def _class_axis(scores: list[int], labels: list[int]) -> int | None:
    """Which axis of the scores, left out, gives the labels' shape; None where there is none."""
    for axis in (1, len(scores) - 1):
        if len(scores) > axis and scores[axis] > 1 and scores[:axis] + scores[axis + 1 :] == labels:
            return axis
    return None


def _cut(metric: BaseMetric, guess: Array, threshold: float | None, seen: int) -> Array:
    """Class numbers as they are; a positive class's score by the threshold."""
    if threshold is not None:
        return (guess > threshold).astype(np.int64)
    if guess.dtype.kind != "f" or (guess == np.rint(guess)).all():
        return guess.astype(np.int64)
    outside = ((guess < 0) | (guess > 1)).reshape(len(guess), -1).any(axis=1)
    if outside.any():
        raise metric.fault(
            "predictions are neither class numbers nor probabilities: for logits of the positive "
            "class give threshold: 0",
            seen + int(outside.argmax()),
        )
    return (guess > 0.5).astype(np.int64)


class Accuracy(SampleMean):
    """Share of correct predictions; per pixel or per label if a sample has many.

    Predictions are scores with a class axis, class numbers, or one probability (above 0.5 is
    class 1; `threshold` sets another threshold, 0 for logits).

    >>> metric = Accuracy()
    >>> metric.update([[0.2, 0.8], [0.9, 0.1]], [1, 1])
    >>> metric.result()
    0.5
    """

    name = "Accuracy"

    def __init__(self, threshold: float | None = None) -> None:
        self.threshold = threshold
        super().__init__()

    def per_sample(self, preds: Any, labels: Any = None) -> Floats:
        guess, truth = decide(self, preds, labels, self.threshold, self.seen)
        right: Floats = (guess == truth).reshape(len(truth), -1).mean(axis=1, dtype=np.float64)
        return right


class _Counts(BaseMetric):
    """A metric computed from how often each label was predicted as each other: bounded memory."""

    threshold: float | None = None

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.seen = 0
        self.counts: dict[tuple[int, int], int] = {}

    def update(self, preds: Any, labels: Any = None) -> None:
        guess, truth = decide(self, preds, labels, self.threshold, self.seen)
        pairs = np.stack([truth.reshape(-1), guess.reshape(-1)], axis=1)
        kinds, counts = np.unique(pairs, axis=0, return_counts=True)
        for (true, predicted), count in zip(kinds.tolist(), counts.tolist(), strict=True):
            self.counts[true, predicted] = self.counts.get((true, predicted), 0) + count
        self.seen += len(truth)

    def table(self) -> tuple[list[int], Floats]:
        """Labels in order and the confusion matrix, rows are true."""
        if self.seen == 0:
            raise self.empty()
        labels = sorted({label for both in self.counts for label in both})
        matrix = np.zeros((len(labels), len(labels)))
        for (true, predicted), count in self.counts.items():
            matrix[labels.index(true), labels.index(predicted)] = count
        return labels, matrix


class F1(_Counts):
    """F1 of labels, or mean token overlap of texts.

    On labels: `average` is binary (the score of `pos_label`), macro, micro or weighted. On strings:
    the mean over samples of the F1 between the words of prediction and reference, without case,
    punctuation and articles; with several references, the best one counts.

    >>> metric = F1()
    >>> metric.update([1, 1, 0, 1], [1, 0, 0, 1])
    >>> metric.result()
    0.8
    >>> metric = F1()
    >>> metric.update(["the red fox"], ["a red fox ran"])
    >>> round(metric.result(), 4)
    0.8
    """

    name = "F1"
    bounds = (0.0, 1.0)

    def __init__(
        self, average: str = "binary", pos_label: int = 1, threshold: float | None = None
    ) -> None:
        if average not in ("binary", "macro", "micro", "weighted"):
            raise ConfigError(
                f"average is {average!r}, expected binary, macro, micro or weighted",
                path="F1.average",
            )
        self.average = average
        self.pos_label = pos_label
        self.threshold = threshold
        super().__init__()

    def reset(self) -> None:
        super().reset()
        self.total = 0.0  # of texts
        self.is_mean = False
        self.latest = None

    def update(self, preds: Any, labels: Any = None) -> None:
        if not _is_text(preds):
            if self.is_mean:
                raise self.fault("was given strings before and labels now", self.seen)
            super().update(preds, labels)
            return
        if self.counts:
            raise self.fault("was given labels before and strings now", self.seen)
        values = self.per_sample(preds, labels)
        self.is_mean = True
        self.latest = values
        self.total += float(values.sum())
        self.seen += len(values)

    @property
    def tally(self) -> tuple[int, float] | None:
        return (self.seen, self.total) if self.is_mean else None

    def per_sample(self, preds: Any, labels: Any = None) -> Floats:
        if not _is_text(preds):
            return super().per_sample(preds, labels)
        if not _is_text(labels) and not isinstance(labels, list | tuple):
            raise self.fault(
                "the predictions are strings, the labels are not: expected strings, or lists of "
                "them",
                self.seen,
            )
        guess, truth = _texts(preds), _texts(labels)
        if len(guess) != len(truth):
            raise self.fault(f"{len(guess)} predictions but {len(truth)} labels", self.seen)
        scores = [best_token_f1(one, refs) for one, refs in zip(guess, truth, strict=True)]
        return np.asarray(scores, dtype=np.float64)

    def result(self) -> float:
        if self.is_mean:
            return self.total / self.seen
        labels, matrix = self.table()
        hits, support, chosen = np.diag(matrix), matrix.sum(axis=1), matrix.sum(axis=0)
        with np.errstate(invalid="ignore"):
            scores = np.nan_to_num(2 * hits / (support + chosen))
        if self.average == "micro":
            return float(hits.sum() / matrix.sum())
        if self.average == "macro":
            return float(scores.mean())
        if self.average == "weighted":
            return float((scores * support).sum() / support.sum())
        if len(labels) > 2:
            raise self.fault(
                f"found the labels {labels[:10]}, but average is binary: use average macro, micro "
                "or weighted"
            )
        return float(scores[labels.index(self.pos_label)]) if self.pos_label in labels else 0.0


def _is_text(value: Any) -> bool:
    while isinstance(value, list | tuple) and value:
        value = value[0]
    kind = getattr(getattr(value, "dtype", None), "kind", "")
    return isinstance(value, str | bytes) or kind in ("U", "S")


def _texts(value: Any) -> list[Any]:
    return [value] if isinstance(value, str | bytes) else list(value)


class MCC(_Counts):
    """Matthews correlation coefficient of predicted and true classes.

    >>> metric = MCC()
    >>> metric.update([1, 1, 0, 0], [1, 0, 0, 0])
    >>> round(metric.result(), 4)
    0.5774
    """

    name = "MCC"
    bounds = (-1.0, 1.0)

    def __init__(self, threshold: float | None = None) -> None:
        self.threshold = threshold
        super().__init__()

    def result(self) -> float:
        _, matrix = self.table()
        count, right = matrix.sum(), np.trace(matrix)
        true, chosen = matrix.sum(axis=1), matrix.sum(axis=0)
        spread = (count**2 - chosen @ chosen) * (count**2 - true @ true)
        return float((right * count - true @ chosen) / np.sqrt(spread)) if spread > 0 else 0.0


class ROC(BaseMetric):
    """Area under the ROC curve of the positive class's score.

    Scores are (n,), (n, 1), or (n, 2), of which the second column is used. `task` is accepted
    for old configurations (dlrm, dien, wide_deep). `details` also has the accuracy at 0.5.

    >>> metric = ROC()
    >>> metric.update([0.1, 0.4, 0.35, 0.8], [0, 0, 1, 1])
    >>> metric.result()
    0.75
    """

    name = "ROC"
    bounds = (0.0, 1.0)

    def __init__(self, task: str = "dlrm") -> None:
        if task not in ("dlrm", "dien", "wide_deep"):
            raise ConfigError(
                f"task is {task!r}, expected dlrm, dien or wide_deep", path="ROC.task"
            )
        self.task = task
        self.reset()

    def reset(self) -> None:
        self.seen = 0
        self.scores: list[Floats] = []
        self.labels: list[Array] = []

    def update(self, preds: Any, labels: Any = None) -> None:
        guess, truth = pair(self, preds, labels, self.seen)
        if guess.ndim == 2 and guess.shape[1] == 2:
            guess = guess[:, 1]
        target = column(self, truth, "labels")
        wrong = ~np.isin(target, (0, 1))
        if wrong.any():
            at = int(wrong.argmax())
            raise self.fault(
                f"label {target[at]:g} is out of range: expected 0 or 1", self.seen + at
            )
        self.scores.append(column(self, guess, "predictions"))
        self.labels.append(target.astype(bool))
        self.seen += len(target)

    def result(self) -> float:
        if self.seen == 0:
            raise self.empty()
        positive = np.concatenate(self.labels)
        many, few = int(positive.sum()), int((~positive).sum())
        if not many or not few:
            raise self.fault(f"all {self.seen} labels are {int(many > 0)}: the area is not defined")
        ranks = average_ranks(np.concatenate(self.scores))
        return float((ranks[positive].sum() - many * (many + 1) / 2) / (many * few))

    @property
    def details(self) -> dict[str, float]:
        auc = self.result()
        right = (np.concatenate(self.scores) > 0.5) == np.concatenate(self.labels)
        return {"auc": auc, "acc": float(right.mean())}
