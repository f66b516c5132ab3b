"""Reading a user's batch: which part feeds the model, which part is the label."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from typing import Any

import numpy as np

from lpot.core.errors import DataError

Inputs = tuple[Any, ...] | Mapping[str, Any]

LABEL_KEYS = ("label", "labels", "target", "targets", "y")


@dataclass(frozen=True)
class InputSpec:
    """One input of a model. `dtype` is numpy's name; an unknown dimension is a word or None."""

    name: str
    dtype: str
    shape: tuple[int | str | None, ...] | None = None

    @property
    def is_fixed(self) -> bool:
        """Is every dimension known?"""
        return self.shape is not None and all(isinstance(size, int) for size in self.shape)

    def fits(self, shape: Sequence[int]) -> bool:
        """Can an array of this shape be fed? An unknown rank or size fits any."""
        return self.shape is None or (
            len(self.shape) == len(shape)
            and all(
                not isinstance(want, int) or want == got
                for want, got in zip(self.shape, shape, strict=True)
            )
        )

    def to_json(self) -> dict[str, Any]:
        shape = None if self.shape is None else list(self.shape)
        return {"name": self.name, "dtype": self.dtype, "shape": shape}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> InputSpec:
        """
        >>> InputSpec.from_json(InputSpec("ids", "int64", ("batch", 128)).to_json()).shape
        ('batch', 128)
        """
        shape = raw["shape"]
        return cls(raw["name"], raw["dtype"], None if shape is None else tuple(shape))

    def __str__(self) -> str:
        if self.shape is None:
            return f"{self.name} {self.dtype}[of unknown rank]"
        sizes = ", ".join("?" if size is None else str(size) for size in self.shape)
        return f"{self.name} {self.dtype}[{sizes}]"


@dataclass(frozen=True, eq=False)
class Batch:
    """`inputs` by position or by name; `labels` None when the loader gives none."""

    inputs: Inputs
    labels: Any = None
    ambiguous: bool = False  # both readings fitted; (inputs, labels) was taken

    @property
    def values(self) -> tuple[Any, ...]:
        """The inputs without their names."""
        return tuple(self.inputs.values() if isinstance(self.inputs, Mapping) else self.inputs)

    @property
    def nbytes(self) -> int:
        return sum(map(size_in_bytes, self.values))

    @property
    def size(self) -> int:
        """Number of samples: the leading dimension of the first input."""
        for value in self.values:
            if getattr(value, "is_nested", False):  # torch's, of which some have no shape
                return int(value.size(0))
            shape = getattr(value, "shape", None)
            if shape is not None and len(shape) > 0:
                return int(shape[0])
            if isinstance(value, list | tuple) and value:
                return len(value)
        return 1


def as_array(value: Any) -> np.ndarray:
    """One array from a tensor of any framework, or from nested lists."""
    if hasattr(value, "asnumpy"):  # MXNet, which has a detach() too
        return np.asarray(value.asnumpy())
    if hasattr(value, "detach") and hasattr(value, "numpy"):  # torch, on whatever device
        value = value.detach().cpu()
        if getattr(value, "is_nested", False):
            value = value.to_padded_tensor(0.0)
        value = value.to_dense() if _is_packed(value) else value
        return np.asarray((value.float() if "bfloat16" in str(value.dtype) else value).numpy())
    return plain(value)


def plain(value: Any) -> np.ndarray:
    """An array as every runtime reads it: of the machine's byte order, its numbers as numbers.

    >>> plain(np.array([1, 2], ">i4")).dtype.isnative, plain(np.array([0.5], object)).dtype.name
    (True, 'float64')
    """
    if isinstance(value, np.ma.MaskedArray) and np.ma.is_masked(value):
        count = int(np.ma.getmaskarray(value).sum())
        raise DataError(
            f"{count} values of an array are masked: no runtime knows what they stand for; "
            "fill them (array.filled(0)) in the loader"
        )
    array = np.asarray(value)
    if array.dtype.kind == "O" and array.size and all(map(_is_number, array.flat)):
        array = np.array(array.tolist())
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def _is_number(item: object) -> bool:
    return isinstance(item, int | float | np.number | np.bool_)


def is_tensor(value: Any) -> bool:
    """Is it a tensor of a framework? Known by what it can do, so that none is imported."""
    return any(callable(getattr(value, verb, None)) for verb in ("asnumpy", "detach", "numpy"))


def size_in_bytes(value: Any) -> int:
    """Of an array or tensor, 0 of anything else; torch's sparse tensors don't tell nbytes."""
    if _is_packed(value):
        return int(value.numel() * value.element_size())
    return int(getattr(value, "nbytes", 0) or 0)


def _is_packed(value: Any) -> bool:
    """A tensor of torch's whose values do not lie one after the other: sparse, or oneDNN's."""
    layout = str(getattr(value, "layout", ""))
    return layout.startswith("torch.") and layout != "torch.strided"


def split(raw: Any, names: Sequence[str] | None) -> Batch:
    """Read one batch of a loader for a model whose inputs are `names` (None: not known).

    A batch of n items for an n-input model is inputs; n + 1 items, or two of which the first is a
    container of n, is (inputs, labels); where both fit, (inputs, labels) wins and is marked.

    >>> split(([[1], [2]], 0), ["a", "b"]).labels
    0
    >>> split([[1.0, 2.0]], ["images"]).labels is None
    True
    """
    if isinstance(raw, Mapping):
        return _split_mapping(raw, names)
    if hasattr(raw, "provide_data"):  # a batch of MXNet's DataIter
        return _split_data_batch(raw, names)
    if not isinstance(raw, list | tuple):
        return Batch((raw,))
    items = tuple(raw)
    if not items:
        raise DataError("the loader yielded an empty batch: expected inputs, or (inputs, labels)")
    count = None if names is None else len(names)
    if len(items) == 2:
        first = _container(items[0], count)
        if first is not None:
            by_name = isinstance(first, Mapping) and names is not None
            named = by_name and set(names or ()) <= set(first)
            nested = _nested(items, len(names)) if names and by_name and not named else None
            return nested or Batch(first, items[1], ambiguous=count == 2 and not named)
    if count is None:
        return Batch(items[:-1], items[-1]) if len(items) > 1 else Batch(items)
    if len(items) == count + 1:
        return Batch(items[:count], items[count])
    if len(items) == count:
        return Batch(items)
    nested = _nested(items, count)
    if nested is not None:
        return nested
    raise DataError(
        f"the loader yielded a batch of {len(items)} items, but the model has {count} input(s) "
        f"({', '.join(names or ())}): expected {count} item(s), or {count + 1} with the label "
        "last, or (inputs, labels), or a dict by input name"
    )


def _container(value: Any, count: int | None) -> Inputs | None:
    """`value` as the model's inputs when it is a container of the right length, else None."""
    if isinstance(value, Mapping):
        return dict(value)
    if not isinstance(value, list | tuple) or not value or count not in (None, len(value)):
        return None
    # A list of plain numbers is one array's data, not a container of arrays.
    arrays = all(hasattr(item, "shape") or isinstance(item, list | tuple) for item in value)
    # A graph that reads its own data is fed a file name and a number: words are no array's data.
    words = count is not None and count > 1 and any(isinstance(item, str) for item in value)
    return tuple(value) if arrays or words else None


def _nested(raw: Any, count: int) -> Batch | None:
    """Inputs in nests of dicts and tuples, in their order; dicts go by their sorted keys."""
    whole = _leaves(raw)
    if len(whole) == count:
        return Batch(whole)
    if isinstance(raw, tuple) and len(raw) == 2:
        inputs = _leaves(raw[0])
        return Batch(inputs, raw[1]) if len(inputs) == count else None
    return None


def _leaves(value: Any) -> tuple[Any, ...]:
    if isinstance(value, Mapping):
        return tuple(leaf for key in sorted(value, key=str) for leaf in _leaves(value[key]))
    if isinstance(value, list | tuple) and all(
        hasattr(item, "shape") or isinstance(item, Mapping | list | tuple) for item in value
    ):
        return tuple(leaf for item in value for leaf in _leaves(item))
    return (value,)


def _split_data_batch(raw: Any, names: Sequence[str] | None) -> Batch:
    """Arrays by position and, where the iterator tells them, by name; the last may be padding."""
    count = None if not getattr(raw, "pad", 0) else -int(raw.pad)
    arrays = [item[:count] if count else item for item in raw.data]
    labels = [item[:count] if count else item for item in raw.label or ()]
    known = [entry[0] for entry in raw.provide_data or ()]
    answer = (labels[0] if len(labels) == 1 else labels) if labels else None
    if names is not None and len(known) == len(arrays) and set(known) == set(names):
        return Batch(dict(zip(known, arrays, strict=True)), answer)
    return Batch(tuple(arrays), answer)


def _split_mapping(raw: Mapping[str, Any], names: Sequence[str] | None) -> Batch:
    known = set(names or ())
    labels = None
    inputs = dict(raw)
    for key in LABEL_KEYS:
        if key in inputs and names is not None and key not in known:
            labels = inputs.pop(key)
            break
    missing = [name for name in names or () if name not in inputs]
    if names is not None and missing:
        nested = None if labels is not None else _nested(raw, len(names))
        if nested is not None and any(not hasattr(item, "shape") for item in raw.values()):
            return nested
        raise DataError(
            f"the loader's batch has the keys {sorted(map(str, raw))}, but the model needs "
            f"{list(names)}: missing {missing}"
        )
    return Batch({name: inputs[name] for name in names} if names is not None else inputs, labels)


# -- other readings -----------------------------------------------------------------------------

Runs = Callable[[Inputs], str]  # what a model says to inputs; empty when it runs


def _all_inputs(raw: Any, names: Sequence[str] | None) -> Batch | None:
    return Batch(tuple(raw)) if isinstance(raw, list | tuple) and len(raw) > 1 else None


def _fields(raw: Any, names: Sequence[str] | None) -> Batch | None:
    """A named tuple or a dataclass, by the names of its fields."""
    if is_dataclass(raw) and not isinstance(raw, type):
        return Batch({item.name: getattr(raw, item.name) for item in fields(raw)})
    return Batch(dict(raw._asdict())) if hasattr(raw, "_asdict") else None


def _first(raw: Any, names: Sequence[str] | None) -> Batch | None:
    """(images, targets), where the images are one argument, though a list."""
    return Batch((raw[0],), raw[1]) if isinstance(raw, list | tuple) and len(raw) == 2 else None


def _whole(raw: Any, names: Sequence[str] | None) -> Batch | None:
    return Batch((raw,))


READINGS: Mapping[str, Callable[[Any, Sequence[str] | None], Batch | None]] = {
    "inputs, or (inputs, labels)": split,
    "inputs by the names of their fields": _fields,
    "one argument and its labels": _first,
    "inputs, all of them": _all_inputs,
    "one argument": _whole,
}
USUAL = next(iter(READINGS))


class Reader:
    """Reads the batches of one loader all in the same way: the first that the model runs with.

    `runs` is not given where a model's inputs are known by name and number.
    """

    def __init__(self, names: Sequence[str] | None, runs: Runs | None = None) -> None:
        self.names = names
        self.notes: list[str] = []
        self._runs = runs
        self._reading: str | None = None if runs is not None else USUAL

    def __call__(self, raw: Any) -> Batch:
        if self._reading is None:
            self._reading = self._find(raw)
        found = READINGS[self._reading](raw, self.names)
        return split(raw, self.names) if found is None else found

    def _find(self, raw: Any) -> str:
        for reading in READINGS:
            batch = self._try(reading, raw)
            if batch is None:
                continue
            if reading != USUAL:
                self.notes.append(f"the loader's batches are read as {reading}")
            elif self._has_doubtful_labels(batch) and self._try("inputs, all of them", raw):
                self.notes.append(
                    "the last item of a batch is taken as labels, though the model would take it "
                    "as an input: yield a dict by input name if it is one"
                )
            return reading
        return USUAL  # which will say what is wrong

    def _try(self, reading: str, raw: Any) -> Batch | None:
        assert self._runs is not None
        try:
            batch = READINGS[reading](raw, self.names)
        except DataError:
            return None
        return None if batch is None or self._runs(batch.inputs) else batch

    def _has_doubtful_labels(self, batch: Batch) -> bool:
        """Labels are mostly whole numbers, one for each sample: others may be an input."""
        labels, kind = batch.labels, str(getattr(batch.labels, "dtype", ""))
        return len(getattr(labels, "shape", ())) > 1 and "float" in kind
