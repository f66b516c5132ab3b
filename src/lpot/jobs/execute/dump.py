"""Values written for processes of our own, never for a file that stays."""

from __future__ import annotations

import importlib.util
import pickle
from typing import Any

DUMP_ERRORS = (
    pickle.PicklingError,
    TypeError,
    AttributeError,
    NotImplementedError,
    RuntimeError,
)


def dump(value: Any) -> bytes:
    """Raises one of DUMP_ERRORS for what can't be sent."""
    # Functions of a notebook, and those inside others, need more than the standard library does.
    found = importlib.util.find_spec("cloudpickle")
    pickler: Any = pickle if found is None else importlib.import_module("cloudpickle")
    dumped: bytes = pickler.dumps(value)
    return dumped
