"""Batches of tokens as data loaders and tokenizers give them, joined to one text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, islice
from typing import Any

import numpy as np

from lpot.core.batch import as_array
from lpot.core.loader import length_of
from lpot.jobs.decoder.inputs import IDS, MASK, PLACES

TEXT = "text"
MOST = 1 << 14  # items of a loader that does not tell how many it has
# What may stand beside the tokens of a batch; other inputs make it one for a loader.
BESIDE = frozenset({IDS, MASK, PLACES, "labels", "token_type_ids", "special_tokens_mask"})


def joined(source: Any) -> Any:
    """The texts or tokens of a loader, for a decoder to read: a list of texts, windows where all
    are equally long, else one row without padding. Anything else is returned as it is.

    >>> joined([{"input_ids": [[5, 6, 0]], "attention_mask": [[1, 1, 0]]}, {"input_ids": [7]}])
    array([5, 6, 7])
    """
    if isinstance(source, Mapping):  # what a tokenizer returns
        return source if _rows(source) is None else joined([source])
    if isinstance(source, str | bytes) or hasattr(source, "shape"):
        return source
    if isinstance(source, Iterator):  # it can be read once: what is of no use here goes back to it
        first = list(islice(source, 1))
        if not first or not _is_read(first[0]):
            return chain(first, source)
        source = [*first, *islice(source, MOST - 1)]
    texts: list[str] = []
    rows: list[np.ndarray] = []
    for item in _items(source):
        if (text := _text(item)) is not None:
            texts.append(text)
        elif (found := _rows(item)) is not None:
            rows += found
        else:
            return source
    if texts and not rows:
        return texts
    if texts or not rows:
        return source
    if len({len(row) for row in rows}) == 1:
        return np.stack(rows)
    return np.concatenate(rows)


def _items(source: Any) -> Iterable[Any]:
    """A dataset without an iterator of its own need not end with an IndexError, nor a loader."""
    count = length_of(source)
    if isinstance(source, Iterable):
        return islice(source, MOST if count is None else count)
    return (source[at] for at in range(count or 0)) if hasattr(source, "__getitem__") else ()


def _is_read(item: Any) -> bool:
    return _text(item) is not None or _rows(item) is not None


def _text(item: Any) -> str | None:
    found = item.get(TEXT) if isinstance(item, Mapping) else item
    return found if isinstance(found, str) else None


def _rows(item: Any) -> list[np.ndarray] | None:
    """The rows of tokens of one batch, without padding; None where it is something else."""
    mask = None
    if isinstance(item, Mapping):
        if IDS not in item or set(item) - BESIDE:
            return None
        item, mask = item[IDS], item.get(MASK)
    elif isinstance(item, tuple | list) and len(item) == 1 and hasattr(item[0], "shape"):
        (item,) = item  # of a TensorDataset
    if isinstance(item, str | bytes):
        return None
    try:
        ids = np.atleast_2d(as_array(item))
        kept = np.ones(ids.shape, bool) if mask is None else np.atleast_2d(as_array(mask)) != 0
    except (TypeError, ValueError):
        return None
    if ids.dtype.kind not in "iu" or ids.ndim != 2 or kept.shape != ids.shape:
        return None
    return [row[keep] for row, keep in zip(ids, kept, strict=True)]
