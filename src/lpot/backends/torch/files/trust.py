"""Which captured parts compute what the original does, seen on calibration data."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch

from lpot.backends.torch.data import tensors
from lpot.backends.torch.files.program import Program
from lpot.backends.torch.run import CALL_ERRORS

COMPARED_CALLS = 2  # how often a captured part is compared with the original

Aside = Callable[[], AbstractContextManager[None]]  # what happens there is not of the model


class Trust:
    """A part is trusted once it was compared, and until something speaks against it."""

    def __init__(self) -> None:
        self._compared: dict[str, int] = {}
        self._refused: set[str] = set()
        self._active: list[str] = []

    @property
    def trusted(self) -> set[str]:
        return set(self._compared) - self._refused

    def begin(self) -> None:
        """A new batch: what an error left under way is over."""
        self._active.clear()

    def refuse(self, part: str) -> None:
        self._refused.add(part)

    def refused(self, part: str) -> bool:
        return part in self._refused

    def is_proven(self, part: str) -> bool:
        """Was it compared as often as it is going to be, without a difference?"""
        return self._compared.get(part, 0) >= COMPARED_CALLS and part not in self._refused

    def check_caller(self, part: str | None) -> None:
        """An op of the part runs: is somebody calling it past the part that it was captured in?"""
        if part is not None and part not in self._active:
            self.refuse(part)

    @contextmanager
    def inside(self, part: str) -> Iterator[None]:
        self._active.append(part)
        try:
            yield
        finally:
            self._active.pop()

    def compare(self, part: str, program: Program, args: Any, kwargs: Any, aside: Aside) -> Any:
        """The part's output; the first times it is the original's, should they differ."""
        times = self._compared.get(part, 0)
        if times >= COMPARED_CALLS:
            return program(*args, **kwargs)
        with aside():
            values, named = map(_copy, args), {key: _copy(item) for key, item in kwargs.items()}
            truth = type(program.module).forward(program.module, *values, **named)
        self._compared[part] = times + 1
        try:
            found = program(*args, **kwargs)
        except CALL_ERRORS:
            found = None
        with aside():
            if same_outputs(truth, found):
                return found
        self.refuse(part)
        return truth


def _copy(value: Any) -> Any:
    return value.clone() if isinstance(value, torch.Tensor) else value


def same_outputs(truth: Any, found: Any) -> bool:
    left, right = list(tensors(truth)), list(tensors(found))
    if len(left) != len(right) or type(truth) is not type(found):
        return False
    return all(
        a.shape == b.shape
        and a.dtype == b.dtype  # under autocast a captured part computes in other precisions
        and torch.allclose(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)
        for a, b in zip(left, right, strict=True)
    )
