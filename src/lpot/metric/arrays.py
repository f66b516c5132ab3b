"""Predictions and labels of any framework as checked numpy arrays; no framework is imported."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from lpot.core.batch import as_array
from lpot.metric.base import Array, BaseMetric, Floats


def to_numpy(value: Any) -> Array:
    """An array from numpy, lists, torch, TensorFlow or MXNet tensors, found by what they can do.

    >>> to_numpy([[1, 2], [3, 4]]).shape
    (2, 2)
    """
    if isinstance(value, list | tuple) and not _is_plain(value):
        array = np.asarray([to_numpy(item) for item in value])
    else:
        array = as_array(value.dequantize() if getattr(value, "is_quantized", False) else value)
    # TensorFlow's bfloat16 and float8 come as extension types that most of numpy can't take.
    if array.dtype.kind == "V" and array.dtype.names is None:
        array = array.astype(np.float32)
    return array


def _is_plain(items: Sequence[Any]) -> bool:
    return all(isinstance(item, int | float | str | bytes | np.generic) for item in items)


def read(metric: BaseMetric, value: Any, what: str) -> Array:
    """`value` as an array of numbers, or a fault that says what came instead."""
    if value is None:
        raise metric.fault(f"needs {what}, but None was given")
    try:
        array = to_numpy(value)
    except (ValueError, TypeError) as error:
        raise metric.fault(
            f"the {what} can't be read as one array ({error}): expected an array or a list of "
            "equally shaped samples; if the model has several outputs, a postprocess "
            "must choose one"
        ) from error
    if array.dtype.kind not in "buif":
        raise metric.fault(f"the {what} are of type {array.dtype}, expected numbers")
    return array.reshape(1) if array.ndim == 0 else array


def pair(metric: BaseMetric, preds: Any, labels: Any, seen: int = 0) -> tuple[Array, Array]:
    """Predictions and labels with the same number of samples.

    A model's outputs may come as a list of one array, and so may labels: the wrapping is taken
    off where the counts then agree.
    """
    guess, truth = read(metric, preds, "predictions"), read(metric, labels, "labels")
    inner_guess = guess[0] if _wraps_one(preds, guess) else None
    inner_truth = truth[0] if _wraps_one(labels, truth) else None
    if (
        inner_guess is not None
        and len(inner_guess) == len(truth)
        and inner_guess.ndim >= truth.ndim
    ):
        guess = inner_guess
    elif inner_guess is not None and inner_truth is not None and inner_guess.ndim > 1:
        if len(inner_guess) == len(inner_truth):
            guess, truth = inner_guess, inner_truth
    elif len(guess) != len(truth) and inner_truth is not None and len(inner_truth) == len(guess):
        truth = inner_truth
    if len(guess) != len(truth):
        several = isinstance(preds, list | tuple) and not _is_plain(preds) and len(preds) > 1
        hint = "; if the model has several outputs, a postprocess must choose one" * several
        raise metric.fault(
            f"{len(guess)} predictions (shape {guess.shape}) but {len(truth)} labels "
            f"(shape {truth.shape}) in the batch that begins at sample {seen}{hint}"
        )
    if not guess.size or not truth.size:
        raise metric.fault(f"the batch is empty: shapes {guess.shape} and {truth.shape}", seen)
    no_nan(metric, guess, "prediction", seen)
    no_nan(metric, truth, "label", seen)
    return guess, truth


def _wraps_one(given: Any, array: Array) -> bool:
    return isinstance(given, list | tuple) and len(given) == 1 and array.ndim > 1


def no_nan(metric: BaseMetric, array: Array, what: str, seen: int) -> None:
    """Refuse NaN, naming the first sample that has one."""
    if array.dtype.kind != "f" or not array.size:
        return
    # One cheap pass: a sum is NaN when any item is (or when inf meets -inf, which is rare).
    with np.errstate(invalid="ignore", over="ignore"):
        if not np.isnan(array.sum(dtype=np.float64)):
            return
    rows = np.isnan(array).reshape(len(array), -1).any(axis=1)
    if rows.any():
        raise metric.fault(f"the {what} is NaN", seen + int(rows.argmax()))


def no_inf(metric: BaseMetric, array: Array, what: str, seen: int) -> None:
    """Refuse infinities, naming the first sample that has one."""
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        rows = ~np.isfinite(array).reshape(len(array), -1).all(axis=1)
        raise metric.fault(f"the {what} is infinite", seen + int(rows.argmax()))


def whole(metric: BaseMetric, array: Array, what: str, seen: int) -> Array:
    """The array as int64; a fault where a value is not a whole number."""
    if array.dtype.kind != "f":
        return array.astype(np.int64)
    bad = (array != np.rint(array)).reshape(len(array), -1).any(axis=1)
    if bad.any():
        at = int(bad.argmax())
        raise metric.fault(
            f"the {what} is {array[at].tolist()}, expected a class number", seen + at
        )
    return array.astype(np.int64)


def column(metric: BaseMetric, array: Array, what: str) -> Floats:
    """One number per sample: (n,) or (n, 1, ...) as float64 (n,)."""
    if array.size != len(array):
        raise metric.fault(f"the {what} have shape {array.shape}, expected one number per sample")
    return array.reshape(-1).astype(np.float64)


def average_ranks(values: Floats) -> Floats:
    """Ranks from 1; equal values share the mean of their ranks.

    >>> average_ranks(np.array([10.0, 20.0, 10.0])).tolist()
    [1.5, 3.0, 1.5]
    """
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    ranks: Floats = (last - (counts - 1) / 2.0)[inverse.reshape(-1)]
    return ranks
