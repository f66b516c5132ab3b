"""Batches in nests of dicts and tuples, as functions of several arguments take them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lpot.core.batch import split
from lpot.core.errors import DataError

A, B, C = (np.full((2, 3), value) for value in range(3))
NAMES = ("a", "b_0", "b_1")


@pytest.mark.parametrize(
    ("raw", "labels"),
    [
        (({"a": A, "b": (B, C)},), None),
        ({"b": (B, C), "a": A}, None),
        ((A, (B, C)), None),
        (({"a": A, "b": [B, C]}, 7), 7),
        (((A, {"y": C, "x": B}), 7), 7),
    ],
)
def test_a_nest_is_read_in_its_order(raw: Any, labels: Any) -> None:
    found = split(raw, NAMES)
    assert [int(array[0, 0]) for array in found.inputs] == [0, 1, 2]
    assert found.labels == labels


@pytest.mark.parametrize("raw", [({"a": A, "b": (B,)},), {"a": A, "b": B, "c": C}, (A, (B, C, C))])
def test_what_does_not_come_to_the_inputs_is_refused(raw: Any) -> None:
    with pytest.raises(DataError, match=r"a, b_0, b_1|'a', 'b_0', 'b_1'"):
        split(raw, NAMES)


def test_a_batch_that_names_both_inputs_leaves_nothing_open() -> None:
    found = split(({"a": 1, "b": 2}, 5), ["a", "b"])
    assert found.labels == 5 and not found.ambiguous
    one = np.ones(1)
    assert split(((one, one), one), ["a", "b"]).ambiguous
