"""A model with all 8 bits, opened where they overflow."""

from __future__ import annotations

import pytest

from lpot.core.cpu import overflow_of
from lpot.core.recipe import FP32, OpConfig, OpKey, Recipe, TensorConfig


def config(activation: int | None, weight: int | None) -> OpConfig:
    side = None if weight is None else TensorConfig("int8", "sym", bits=weight)
    return OpConfig(TensorConfig("uint8", "asym", bits=activation), side)


CONV, GEMM, ADD = OpKey("a", "Conv"), OpKey("b", "Gemm"), OpKey("c", "Add")
FULL = Recipe({CONV: config(8, 8), GEMM: config(8, 8), ADD: config(8, None)})


def test_it_tells_the_kinds_that_overflow_and_the_largest_loss() -> None:
    told = overflow_of(FULL, {"Conv": 0.488, "Gemm": 0.25}.__getitem__)
    assert told.startswith("1 Conv and 1 Gemm op(s) use all 8 bits")
    assert "loses 49% of the result" in told and "`target: avx2`" in told
    told = overflow_of(FULL, {"Conv": 0.001, "Gemm": 0.25}.__getitem__)
    assert told.startswith("1 Gemm op(s)") and "25%" in told


@pytest.mark.parametrize(
    "recipe",
    [
        None,
        Recipe({}),
        Recipe({CONV: FP32}),
        Recipe({CONV: config(8, 7), GEMM: config(7, 8)}),
        Recipe({ADD: config(8, None)}),
        Recipe({CONV: config(None, 8)}),
    ],
)
def test_a_bit_left_free_on_either_side_is_enough(recipe: Recipe | None) -> None:
    assert overflow_of(recipe, lambda kind: 0.5) == ""


def test_where_nothing_overflows_nothing_is_told() -> None:
    assert overflow_of(FULL, lambda kind: 0.004) == ""
