"""Inputs of models to be timed: alike or not, their shapes, their values."""

from __future__ import annotations

import numpy as np
import pytest

from lpot.core.batch import InputSpec
from lpot.core.errors import ConfigError, DataError
from lpot.core.feed import check, settle, synthetic, unite

IMAGE = InputSpec("x", "float32", ("n", 3, 8, 8))
IDS = InputSpec("ids", "int64", ("batch", "seq"))
MASK = InputSpec("attention_mask", "int64", ("batch", "seq"))


def test_unite_takes_what_is_fixed_and_ignores_order():
    fixed = InputSpec("x", "float32", (4, 3, None, 8))
    assert unite({"a": [IMAGE], "b": [fixed]})[0].shape == (4, 3, 8, 8)
    assert unite({"a": [IDS, MASK], "b": [MASK, IDS]}) == (IDS, MASK)


def test_unite_with_an_unknown_rank():
    assert unite({"a": [InputSpec("x", "float32")], "b": [IMAGE]}) == (IMAGE,)
    assert unite({"a": [IMAGE], "b": [InputSpec("x", "float32")]}) == (IMAGE,)


@pytest.mark.parametrize(
    "other",
    [
        InputSpec("y", "float32", ("n", 3, 8, 8)),
        InputSpec("x", "float16", ("n", 3, 8, 8)),
        InputSpec("x", "float16"),
        InputSpec("x", "float32", ("n", 3, 8)),
        InputSpec("x", "float32", ("n", 3, 8, 9)),
    ],
)
def test_unite_refuses_unlike_inputs(other):
    with pytest.raises(DataError, match=r"different inputs: 'fp32' .*'int8'"):
        unite({"fp32": [IMAGE], "int8": [other]})


def test_open_first_dimension_is_the_batch():
    settled = settle([IMAGE], batch_size=5)
    assert settled.inputs[0].shape == (5, 3, 8, 8)
    assert (settled.batch_size, settled.notes) == (5, ())


def test_a_batch_of_one_is_assumed_and_said():
    settled = settle([InputSpec("x", "float32", (None, 2))])
    assert settled.inputs[0].shape == (1, 2)
    assert "batch of 1" in settled.notes[0]


def test_symbols_share_their_size():
    settled = settle([IDS, MASK], {"ids": (2, 128)})
    assert [spec.shape for spec in settled.inputs] == [(2, 128), (2, 128)]
    assert settled.notes == ()


def test_other_open_dimensions_must_be_given():
    with pytest.raises(ConfigError, match=r"--shape ids=1,N"):
        settle([IDS, MASK])
    with pytest.raises(ConfigError, match=r"unknown rank.*--shape x=N,N"):
        settle([InputSpec("x", "float32")])
    assert settle([InputSpec("x", "float32")], {"x": (2, 7)}).inputs[0].shape == (2, 7)
    # A symbol open elsewhere stays open when it is not the batch.
    with pytest.raises(ConfigError, match="open"):
        settle([IMAGE, InputSpec("y", "float32", (1, None))])


def test_a_fixed_batch_can_not_be_changed():
    fixed = InputSpec("x", "float32", (1, 3))
    assert settle([fixed], batch_size=1).batch_size == 1
    with pytest.raises(ConfigError, match="batch of 8 is not possible"):
        settle([fixed], batch_size=8)


@pytest.mark.parametrize("sizes", [(1, 3, 8), (1, 3, 8, 9), (0, 3, 8, 8)])
def test_a_shape_that_does_not_fit(sizes):
    with pytest.raises(ConfigError, match="does not fit"):
        settle([IMAGE], {"x": sizes})


def test_a_misspelt_input_gets_the_nearest_name():
    with pytest.raises(ConfigError, match="did you mean 'ids'"):
        settle([IDS], {"idz": (1, 2)})


def test_synthetic_values():
    specs = [
        InputSpec("x", "float32", (64, 64)),
        InputSpec("half", "float16", (2,)),
        InputSpec("ids", "int64", (1, 100)),
        InputSpec("Attention_Mask", "int32", (1, 4)),
        InputSpec("flag", "bool", (2,)),
        InputSpec("pixels", "uint8", (1000,)),
        InputSpec("scalar", "float32", ()),
    ]
    made = synthetic(specs, seed=3)
    assert {name: array.dtype.name for name, array in made.items()} == {
        spec.name: spec.dtype for spec in specs
    }
    assert abs(made["x"].mean()) < 0.1 and abs(made["x"].std() - 1) < 0.1
    assert set(np.unique(made["ids"])) == {0, 1}
    assert made["Attention_Mask"].all() and made["flag"].all()
    assert made["pixels"].max() > 200
    assert made["scalar"].shape == ()
    again = synthetic(specs, seed=3)
    assert all(np.array_equal(made[name], again[name]) for name in made)
    assert not np.array_equal(made["x"], synthetic(specs, seed=4)["x"])


@pytest.mark.parametrize("dtype", ["object", "bfloat17", "complex64"])
def test_values_that_can_not_be_made_up(dtype):
    with pytest.raises(DataError, match="give your own"):
        synthetic([InputSpec("x", dtype, (1,))])


def test_own_feeds_are_checked():
    feed = check([IMAGE], {"x": np.zeros((2, 3, 8, 8))})
    assert feed["x"].dtype == np.float32
    with pytest.raises(DataError, match="keys"):
        check([IMAGE], {"y": np.zeros((2, 3, 8, 8))})
    for wrong in (np.zeros((2, 3, 8)), np.zeros((2, 4, 8, 8)), np.full((2, 3, 8, 8), None)):
        with pytest.raises(DataError, match="the model takes x float32"):
            check([IMAGE], {"x": wrong})


@pytest.mark.parametrize("value", ["a.record", np.array("a.record", dtype=object), b"a.record"])
def test_texts_may_be_held_as_objects(value):
    feed = check([InputSpec("file", "object", ())], {"file": value})
    assert feed["file"].dtype.kind in "US" and feed["file"].shape == ()
