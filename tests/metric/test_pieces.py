"""Detections scored again by image: the same score, and how sure a drop is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("pycocotools")

from lpot.core.goal import Goal
from lpot.core.numerics.resample import PieceBox, paired_interval
from lpot.metric.detection import MAP_KEYS, PREFIX, CocoMAP, MeanAP, VocMAP

GOAL = Goal(relative=0.01)
IMAGES = 40


def truths(seed: int = 0) -> list[tuple[np.ndarray, list[int]]]:
    random = np.random.default_rng(seed)
    found = []
    for _ in range(IMAGES):
        corner = random.uniform(0, 300, (3, 2))
        size = np.exp(random.uniform(2.5, 5.5, (3, 2)))
        found.append(
            (np.concatenate([corner, corner + size], 1), random.integers(1, 4, 3).tolist())
        )
    return found


def filled(metric: MeanAP, noise: float, images: range = range(IMAGES), seed: int = 1) -> MeanAP:
    """Detections off by so much, with doubles and misses; the same seed for the same image."""
    truth = truths()
    for at in images:
        random = np.random.default_rng((seed, at))
        boxes, kinds = truth[at]
        guess = np.concatenate([boxes, boxes + 5])
        guess = guess + noise * random.normal(size=guess.shape)
        scores = random.uniform(0, 1, len(guess))
        classes = [*kinds, *random.integers(1, 4, 3).tolist()]
        labels = [boxes], [[]], [kinds], [f"{at}.jpg"]
        metric.update([guess[None], scores[None], np.array(classes)[None]], labels)
    return metric


@pytest.mark.parametrize("key", MAP_KEYS)
@pytest.mark.parametrize("make", [CocoMAP, VocMAP], ids=["coco", "voc"])
def test_each_image_once_gives_the_score_itself(key: str, make: Any) -> None:
    metric = filled(make(map_key=PREFIX + key), 6.0)
    pieces = metric.pieces
    again = pieces.score(np.ones(len(pieces.keys)))
    expected = metric.result()
    assert again == pytest.approx(expected, abs=1e-9) or (expected == -1 and np.isnan(again))


def test_an_image_that_counts_twice_is_that_image_twice() -> None:
    pieces = filled(CocoMAP(), 6.0).pieces
    half = filled(CocoMAP(), 6.0, range(IMAGES // 2)).result()
    numbers = [int(str(key).partition(".")[0]) for key in pieces.keys]
    counts = np.array([2.0 if number < IMAGES // 2 else 0.0 for number in numbers])
    assert pieces.score(counts) == pytest.approx(half, abs=1e-9)


def test_a_drop_lies_in_its_interval_and_no_drop_is_not_certain_either() -> None:
    before, after = filled(CocoMAP(), 4.0), filled(CocoMAP(), 7.0)
    found = paired_interval(before.pieces, after.pieces, GOAL)
    assert found is not None
    drop = GOAL.drop(after.result(), before.result())
    assert 0.01 < found.low < drop < found.high and found.samples == IMAGES
    same = paired_interval(before.pieces, filled(CocoMAP(), 4.0).pieces, GOAL)
    assert same is not None and same.low < 0.0 < same.high and same.low == -same.high


def test_the_order_of_the_images_does_not_matter() -> None:
    before = filled(CocoMAP(), 4.0)
    after, turned = (
        filled(CocoMAP(), 6.0, images) for images in (range(IMAGES), range(39, -1, -1))
    )
    assert paired_interval(before.pieces, after.pieces, GOAL) == paired_interval(
        before.pieces, turned.pieces, GOAL
    )


def test_other_images_or_too_few_give_no_interval() -> None:
    before = filled(CocoMAP(), 4.0).pieces
    assert paired_interval(before, filled(CocoMAP(), 4.0, range(30)).pieces, GOAL) is None
    few = filled(CocoMAP(), 4.0, range(5)).pieces
    assert paired_interval(few, few, GOAL) is None


def test_what_is_no_piece_is_let_go() -> None:
    box = PieceBox()
    for odd in (None, 3, "pieces", [1, 2]):
        box.put(None, odd)
        assert box.get(None) is None
