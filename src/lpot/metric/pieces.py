"""Detections image by image, to be scored again as if some images had come more than once."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lpot.metric.base import Array, Floats
from lpot.metric.matching import Match

Column = tuple[Array, Array, Array, Floats]  # image of each detection, hits, misses, boxes by image


@dataclass(frozen=True, eq=False)
class DetectionPieces:
    """Matches of one kind of score: average precision at `points`, or recall where it is None."""

    keys: Sequence[Any]
    columns: tuple[Column, ...]  # one for each category
    points: int | None

    @classmethod
    def of(
        cls,
        images: Iterable[Any],
        categories: Iterable[Sequence[Match]],
        most: int,
        chosen: Array,
        points: int | None,
    ) -> DetectionPieces:
        """`most` detections of an image count, at the thresholds `chosen`."""
        keys = tuple(images)
        places = {key: at for at, key in enumerate(keys)}
        columns = tuple(_column(rows, places, most, chosen) for rows in categories)
        return cls(keys, columns, points)

    def score(self, counts: Floats) -> float:
        found = [self._category(column, counts) for column in self.columns]
        known = [value for value in found if value is not None]
        return float(np.mean(known)) if known else float("nan")

    def _category(self, column: Column, counts: Floats) -> float | None:
        """The mean over thresholds; None where nothing drawn is to be found."""
        image, hit, miss, boxes = column
        wanted = float(boxes @ counts)
        if not wanted or not len(hit):
            return None
        if not image.size:
            return 0.0
        times = counts[image]
        good = np.cumsum(hit * times, axis=1)
        recall = good / wanted
        if self.points is None:
            return float(recall[:, -1].mean())
        bad = np.cumsum(miss * times, axis=1)
        precision = good / (good + bad + np.spacing(1))
        envelope = np.maximum.accumulate(precision[:, ::-1], axis=1)[:, ::-1]
        if self.points == 0:
            steps = np.diff(recall, prepend=0.0, axis=1)
            return float((steps * envelope).sum(axis=1).mean())
        return _at_points(recall, envelope, self.points)


def _at_points(recall: Floats, envelope: Floats, points: int) -> float:
    """The mean of the envelope at so many levels of recall, over all thresholds."""
    levels = np.linspace(0.0, 1.0, points)
    total = 0.0
    for row, heights in zip(recall, envelope, strict=True):
        at = np.searchsorted(row, levels, side="left")
        total += float(heights[at[at < len(heights)]].sum())
    return total / (len(recall) * points)


def _column(rows: Sequence[Match], places: dict[Any, int], most: int, chosen: Array) -> Column:
    boxes = np.zeros(len(places))
    for row in rows:
        boxes[places[row.image]] += row.wanted
    scores = np.concatenate([row.scores[:most] for row in rows])
    order = np.argsort(-scores, kind="stable")
    images = [np.full(len(row.scores[:most]), places[row.image]) for row in rows]
    hit = np.concatenate([row.hit[chosen, :most] for row in rows], axis=1)[:, order]
    ignored = np.concatenate([row.ignored[chosen, :most] for row in rows], axis=1)[:, order]
    return np.concatenate(images)[order], hit & ~ignored, ~hit & ~ignored, boxes
