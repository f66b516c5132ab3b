"""Scores of numbers: MAE, MSE, RMSE, Loss, Pearson, Spearman."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

import numpy as np

from lpot.metric.arrays import average_ranks, column, no_inf, no_nan, pair, read, to_numpy
from lpot.metric.base import Array, BaseMetric, Floats, SampleMean


class _Difference(SampleMean):
    """Mean over all elements of a cost between output and label.

    With `compare_label: false` the evaluator gives the FP32 model's outputs as labels. Where
    samples differ in size the mean over elements is no mean over samples, and `is_mean` says so.
    """

    higher_is_better = False
    bounds = (0.0, math.inf)

    def __init__(self, compare_label: bool = True) -> None:
        self.compare_label = bool(compare_label)
        self._size: int | None = None
        super().__init__()

    def reset(self) -> None:
        super().reset()
        self.elements = 0

    def update(self, preds: Any, labels: Any = None) -> None:
        costs = self._costs(preds, labels)
        self.latest = np.asarray([cost.mean() for cost in costs], dtype=np.float64)
        self.total += float(sum(cost.sum() for cost in costs))
        self.elements += sum(cost.size for cost in costs)
        self.seen += len(costs)

    def per_sample(self, preds: Any, labels: Any = None) -> Floats:
        return np.asarray([cost.mean() for cost in self._costs(preds, labels)], dtype=np.float64)

    @property
    def tally(self) -> tuple[int, float] | None:
        # The mean is over elements: of each sample, its own mean counts.
        per_sample = self.elements / self.seen if self.seen else 1.0
        return (self.seen, self.total / per_sample) if self.is_mean else None

    def result(self) -> float:
        if self.elements == 0:
            raise self.empty()
        return self.total / self.elements

    def _costs(self, preds: Any, labels: Any) -> list[Floats]:
        rows = list(_samples(self, preds, labels, self.seen))
        for guess, _ in rows:
            self._size = guess.size if self._size is None else self._size
            if guess.size != self._size:
                self.is_mean = False
        return [self._cost(guess - truth) for guess, truth in rows]

    @staticmethod
    def _cost(difference: Floats) -> Floats:
        raise NotImplementedError


def _samples(
    metric: BaseMetric, preds: Any, labels: Any, seen: int
) -> Iterable[tuple[Floats, Floats]]:
    """Flat prediction and label of each sample, of one array, several outputs, or ragged lists."""
    if _is_several(preds) and _is_several(labels) and len(preds) == len(labels):
        guesses, truths = _columns(preds), _columns(labels)
    else:
        guess, truth = pair(metric, preds, labels, seen)
        if guess.size != truth.size:
            raise metric.fault(
                f"predictions of shape {guess.shape} don't fit labels of shape {truth.shape}", seen
            )
        guesses, truths = list(guess), list(truth)
    for at, (one, other) in enumerate(zip(guesses, truths, strict=True)):
        if one.size != other.size:
            raise metric.fault(f"prediction of shape {one.shape}, label {other.shape}", seen + at)
        flat = one.reshape(-1).astype(np.float64), other.reshape(-1).astype(np.float64)
        for array, what in zip(flat, ("prediction", "label"), strict=True):
            no_nan(metric, array[None], what, seen + at)
            no_inf(metric, array[None], what, seen + at)
        yield flat


def _is_several(value: Any) -> bool:
    """Is it a list of arrays whose shapes differ: several outputs, or samples of several sizes?"""
    if not isinstance(value, list | tuple) or len(value) < 2:
        return False
    return len({np.shape(to_numpy(item)) for item in value}) > 1


def _columns(outputs: Any) -> list[Array]:
    """Outputs of one first dimension side by side, a row a sample; else the list as it is."""
    arrays = [to_numpy(one) for one in outputs]
    counts = {array.shape[0] if array.ndim > 1 else None for array in arrays}
    if len(counts) == 1 and None not in counts:
        return list(np.concatenate([one.reshape(one.shape[0], -1) for one in arrays], axis=1))
    return arrays


class MAE(_Difference):
    """Mean absolute error over all elements; lower is better.

    >>> metric = MAE()
    >>> metric.update([1.0, 2.0], [1.5, 2.5])
    >>> metric.result()
    0.5
    """

    name = "MAE"

    @staticmethod
    def _cost(difference: Floats) -> Floats:
        return np.abs(difference)


class MSE(_Difference):
    """Mean squared error over all elements; lower is better.

    >>> metric = MSE()
    >>> metric.update([1.0, 2.0], [1.0, 4.0])
    >>> metric.result()
    2.0
    """

    name = "MSE"

    @staticmethod
    def _cost(difference: Floats) -> Floats:
        return np.square(difference)


class RMSE(MSE):
    """Root of the mean squared error over all elements; lower is better.

    >>> metric = RMSE()
    >>> metric.update([1.0, 2.0], [1.0, 4.0])
    >>> round(metric.result(), 4)
    1.4142
    """

    name = "RMSE"
    is_mean = False

    def result(self) -> float:
        return math.sqrt(super().result())

    def per_sample(self, preds: Any, labels: Any = None) -> Floats:
        return BaseMetric.per_sample(self, preds, labels)


class Loss(SampleMean):
    """Mean loss per sample, for models whose output is a loss; lower is better.

    A batch gives one loss per sample (several per sample are summed), or one number that is taken
    as the mean loss of the batch. Labels only give the number of samples.

    >>> metric = Loss()
    >>> metric.update([0.5, 1.5], [0, 1])
    >>> metric.result()
    1.0
    """

    name = "Loss"
    higher_is_better = False
    bounds = (-math.inf, math.inf)

    def per_sample(self, preds: Any, labels: Any = None) -> Floats:
        losses = read(self, preds, "predictions")
        if not losses.size:
            raise self.fault("the batch is empty", self.seen)
        no_nan(self, losses, "loss", self.seen)
        no_inf(self, losses, "loss", self.seen)
        count = len(losses) if labels is None else len(read(self, labels, "labels"))
        if losses.size == 1:
            return np.full(count, float(losses.reshape(-1)[0]))
        if len(losses) == 1 and losses.ndim > 1 and losses.shape[1] == count:
            losses = losses[0]
        if len(losses) != count:
            raise self.fault(f"{len(losses)} losses but {count} labels", self.seen)
        sums: Floats = losses.reshape(count, -1).sum(axis=1, dtype=np.float64)
        return sums


class Pearson(BaseMetric):
    """Pearson's linear correlation of outputs and labels.

    >>> metric = Pearson()
    >>> metric.update([1.0, 2.0, 3.0], [2.0, 4.0, 6.5])
    >>> round(metric.result(), 4)
    0.9979
    """

    name = "Pearson"
    bounds = (-1.0, 1.0)

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.seen = 0
        self.means = np.zeros(2)
        self.products = np.zeros((2, 2))  # centred sums of squares and products

    def update(self, preds: Any, labels: Any = None) -> None:
        both = np.stack(_numbers(self, preds, labels, self.seen))
        count = both.shape[1]
        means = both.mean(axis=1)
        centred = both - means[:, None]
        # Batches are merged around their own means: sums of raw squares would lose digits.
        apart = means - self.means
        total = self.seen + count
        self.products += centred @ centred.T
        self.products += np.outer(apart, apart) * (self.seen * count / total)
        self.means += apart * (count / total)
        self.seen = total

    def result(self) -> float:
        if self.seen == 0:
            raise self.empty()
        spread = np.sqrt(self.products[0, 0]) * np.sqrt(self.products[1, 1])
        return _correlation(self, self.products[0, 1], spread)


class Spearman(BaseMetric):
    """Spearman's rank correlation of outputs and labels.

    >>> metric = Spearman()
    >>> metric.update([0.1, 0.2, 0.9, 0.5], [1, 2, 3, 4])
    >>> round(metric.result(), 4)
    0.8
    """

    name = "Spearman"
    bounds = (-1.0, 1.0)

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.seen = 0
        self.batches: list[tuple[Floats, Floats]] = []

    def update(self, preds: Any, labels: Any = None) -> None:
        batch = _numbers(self, preds, labels, self.seen)
        self.batches.append(batch)
        self.seen += len(batch[0])

    def result(self) -> float:
        if self.seen == 0:
            raise self.empty()
        ranks = np.stack(
            [average_ranks(np.concatenate(part)) for part in zip(*self.batches, strict=True)]
        )
        ranks -= ranks.mean(axis=1, keepdims=True)
        spread = np.sqrt(np.square(ranks).sum(axis=1)).prod()
        return _correlation(self, ranks[0] @ ranks[1], spread)


def _numbers(metric: BaseMetric, preds: Any, labels: Any, seen: int) -> tuple[Floats, Floats]:
    guess, truth = pair(metric, preds, labels, seen)
    for array, what in ((guess, "prediction"), (truth, "label")):
        no_inf(metric, array, what, seen)
    return column(metric, guess, "predictions"), column(metric, truth, "labels")


def _correlation(metric: BaseMetric, product: Any, spread: Any) -> float:
    if not spread > 0:
        raise metric.fault("is not defined: all predictions, or all labels, are the same number")
    return float(np.clip(product / spread, -1.0, 1.0))
