"""The tensors of a transformers object, and note of what was asked for of any."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from lpot.core.batch import as_array

_BUFFER = re.compile(r"\binv_freq$|\bmasked_bias$|\b(attn|attention)\.bias$")


class ObjectTensors(Mapping[str, np.ndarray]):
    """The state dict of a module as float32 arrays, made when asked for."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state = state

    def __getitem__(self, name: str) -> np.ndarray:
        return np.asarray(as_array(self._state[name]), np.float32)

    def __contains__(self, name: object) -> bool:
        return name in self._state

    def __iter__(self) -> Iterator[str]:
        return iter(self._state)

    def __len__(self) -> int:
        return len(self._state)


class NotedTensors(Mapping[str, np.ndarray]):
    """The same, with note of what was asked for."""

    def __init__(self, tensors: Mapping[str, np.ndarray]) -> None:
        self._tensors = tensors
        self._asked: set[str] = set()

    def __getitem__(self, name: str) -> np.ndarray:
        found = self._tensors[name]
        self._asked.add(name)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    @property
    def unread(self) -> list[str]:
        """Weights that nobody asked for; buffers that old versions stored are none."""
        return [name for name in self if name not in self._asked and not _BUFFER.search(name)]
