"""Random data in given shapes, for timing and for trying things out."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError, did_you_mean
from lpot.data.datasets.base import Dataset, FilterFunction, IterableDataset, TransformFunction

SEED = 9527
TYPES = ("float32", "float16", "float64", "uint8", "int8", "int32", "int64", "bool")

Spec = tuple[tuple[int, ...], float, float, str]


class Dummy(Dataset):
    """Random samples; the first number of the shape is how many there are.

    Args:
        shape: [100, 3, 224, 224] for a hundred images, or a list of such shapes for several inputs.
        low: lowest value, or a list with one for each input.
        high: highest value, or a list with one for each input.
        dtype: type of the values, or a list with one for each input.
        label: give each sample the label 0; without it, samples have no label.
        transform: accepted, but not applied: random data needs none.
        filter: accepted, but not applied.
    """

    def __init__(
        self,
        shape: Any,
        low: Any = -128.0,
        high: Any = 127.0,
        dtype: Any = "float32",
        label: bool = False,
        transform: TransformFunction | None = None,
        filter: FilterFunction | None = None,
    ) -> None:
        super().__init__()
        shapes = shapes_of(shape, "shape")
        if len({item[0] for item in shapes}) != 1:
            raise ConfigError(f"all shapes should start with the same number of samples: {shape!r}")
        self._samples = shapes[0][0]
        self._specs = specs([item[1:] for item in shapes], low, high, dtype)
        self.has_label = bool(label)

    def count(self) -> int:
        return self._samples

    def read(self, number: int) -> Any:
        # Each sample has its own seed, so none is held in memory and any order gives the same.
        values = draw(self._specs, np.random.default_rng([SEED, number]))
        inputs = _one_or_all(values)
        return (inputs, 0) if self.has_label else inputs


class DummyV2(IterableDataset):
    """An endless stream of random samples; shapes are those of one sample.

    Args:
        input_shape: [224, 224, 3], or a list of shapes for several inputs.
        label_shape: the same for labels; none by default.
        low: lowest value, or a list with one for each input and label.
        high: highest value, or a list with one for each input and label.
        dtype: type of the values, or a list with one for each input and label.
        transform: accepted, but not applied: random data needs none.
        filter: accepted, but not applied.
    """

    endless = True

    def __init__(
        self,
        input_shape: Any,
        label_shape: Any = None,
        low: Any = -128.0,
        high: Any = 127.0,
        dtype: Any = "float32",
        transform: TransformFunction | None = None,
        filter: FilterFunction | None = None,
    ) -> None:
        super().__init__()
        inputs = shapes_of(input_shape, "input_shape")
        labels = [] if label_shape is None else shapes_of(label_shape, "label_shape")
        self._inputs = len(inputs)
        self._specs = specs([*inputs, *labels], low, high, dtype)

    def samples(self) -> Iterator[Any]:
        generator = np.random.default_rng(SEED)
        while True:
            values = draw(self._specs, generator)
            yield _sample(_one_or_all(values[: self._inputs]), values[self._inputs :])


class SparseDummyV2(IterableDataset):
    """An endless stream of random sparse samples: (indices, values) of the nonzero elements.

    Indices are (n, rank) integers in row-major order, values (n,); several shapes give
    (indices, values, indices, values, …).

    Args:
        dense_shape: [224, 224], or a list of shapes for several inputs.
        label_shape: the same for labels; none by default.
        sparse_ratio: share of zeros, or a list with one for each input.
        low: lowest value, or a list with one for each input and label.
        high: highest value, or a list with one for each input and label.
        dtype: type of the values, or a list with one for each input and label.
        transform: accepted, but not applied: random data needs none.
        filter: accepted, but not applied.
    """

    endless = True

    def __init__(
        self,
        dense_shape: Any,
        label_shape: Any = None,
        sparse_ratio: Any = 0.5,
        low: Any = -128.0,
        high: Any = 127.0,
        dtype: Any = "float32",
        transform: TransformFunction | None = None,
        filter: FilterFunction | None = None,
    ) -> None:
        super().__init__()
        self._shapes = shapes_of(dense_shape, "dense_shape")
        labels = [] if label_shape is None else shapes_of(label_shape, "label_shape")
        ratios = _spread(sparse_ratio, len(self._shapes), "sparse_ratio")
        for ratio in ratios:
            if not isinstance(ratio, int | float) or not 0 <= ratio <= 1:
                raise ConfigError(f"sparse_ratio should be between 0 and 1, not {ratio!r}")
        counts = [
            (round(math.prod(shape) * (1 - ratio)),)
            for shape, ratio in zip(self._shapes, ratios, strict=True)
        ]
        self._specs = specs([*counts, *labels], low, high, dtype)

    def samples(self) -> Iterator[Any]:
        generator = np.random.default_rng(SEED)
        while True:
            values = draw(self._specs, generator)
            inputs: list[np.ndarray] = []
            for shape, kept in zip(self._shapes, values, strict=False):
                size = math.prod(shape)
                flat = np.sort(generator.choice(size, len(kept), replace=False))
                inputs += [np.stack(np.unravel_index(flat, shape), axis=1).astype(np.int64), kept]
            yield _sample(tuple(inputs), values[len(self._shapes) :])


def _one_or_all(values: Sequence[np.ndarray]) -> Any:
    return values[0] if len(values) == 1 else tuple(values)


def _sample(inputs: Any, labels: Sequence[np.ndarray]) -> Any:
    return (inputs, _one_or_all(labels)) if labels else inputs


def shapes_of(value: Any, name: str) -> list[tuple[int, ...]]:
    """One shape or several, as a list of tuples.

    >>> shapes_of([2, 3], "shape"), shapes_of([[2, 3], [2]], "shape")
    ([(2, 3)], [(2, 3), (2,)])
    """
    if isinstance(value, Sequence) and not isinstance(value, str) and value:
        several = all(isinstance(item, Sequence) and not isinstance(item, str) for item in value)
        shapes = [tuple(item) for item in value] if several else [tuple(value)]
        if all(type(n) is int and n > 0 for item in shapes for n in item) and all(shapes):
            return shapes
    raise ConfigError(
        f"{name} should be a list of positive whole numbers, or a list of such lists, not {value!r}"
    )


def specs(shapes: list[tuple[int, ...]], low: Any, high: Any, dtype: Any) -> list[Spec]:
    """Shape, range and type of each tensor, with single values spread over all."""
    lows, highs, types = (
        _spread(value, len(shapes), name)
        for value, name in ((low, "low"), (high, "high"), (dtype, "dtype"))
    )
    for kind in types:
        if kind not in TYPES:
            raise ConfigError(
                f"dtype {kind!r} is not known{did_you_mean(str(kind), TYPES) or ';'} "
                f"Known: {', '.join(TYPES)}"
            )
    for least, most in zip(lows, highs, strict=True):
        if not least <= most:
            raise ConfigError(f"low {least!r} is above high {most!r}")
    return list(zip(shapes, map(float, lows), map(float, highs), types, strict=True))


def draw(wanted: list[Spec], generator: np.random.Generator) -> list[np.ndarray]:
    """One random tensor for each spec."""
    found = []
    for shape, low, high, kind in wanted:
        if kind == "bool":
            found.append(generator.random(shape) < 0.5)
            continue
        if np.dtype(kind).kind in "iu":
            limits = np.iinfo(kind)
            low, high = max(low, limits.min), min(high, limits.max)
        found.append(generator.uniform(low, high, shape).astype(kind))
    return found


def _spread(value: Any, count: int, name: str) -> list[Any]:
    if not isinstance(value, list | tuple):
        return [value] * count
    if len(value) != count:
        raise ConfigError(f"{name} has {len(value)} entries, but there are {count} tensors")
    return list(value)
