"""Randomness that belongs to a sample: the same seed, pass and sample give the same draw.

A random transform asks `generator()`. The loader opens a `drawing(...)` around each sample, so that
neither the order of threads nor the other samples change what is drawn.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

import numpy as np

DEFAULT_SEED = 1978


class _Draw:
    """A key, and the generator made from it when somebody asks: most pipelines draw nothing."""

    __slots__ = ("generator", "key")

    def __init__(self, key: tuple[int, ...]) -> None:
        self.key = key
        self.generator: np.random.Generator | None = None


_current: ContextVar[_Draw | None] = ContextVar("lpot_data_draw", default=None)
# Used outside of any loader, where there is no sample to tie the draw to.
_outside = np.random.default_rng(DEFAULT_SEED)


@contextmanager
def drawing(*key: int) -> Iterator[None]:
    """Tie all draws inside the block to `key`, e.g. (seed, pass, sample)."""
    token = _current.set(_Draw(key))
    try:
        yield
    finally:
        _current.reset(token)


def generator() -> np.random.Generator:
    """The generator of the sample at hand."""
    draw = _current.get()
    if draw is None:
        return _outside
    if draw.generator is None:
        draw.generator = np.random.default_rng(draw.key)
    return draw.generator
