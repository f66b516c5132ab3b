"""What is fed to a model is of its types and shapes, or refused by name."""

from __future__ import annotations

import numpy as np
import pytest

from lpot.core.batch import InputSpec
from lpot.core.errors import DataError
from lpot.core.feed import check
from lpot.core.inputs import by_name

X = InputSpec("x", "float32", ("n", 3))
IDS = InputSpec("ids", "int64", None)
SMALL = InputSpec("small", "uint8", None)
SCALE = InputSpec("scale", "float32", ())
TEXT = InputSpec("text", "object", (None,))


def test_what_fits_is_cast_and_named():
    fed = by_name([X, IDS], (np.zeros((2, 3)), np.zeros(2, np.uint8)))
    assert [(name, value.dtype.name) for name, value in fed.items()] == [
        ("x", "float32"),
        ("ids", "int64"),
    ]
    assert by_name([SMALL], (np.array([True]),))["small"].tolist() == [1]
    assert by_name([IDS], ([1.0],))["ids"].tolist() == [1]
    assert by_name([X], (np.ones((2, 3), np.uint8),), loose={"x"})["x"].dtype == np.float32
    assert by_name([SCALE], ([2],))["scale"].shape == ()
    assert by_name([TEXT], {"text": np.array(["a"])})["text"].dtype == object
    turned = by_name([X], (np.zeros((3, 2), np.float32).T,))["x"]
    assert turned.flags.c_contiguous


@pytest.mark.parametrize(
    ("spec", "inputs", "words"),
    [
        (X, (1, 2), r"has 1 input\(s\) \(x\), but 2 were given"),
        (X, {"y": 1}, r"'x' is missing; given: \['y'\]"),
        (X, ([[1, 2], [3]],), "'x' is not one array"),
        (X, (np.zeros((2, 3), np.uint8),), "'x' expects float32, got uint8: convert"),
        (X, (np.ones((2, 3), bool),), "'x' expects float32, got bool: convert"),
        (IDS, (np.ones(2),), "'ids' expects int64, got float64: convert"),
        (IDS, ([1.5],), "'ids' expects int64, which can't hold all values of the float64 given"),
        (SMALL, (np.array([300]),), "'small' expects uint8, which can't hold all values of the"),
        (SMALL, (np.array([-1], np.int8),), "'small' expects uint8, which can't hold all"),
        (X, ([["a", "b", "c"]],), "'x' expects float32, got <U1|got str"),
        (X, (np.zeros((2, 4), np.float32),), r"expects shape \[n, 3\], got \[2, 4\]$"),
        (X, (np.zeros(3, np.float32),), r"got \[3\]: is the batch dimension missing\?"),
    ],
)
def test_what_does_not_fit_is_refused_by_name(spec, inputs, words):
    with pytest.raises(DataError, match=words):
        by_name([spec], inputs)


BASE = np.arange(6, dtype=np.float32).reshape(2, 3)


def read_only() -> np.ndarray:
    array = BASE.copy()
    array.flags.writeable = False
    return array


FORMS = {
    "big-endian": BASE.astype(">f4"),
    "big-endian doubles": BASE.astype(">f8"),
    "by columns": np.asfortranarray(BASE),
    "strided": np.repeat(BASE, 2, 1)[:, ::2],
    "backwards": BASE[::-1, ::-1][::-1, ::-1],
    "read-only": read_only(),
    "numbers as objects": BASE.astype(object),
    "masked nowhere": np.ma.masked_array(BASE, mask=False),
}


@pytest.mark.parametrize("form", FORMS)
def test_arrays_of_every_form_are_read_alike(form: str) -> None:
    for array in (by_name([X], (FORMS[form],))["x"], check([X], {"x": FORMS[form]})["x"]):
        assert type(array) is np.ndarray and array.dtype == np.float32 and array.dtype.isnative
        assert array.flags.c_contiguous
        np.testing.assert_array_equal(array, BASE)


@pytest.mark.parametrize(
    ("array", "words"),
    [
        (np.ma.masked_greater(BASE, 3), "2 values of an array are masked.*fill them"),
        (np.full((2, 3), None), "got object"),
        (np.zeros((2, 3), [("a", "f4")]), r"records with the fields \['a'\]"),
    ],
)
def test_arrays_that_hold_no_numbers_are_refused(array: np.ndarray, words: str) -> None:
    with pytest.raises(DataError, match=words):
        by_name([X], (array,))
    with pytest.raises(DataError):
        check([X], {"x": array})


def test_text_is_no_number_in_a_feed_either() -> None:
    with pytest.raises(DataError, match="the feed for 'x'"):
        check([X], {"x": BASE.astype(str)})
