"""Inputs for timing models: are they alike, which shapes do they get, which values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lpot.core.batch import InputSpec, as_array
from lpot.core.errors import ConfigError, DataError, did_you_mean

Feed = Mapping[str, np.ndarray]


def unite(inputs: Mapping[str, Sequence[InputSpec]]) -> tuple[InputSpec, ...]:
    """The inputs that all these models (by label) share; models with unlike inputs are refused.

    A dimension that one model fixes and another leaves open is fixed.

    >>> open_, fixed = InputSpec("x", "float32", ("n", 3)), InputSpec("x", "float32", (1, 3))
    >>> unite({"a": [open_], "b": [fixed]})[0].shape
    (1, 3)
    """
    labels = list(inputs)
    united = {spec.name: spec for spec in inputs[labels[0]]}
    for label in labels[1:]:
        theirs = {spec.name: spec for spec in inputs[label]}
        if set(theirs) != set(united):
            raise DataError(
                f"can't compare models with different inputs: {labels[0]!r} has {sorted(united)}, "
                f"{label!r} has {sorted(theirs)}"
            )
        for name, spec in theirs.items():
            united[name] = _merge(united[name], spec, labels[0], label)
    return tuple(united.values())


def _merge(mine: InputSpec, theirs: InputSpec, label: str, other: str) -> InputSpec:
    if mine.dtype == theirs.dtype and (mine.shape is None or theirs.shape is None):
        return mine if theirs.shape is None else theirs
    left, right = mine.shape or (), theirs.shape or ()
    pairs = list(zip(left, right, strict=False))
    clash = any(isinstance(a, int) and isinstance(b, int) and a != b for a, b in pairs)
    if mine.dtype != theirs.dtype or len(left) != len(right) or clash:
        raise DataError(
            f"can't compare models with different inputs: {label!r} takes {mine}, "
            f"{other!r} takes {theirs}"
        )
    return replace(mine, shape=tuple(b if isinstance(b, int) else a for a, b in pairs))


@dataclass(frozen=True)
class Shapes:
    """Inputs with every dimension known, and what was assumed on the way."""

    inputs: tuple[InputSpec, ...]
    notes: tuple[str, ...] = ()

    @property
    def batch_size(self) -> int:
        """The leading dimension of the first input that has one."""
        return next((int(spec.shape[0] or 1) for spec in self.inputs if spec.shape), 1)


def settle(
    specs: Sequence[InputSpec],
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch_size: int | None = None,
) -> Shapes:
    """Give every open dimension a size: from `shapes`, from a symbol of the same name, or, if it is
    the leading one, the batch size (1 unless given). Any other must be given: a guess would time
    another model than the user's.

    >>> settle([InputSpec("ids", "int64", ("n", "s")), InputSpec("mask", "int64", ("n", "s"))],
    ...        {"ids": (2, 128)}).inputs[1].shape
    (2, 128)
    """
    shapes = shapes or {}
    known = {spec.name: _name_batch(spec) for spec in specs}
    symbols: dict[str, int] = {}
    for name, sizes in shapes.items():
        if name not in known:
            hint = did_you_mean(name, known)
            raise ConfigError(
                f"no input is named {name!r}; the inputs are {sorted(known)}{hint}", "shape"
            )
        symbols.update(_symbols(known[name], sizes))
    notes: list[str] = []
    for spec in known.values():
        leading = spec.shape[0] if spec.shape else 1
        if isinstance(leading, str) and leading not in symbols:
            symbols[leading] = batch_size or 1
            if batch_size is None:
                notes.append(f"{spec}: the dynamic first dimension was set to a batch of 1")
    settled = tuple(_settle(spec, symbols, shapes.get(spec.name)) for spec in known.values())
    result = Shapes(settled, tuple(notes))
    if batch_size is not None and batch_size != result.batch_size:
        raise ConfigError(
            f"a batch of {batch_size} is not possible: {settled[0]} fixes it at "
            f"{result.batch_size}; leave batch_size out, or export the model with a dynamic first "
            "dimension",
            "batch_size",
        )
    return result


def _name_batch(spec: InputSpec) -> InputSpec:
    """A leading dimension without a name is the batch: under one name all inputs share its size."""
    if spec.shape and spec.shape[0] is None:
        return replace(spec, shape=("batch", *spec.shape[1:]))
    return spec


def _symbols(spec: InputSpec, sizes: Sequence[int]) -> dict[str, int]:
    """What a shape given for this input says of its symbols."""
    if not spec.fits(sizes) or min(sizes, default=1) < 1:
        raise ConfigError(f"{tuple(sizes)} does not fit the model's input {spec}", "shape")
    pairs = zip(spec.shape or (), sizes, strict=False)
    return {size: number for size, number in pairs if isinstance(size, str)}


def _settle(spec: InputSpec, symbols: Mapping[str, int], given: Sequence[int] | None) -> InputSpec:
    shape: Sequence[int | str | None] = given or [
        symbols.get(size, size) if isinstance(size, str) else size for size in spec.shape or ()
    ]
    settled = replace(spec, shape=tuple(shape))
    if not settled.is_fixed or (spec.shape is None and given is None):
        example = ",".join(str(size) if isinstance(size, int) else "N" for size in shape) or "N,N"
        raise ConfigError(
            f"the model leaves dimensions of {spec} open: set the size to time, e.g. --shape "
            f"{spec.name}={example} with your number for each N",
            "shape",
        )
    return settled


def synthetic(inputs: Sequence[InputSpec], seed: int = 0) -> dict[str, np.ndarray]:
    """Made-up values, the same for the same seed: floats standard normal, integers 0 or 1 (valid as
    ids of any table), masks all ones, uint8 like pixels.

    >>> synthetic([InputSpec("mask", "int64", (1, 3))])["mask"].tolist()
    [[1, 1, 1]]
    """
    random = np.random.default_rng(seed)
    return {spec.name: _values(random, spec) for spec in inputs}


def _values(random: np.random.Generator, spec: InputSpec) -> np.ndarray:
    shape = tuple(int(size or 0) for size in spec.shape or ())
    try:
        dtype = np.dtype(spec.dtype)
    except TypeError:
        dtype = np.dtype(object)
    if dtype.kind == "b" or (dtype.kind in "iu" and "mask" in spec.name.lower()):
        return np.ones(shape, dtype)
    if dtype == np.uint8:
        return random.integers(0, 256, shape, dtype=np.uint8)
    if dtype.kind in "iu":
        return random.integers(0, 2, shape).astype(dtype)
    if dtype.kind == "f":
        return random.standard_normal(shape).astype(dtype)
    raise DataError(f"can't generate values for the input {spec}: give your own with feeds")


def check(inputs: Sequence[InputSpec], feed: Mapping[str, Any]) -> dict[str, np.ndarray]:
    """The user's own feed as arrays of the inputs' dtypes; what does not fit is refused."""
    names = [spec.name for spec in inputs]
    if set(feed) != set(names):
        raise DataError(f"the feed has the keys {sorted(feed)}, but the model's inputs are {names}")
    arrays: dict[str, np.ndarray] = {}
    for spec in inputs:
        array = _plain(as_array(feed[spec.name]))
        numbers = array.dtype.kind in "biufc" or spec.dtype in ("object", array.dtype.name)
        if not spec.fits(array.shape) or array.dtype.kind == "O" or not numbers:
            raise DataError(
                f"the feed for {spec.name!r} is {array.dtype}{list(array.shape)}, "
                f"but the model takes {spec}"
            )
        # Texts stay what numpy makes of them: arrays of objects can't be stored without pickle.
        is_text = array.dtype.kind in "US" and spec.dtype == "object"
        arrays[spec.name] = (
            array if is_text else np.asarray(array.astype(spec.dtype, copy=False), order="C")
        )
    return arrays


def _plain(array: np.ndarray) -> np.ndarray:
    """Texts held as objects, as pandas and TensorFlow give them, in numpy's own form."""
    if array.dtype.kind == "O" and all(isinstance(item, str | bytes) for item in array.flat):
        return np.array(array.tolist())
    return array
