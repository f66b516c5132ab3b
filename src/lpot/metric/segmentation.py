"""Scores of pixel classes: mIOU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError
from lpot.metric.arrays import no_nan, to_numpy, whole
from lpot.metric.base import Array, BaseMetric


class MeanIoU(BaseMetric):
    """Mean over classes of intersection over union, from one confusion matrix.

    Predictions are class maps, or scores with a class axis (1 or last) of `num_classes`; images may
    differ in size when given as a list. Pixels labelled `ignore_label` (one or a list) don't
    count; classes that do not occur are left out of the mean.

    >>> metric = MeanIoU(num_classes=2)
    >>> metric.update([[[0, 1], [1, 1]]], [[[0, 1], [0, 255]]])
    >>> metric.result()
    0.5
    """

    name = "mIOU"
    bounds = (0.0, 1.0)

    def __init__(
        self, num_classes: int = 21, ignore_label: int | Sequence[int] | None = 255
    ) -> None:
        if isinstance(num_classes, bool) or not isinstance(num_classes, int) or num_classes < 1:
            raise ConfigError(
                f"num_classes is {num_classes!r}, expected a whole number of 1 or more",
                path="mIOU.num_classes",
            )
        self.num_classes = num_classes
        listed = [ignore_label] if isinstance(ignore_label, int) else list(ignore_label or ())
        self.ignore = np.asarray(listed, dtype=np.int64)
        self.reset()

    def reset(self) -> None:
        self.seen = 0
        self.matrix = np.zeros((self.num_classes, self.num_classes), dtype=np.int64)

    def update(self, preds: Any, labels: Any = None) -> None:
        if labels is None:
            raise self.fault("needs labels, but None was given")
        guesses, truths = self._images(preds), self._images(labels)
        if len(guesses) == 1 and len(truths) != 1:  # the model's outputs as a list of one array
            guesses = self._images(guesses[0])
        if len(guesses) != len(truths):
            raise self.fault(f"{len(guesses)} predictions but {len(truths)} labels", self.seen)
        for guess, truth in zip(guesses, truths, strict=True):
            self._add(guess, truth)
            self.seen += 1

    def _images(self, value: Any) -> list[Array]:
        if isinstance(value, list | tuple):
            return [to_numpy(one) for one in value]
        return list(to_numpy(value))

    def _add(self, guess: Array, truth: Array) -> None:
        no_nan(self, guess[None], "prediction", self.seen)
        target = whole(self, truth.reshape(1, -1), "label", self.seen)[0]
        chosen = self._classes(guess, truth)
        keep = ~np.isin(target, self.ignore)
        last = self.num_classes - 1
        for array, what in ((target[keep], "label"), (chosen[keep], "predicted class")):
            wrong = (array < 0) | (array > last)
            if wrong.any():
                raise self.fault(
                    f"{what} {array[wrong][0]} is out of range: expected 0 to {last} (num_classes)"
                    f" or ignore_label {self.ignore.tolist()}",
                    self.seen,
                )
        cells = self.num_classes * target[keep] + chosen[keep]
        counts = np.bincount(cells, minlength=self.num_classes**2)
        self.matrix += counts.reshape(self.matrix.shape)

    def _classes(self, guess: Array, truth: Array) -> Array:
        """Class numbers of all pixels of one image, flat."""
        if guess.size == truth.size:
            return whole(self, guess.reshape(-1), "prediction", self.seen)
        if guess.size == truth.size * self.num_classes:
            if guess.shape[0] == self.num_classes:
                return _flat_argmax(guess, 0)
            if guess.shape[-1] == self.num_classes:
                return _flat_argmax(guess, -1)
        raise self.fault(
            f"a prediction of shape {guess.shape} doesn't fit a label of shape {truth.shape}: "
            f"expected the same shape, or one more axis of {self.num_classes} classes",
            self.seen,
        )

    def result(self) -> float:
        scores = list(self.per_class.values())
        if not scores:
            raise self.empty()
        return float(np.mean(scores))

    @property
    def per_class(self) -> dict[int, float]:
        """IoU of each class that occurs."""
        hits = np.diag(self.matrix)
        union = self.matrix.sum(axis=0) + self.matrix.sum(axis=1) - hits
        return {int(at): float(hits[at] / union[at]) for at in np.flatnonzero(union)}

    @property
    def details(self) -> dict[str, float]:
        scores = {"mIOU": self.result()}
        return scores | {f"IOU/{label}": score for label, score in self.per_class.items()}


def _flat_argmax(scores: Array, axis: int) -> Array:
    classes: Array = scores.argmax(axis=axis)
    return classes.reshape(-1)
