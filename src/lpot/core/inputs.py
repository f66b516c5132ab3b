"""Inputs as a model takes them: by name, of the right type and shape, or an error that says why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lpot.core.batch import Inputs, InputSpec, as_array
from lpot.core.errors import DataError

# The array in the input's type; `listed`: it was given as plain numbers, which have no type yet.
Cast = Callable[[InputSpec, np.ndarray, bool], np.ndarray]


def same_kind(spec: InputSpec, array: np.ndarray, listed: bool) -> np.ndarray:
    """Same kind only: pixels in uint8 given to a float model are most likely not normalised."""
    if array.dtype.name == spec.dtype:
        return array
    if spec.dtype == "object":
        return array.astype(object)
    want = np.dtype(spec.dtype)
    kinds = {array.dtype.kind, want.kind}
    if len(kinds) == 1 or kinds <= set("iu") or (listed and array.dtype.kind in "biuf"):
        return array.astype(want)
    raise DataError(
        f"input {spec.name!r} expects {spec.dtype}, got {array.dtype.name}: "
        f"convert it in the loader (.astype('{spec.dtype}'), with the model's own scaling)"
    )


def by_name(
    specs: Sequence[InputSpec], inputs: Inputs, cast: Cast = same_kind
) -> dict[str, np.ndarray]:
    """The arrays to feed.

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
    return {spec.name: _fitting(spec, given, cast) for spec in specs}


def _fitting(spec: InputSpec, given: Mapping[str, Any], cast: Cast) -> np.ndarray:
    if spec.name not in given:
        raise DataError(f"input {spec.name!r} is missing; given were {sorted(map(str, given))}")
    value = given[spec.name]
    try:
        array = as_array(value)
    except ValueError as error:
        raise DataError(f"input {spec.name!r} is not one array: {error}") from error
    listed = isinstance(value, list | tuple | int | float)
    if listed and array.dtype == object and spec.dtype != "object":  # NumPy before 1.24
        raise DataError(f"input {spec.name!r} is not one array: its parts differ in shape")
    array = cast(spec, array, listed)
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
