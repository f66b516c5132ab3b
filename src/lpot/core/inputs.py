"""Inputs as a model takes them: by name, of the right type and shape, or an error that says why."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

import numpy as np

from lpot.core.batch import Inputs, InputSpec, as_array
from lpot.core.errors import DataError


def by_name(
    specs: Sequence[InputSpec], inputs: Inputs, loose: Collection[str] = ()
) -> dict[str, np.ndarray]:
    """The arrays to feed; inputs in `loose` take numbers of any kind.

    >>> by_name([InputSpec("x", "float32", ("n", 2))], ([[1, 2]],))["x"].dtype.name
    'float32'
    """
    if isinstance(inputs, Mapping):
        given = dict(inputs)
    elif len(inputs) == len(specs):
        given = {spec.name: value for spec, value in zip(specs, inputs, strict=True)}
    else:
        raise DataError(
            f"the model has {len(specs)} input(s) ({', '.join(spec.name for spec in specs)}), "
            f"but {len(inputs)} were given"
        )
    return {spec.name: _fitting(spec, given, spec.name in loose) for spec in specs}


def _fitting(spec: InputSpec, given: Mapping[str, Any], loose: bool) -> np.ndarray:
    if spec.name not in given:
        raise DataError(f"input {spec.name!r} is missing; given: {sorted(map(str, given))}")
    value = given[spec.name]
    try:
        array = as_array(value)
    except ValueError as error:
        raise DataError(f"input {spec.name!r} is not one array: {error}") from error
    listed = isinstance(value, list | tuple | int | float)
    if listed and array.dtype == object and spec.dtype != "object":  # NumPy before 1.24
        raise DataError(f"input {spec.name!r} is not one array: its parts differ in shape")
    array = _typed(spec, array, listed or loose)
    if spec.shape == () and array.size == 1:
        array = array.reshape(())
    if not spec.fits(array.shape):
        shape = spec.shape or ()
        wanted = ", ".join("?" if size is None else str(size) for size in shape)
        hint = ": is the batch dimension missing?" if array.ndim == len(shape) - 1 else ""
        raise DataError(
            f"input {spec.name!r} expects shape [{wanted}], got {list(array.shape)}{hint}"
        )
    return np.asarray(array, order="C")  # ascontiguousarray makes a vector of a scalar


def _typed(spec: InputSpec, array: np.ndarray, loose: bool) -> np.ndarray:
    """In the input's type, if it is of the same kind, or has no type yet (plain numbers).

    Integers are not taken for floats: they are most likely pixels that nobody has scaled. Some
    runtimes would cast them without a word, others not; here all are alike.
    """
    if array.dtype.fields is not None:
        raise DataError(
            f"input {spec.name!r} expects {spec.dtype}, got an array of records with the fields "
            f"{list(array.dtype.names or ())}: give one of them"
        )
    if array.dtype.name == spec.dtype:
        return array
    if spec.dtype == "object":
        return array.astype(object)
    want = np.dtype(spec.dtype)
    if _kind(array.dtype) != _kind(want) and not (loose and array.dtype.kind in "biuf"):
        raise DataError(
            f"input {spec.name!r} expects {spec.dtype}, got {array.dtype.name}: "
            f"convert it in the loader (.astype('{spec.dtype}'), with the model's own scaling)"
        )
    with np.errstate(invalid="ignore", over="ignore"):
        cast = array.astype(want)
    if want.kind in "biu" and not np.array_equal(cast, array):
        raise DataError(
            f"input {spec.name!r} expects {spec.dtype}, which can't hold all values of the "
            f"{array.dtype.name} given: convert it in the loader"
        )
    return cast


def _kind(dtype: np.dtype[Any]) -> str:
    """Integers and flags are one kind; bfloat16 is not NumPy's own."""
    return {"b": "i", "u": "i", "V": "f"}.get(dtype.kind, dtype.kind)
