"""Giving memory back to the system once a big model is done with."""

from __future__ import annotations

import ctypes
import gc
from functools import cache
from typing import Any


def give_back() -> None:
    """Freed memory stays with the process until the allocator is told to return it."""
    gc.collect()
    trim = _trim()
    if trim is not None:
        trim(0)


@cache
def _trim() -> Any:
    """glibc's malloc_trim; None where the C library is another."""
    try:
        return ctypes.CDLL(None).malloc_trim
    except (AttributeError, OSError, TypeError):
        return None
