"""The distance of outputs is a number whatever the outputs are."""

from __future__ import annotations

import math

import numpy as np
import pytest

from lpot.core.ptq.distance import distance, unshifted_distance


def test_it_is_the_share_of_the_power() -> None:
    assert distance([np.ones(4)], [np.ones(4) * 1.1]) == pytest.approx(0.01)
    assert distance([np.ones(4), np.ones(2)], [np.ones(4) * 1.1, np.ones(2)]) == pytest.approx(0.01)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_outputs_that_are_no_numbers_are_infinitely_far(bad: float) -> None:
    assert distance([np.ones(3)], [np.array([1.0, bad, 1.0])]) == math.inf


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_where_fp32_is_no_number_there_is_nothing_to_compare(bad: float) -> None:
    truth = np.array([1.0, bad, 2.0])
    assert distance([truth], [np.array([1.0, 5.0, 2.0])]) == 0.0
    assert distance([np.full(2, bad)], [np.ones(2)]) == 0.0


def test_other_types_and_shapes() -> None:
    assert distance([np.array([1, 2])], [np.array([1, 3])]) == 0.5
    assert distance([np.ones(3)], [np.ones(4)]) == math.inf
    assert distance([np.ones((0, 4))], [np.ones((0, 4))]) == 0.0
    assert distance([np.zeros(3)], [np.full(3, 0.1)]) == pytest.approx(0.03)


def test_what_all_scores_have_in_common_is_left_out() -> None:
    scores = np.random.default_rng(0).normal(size=(4, 10))
    common = np.arange(4.0)[:, None]
    off = scores + np.eye(4, 10)
    assert unshifted_distance([scores], [scores + common]) == pytest.approx(0.0, abs=1e-12)
    assert unshifted_distance([scores + common], [off]) == pytest.approx(
        unshifted_distance([scores], [off])
    )
    ruled_out = np.where(np.eye(4, 10) > 0, -np.inf, scores)
    assert unshifted_distance([ruled_out], [ruled_out + common]) == pytest.approx(0.0, abs=1e-12)


def test_pictures_single_values_and_classes_are_compared_as_they_are() -> None:
    for shape in ((2, 3, 4, 4), (5, 1), (7,)):
        one = np.random.default_rng(1).normal(size=shape)
        assert unshifted_distance([one], [one + 1.0]) == distance([one], [one + 1.0]) > 0.0
    assert unshifted_distance([np.array([[1, 2]])], [np.array([[2, 3]])]) == 1.0
