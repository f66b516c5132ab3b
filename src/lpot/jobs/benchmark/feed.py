"""The batches of a benchmark: the user's own or made up, checked, and written for the children."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.batch import InputSpec, as_array, split
from lpot.core.errors import ConfigError, DataError
from lpot.core.feed import Shapes, check, settle, synthetic

Feed = Mapping[str, Any] | tuple[Any, ...]  # by name, or by place
Feeds = Feed | Sequence[Feed]

MOST_BATCHES = 64  # of a loader that are kept
MOST_BYTES = 256 << 20


@dataclass(frozen=True, eq=False)
class Batches:
    """Arrays by input name. `by_place` when the names are ours: the model gets them in order."""

    arrays: tuple[dict[str, np.ndarray], ...]
    shapes: Shapes
    by_place: bool = False

    def store(self, folder: Path) -> dict[str, Any]:
        """Write them for the children; the order that tells them where."""
        paths = []
        for index, batch in enumerate(self.arrays):
            path = folder / f"{index}.npz"
            np.savez(path, *batch.values())
            paths.append(str(path))
        names = list(self.arrays[0])
        return {"do": "feed", "names": names, "paths": paths, "by_place": self.by_place}


def batches(
    known: Sequence[InputSpec] | None,
    feeds: Feeds | None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    batch_size: int | None = None,
    seed: int = 0,
) -> Batches:
    """What to run on. `known` are the models' inputs; None when no framework can tell them."""
    if feeds is None:
        if known is None:
            raise ConfigError(
                "the framework does not report the model's inputs: give a batch (feeds, "
                "b_dataloader), or time it through a factory 'pkg.mod:factory' that returns a "
                "callable and its InputSpecs",
                "feeds",
            )
        settled = settle(known, shapes, batch_size)
        return Batches((synthetic(settled.inputs, seed),), settled)
    given = _listed(feeds)
    if not given:
        raise ConfigError("no batch was given: expected at least one, or None", "feeds")
    by_place = is_by_place(feeds)
    named = [_named(feed, known) for feed in given]
    if known is not None:
        arrays = [check(known, feed) for feed in named]
        specs = tuple(replace(spec, shape=arrays[0][spec.name].shape) for spec in known)
    else:
        arrays = [{name: _array(name, value) for name, value in feed.items()} for feed in named]
        specs = tuple(InputSpec(n, str(v.dtype), v.shape) for n, v in arrays[0].items())
    return Batches(tuple(arrays), Shapes(specs), by_place)


def is_by_place(feeds: Feeds | None) -> bool:
    """Are these batches by place, not by name?"""
    given = _listed(feeds) if feeds is not None else []
    return bool(given) and not isinstance(given[0], Mapping)


def aligned(inputs: Mapping[str, Sequence[InputSpec]]) -> dict[str, list[InputSpec]]:
    """The inputs of all models under the first one's names: batches by place don't ask for names.

    Models with another number of inputs are left as they are, to be refused.

    >>> found = aligned({"a": [InputSpec("x", "float32")], "b": [InputSpec("x:0", "float32")]})
    >>> found["b"][0].name
    'x'
    """
    first = next(iter(inputs.values()))
    return {
        label: [replace(s, name=f.name) for s, f in zip(specs, first, strict=True)]
        if len(specs) == len(first)
        else list(specs)
        for label, specs in inputs.items()
    }


def _listed(feeds: Feeds) -> list[Feed]:
    if isinstance(feeds, Mapping):
        return [feeds]
    if isinstance(feeds, tuple) and not all(isinstance(f, Mapping | tuple) for f in feeds):
        return [feeds]
    return list(feeds)


def _named(feed: Feed, known: Sequence[InputSpec] | None) -> Mapping[str, Any]:
    if isinstance(feed, Mapping):
        return feed
    if known is None:
        return {f"input{index}": value for index, value in enumerate(feed)}
    if len(feed) != len(known):
        names = ", ".join(spec.name for spec in known)
        raise DataError(f"the model has {len(known)} input(s) ({names}), but {len(feed)} are given")
    return {spec.name: value for spec, value in zip(known, feed, strict=True)}


def _array(name: str, value: Any) -> np.ndarray:
    array = as_array(value)
    if array.dtype.kind == "O":
        raise DataError(f"the input {name!r} is not an array of numbers: {type(value).__name__}")
    return array


def from_loader(
    loader: Iterable[Any], names: Sequence[str] | None, wanted: int | None = None
) -> tuple[list[Feed], bool]:
    """The first batches of a loader, labels left out, and whether these are all it has."""
    found: list[Feed] = []
    held = 0
    limit = min(wanted or MOST_BATCHES, MOST_BATCHES)
    for raw in loader:
        if len(found) == limit or held > MOST_BYTES:
            return found, False
        batch = split(raw, names)
        found.append(batch.inputs)
        held += batch.nbytes
    if not found:
        raise DataError("the loader yielded no batch: it is empty or exhausted")
    return found, True
