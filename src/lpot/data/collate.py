"""Samples to a batch: arrays are stacked, containers keep their shape, texts stay lists."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lpot.core.batch import LABEL_KEYS, is_tensor
from lpot.core.errors import DataError
from lpot.data.image import is_pillow, to_array


class CollateError(DataError):
    """Samples that don't make a batch."""


def collate(samples: Sequence[Any]) -> Any:
    """One batch from samples of the same build.

    Inputs of differing shapes are an error, since a model can't take them; labels of differing
    shapes, such as the boxes of each image, stay a list.

    >>> inputs, labels = collate([(np.zeros(2), 3), (np.ones(2), 4)])
    >>> inputs.shape, labels.tolist()
    ((2, 2), [3, 4])
    """
    first = samples[0]
    if isinstance(first, tuple | list) and len(first) > 1 and not _is_flat(first):
        return _parts(samples, "sample", labels_last=True)
    return _join(samples, "sample", strict=True)


def gather(samples: Iterator[Any], count: int, fresh: bool = False) -> Any:
    """`collate` of at most `count` samples as they come; None if none comes.

    The arrays of (array, …) samples are copied into the batch one by one, so that they need not all
    be kept until the last has come. An only one that is `fresh`, held by nobody else, is the batch.
    """
    kept: list[tuple[Any, ...]] = []
    block: np.ndarray | None = None
    for sample in samples:
        fits = type(sample) is tuple and len(sample) > 1 and isinstance(sample[0], np.ndarray)
        if block is None and fits and not kept:
            if fresh and count == 1:
                block = sample[0][np.newaxis]
                kept.append(sample[1:])
                continue
            block = np.empty((count, *sample[0].shape), dtype=sample[0].dtype)
        if block is None or not fits or not _same(sample, kept, block):
            # Not what this shortcut is for: let collate join all of them, or say what is wrong.
            arrays = [(block[n], *rest) for n, rest in enumerate(kept)] if block is not None else []
            return collate([*arrays, sample, *samples])
        block[len(kept)] = sample[0]
        kept.append(sample[1:])
    if block is None:
        return None
    last = len(kept[0])
    columns = enumerate(zip(*kept, strict=True), start=1)
    return block[: len(kept)], *(_join(c, f"sample[{n}]", n != last) for n, c in columns)


def _same(sample: tuple[Any, ...], kept: list[tuple[Any, ...]], block: np.ndarray) -> bool:
    array = sample[0]
    alike = array.shape == block.shape[1:] and array.dtype == block.dtype
    return alike and (not kept or len(sample) - 1 == len(kept[0]))


def _join(items: Sequence[Any], where: str, strict: bool) -> Any:
    first = items[0]
    if isinstance(first, Mapping):
        return _mappings(items, where, strict)
    if isinstance(first, tuple | list) and not _is_flat(first):
        return _parts(items, where, labels_last=False, strict=strict)
    if isinstance(first, str | bytes) or first is None:
        return list(items)
    if isinstance(first, np.ndarray) or np.isscalar(first) or _has_values(first):
        return _stack([to_array(item) for item in items], where, strict)
    return list(items)


def _stack(arrays: list[np.ndarray], where: str, strict: bool) -> Any:
    shapes = {array.shape for array in arrays}
    if len(shapes) == 1:
        return np.stack(arrays)
    if not strict:
        return arrays
    odd = next(n for n, array in enumerate(arrays) if array.shape != arrays[0].shape)
    raise CollateError(
        f"{where}: the batch's arrays differ in shape, {arrays[0].shape} in its first sample and "
        f"{arrays[odd].shape} in its sample {odd}. Add a Resize transform, set batch_size to 1, or "
        "give a collate_fn"
    )


def _parts(
    items: Sequence[Any], where: str, labels_last: bool, strict: bool = True
) -> tuple[Any, ...] | list[Any]:
    first = items[0]
    for number, item in enumerate(items):
        if not isinstance(item, tuple | list) or len(item) != len(first):
            have = len(item) if isinstance(item, tuple | list) else 1
            raise CollateError(
                f"{where}: the first sample of the batch has {len(first)} parts, sample {number} "
                f"has {have}"
            )
    last = len(first) - 1
    joined = [
        _join(column, f"{where}[{place}]", strict and not (labels_last and place == last))
        for place, column in enumerate(zip(*items, strict=True))
    ]
    if hasattr(first, "_fields"):
        return type(first)(*joined)  # type: ignore[no-any-return]
    return tuple(joined)


def _mappings(items: Sequence[Any], where: str, strict: bool) -> dict[str, Any]:
    first = items[0]
    for number, item in enumerate(items):
        if not isinstance(item, Mapping) or item.keys() != first.keys():
            have = sorted(map(str, item)) if isinstance(item, Mapping) else type(item).__name__
            raise CollateError(
                f"{where}: the first sample of the batch has the keys {sorted(map(str, first))}, "
                f"sample {number} has {have}"
            )
    return {
        key: _join(
            [item[key] for item in items], f"{where}[{key!r}]", strict and key not in LABEL_KEYS
        )
        for key in first
    }


def _is_flat(item: Any) -> bool:
    """A list of plain numbers is one array's data, not a container."""
    return isinstance(item, list) and all(isinstance(part, int | float) for part in item)


def _has_values(item: Any) -> bool:
    return is_pillow(item) or is_tensor(item) or _is_flat(item)
