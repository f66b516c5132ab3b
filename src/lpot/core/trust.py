"""Models that act: what touches files or calls Python is refused unless it is trusted."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator

VARIABLE = "LPOT_TRUST"  # in the environment, so that processes which measure models know it, too


def is_trusted() -> bool:
    return os.environ.get(VARIABLE) == "1"


@contextlib.contextmanager
def trusting(given: bool) -> Iterator[None]:
    """In this block models may act, if `given`."""
    before = os.environ.get(VARIABLE)
    if given:
        os.environ[VARIABLE] = "1"
    try:
        yield
    finally:
        if given and before is None:
            os.environ.pop(VARIABLE, None)
        elif given and before is not None:
            os.environ[VARIABLE] = before
