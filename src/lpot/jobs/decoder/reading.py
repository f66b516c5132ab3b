"""Tokens read behind a KV cache: in place where the backend can, else copied from call to call.

In place, a prompt is read in pieces: each attends only to what is before it, so that attention does
less than for the whole at once, and the logits need the room of a piece alone.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import numpy as np

from lpot.core.backend import Caching, InPlaceCache
from lpot.core.batch import InputSpec
from lpot.core.errors import DataError
from lpot.core.model import Model
from lpot.jobs.decoder.inputs import feeds, is_cache

PIECE = 256  # tokens; with fewer the products become slower, with more the attention


class Reader(Protocol):
    """A decoder in the middle of a text."""

    def call(self, ids: np.ndarray, past: int) -> Callable[[], np.ndarray]:
        """What reads these tokens ([rows, tokens]) behind so many others, and gives logits: those
        of the last token are the last of them.

        The tokens before are those of the calls before; where there were none, zeros. May be
        called again and again: that is how a phase is timed.
        """
        ...


def reader(model: Model, rows: int, room: int) -> Reader:
    """For texts of at most `room` tokens."""
    specs = tuple(model.inputs or ())
    backend: Any = model.backend
    if isinstance(backend, Caching):
        cache = backend.in_place(model, rows, room)
        if cache is not None:
            return _InPlace(cache, [spec for spec in specs if not is_cache(spec)])
    return _Copied(model, specs)


class _InPlace:
    def __init__(self, cache: InPlaceCache, specs: Sequence[InputSpec]) -> None:
        self.cache, self.specs = cache, specs

    def call(self, ids: np.ndarray, past: int) -> Callable[[], np.ndarray]:
        step = PIECE if len(ids) == 1 else ids.shape[1]  # of several rows the runtime takes no more
        pieces = [(at, ids[:, at : at + step]) for at in range(0, ids.shape[1], step)]
        if len(pieces) == 1:  # bound once: binding a token takes as long as a product
            self.cache.bind(feeds(self.specs, ids, past), ids.shape, past)
            return self.cache.run

        def run() -> np.ndarray:
            for at, piece in pieces:
                self.cache.bind(feeds(self.specs, piece, past + at), piece.shape, past + at)
                logits = self.cache.run()
            return logits

        return run


class _Copied:
    """Each call gives a new cache, a position longer for each token."""

    def __init__(self, model: Model, specs: Sequence[InputSpec]) -> None:
        self.model, self.specs = model, specs
        self._outputs: list[Any] = []
        self._length = 0

    def call(self, ids: np.ndarray, past: int) -> Callable[[], np.ndarray]:
        inputs = feeds(self.specs, ids, past)
        if self._outputs and self._length == past:
            caches = [spec.name for spec in self.specs if is_cache(spec)]
            made = kept_in(caches, self.model.output_names)
            inputs |= {name: self._outputs[at] for name, at in made.items()}

        def run() -> np.ndarray:
            self._outputs = self.model.backend.run(self.model, inputs)
            self._length = past + ids.shape[1]
            return np.asarray(self._outputs[0])

        return run


def kept_in(caches: Sequence[str], outputs: Sequence[str]) -> dict[str, int]:
    """Of each cache, the place of the output that goes into it next: the one with the same layer
    and the same part in its name.

    >>> kept_in(["past.0.key", "past.0.value"], ["logits", "present_value_0", "present_key_0"])
    {'past.0.key': 2, 'past.0.value': 1}
    """
    places = {
        _part(name): at
        for at, name in enumerate(outputs)
        if any(word in name for word in ("present", "past", "cache"))
    }
    missing = [name for name in caches if _part(name) not in places]
    if missing or len({_part(name) for name in caches}) < len(caches):
        raise DataError(
            f"no output of the model continues the cache {(missing or list(caches))[0]!r}: there "
            f"are {', '.join(outputs)}"
        )
    return {name: places[_part(name)] for name in caches}


def _part(name: str) -> tuple[tuple[str, ...], bool]:
    """The layer, and whether it is the values, as any exporter names them."""
    rest = re.sub(r"past_key_values|present_key_values|key_values|key_value", "", name)
    words = re.findall(r"[a-z]+|\d+", rest.lower())
    layer = tuple(word for word in words if word.isdigit())
    return layer, any(word in ("v", "value", "values") for word in words)
