"""A training function that returns another model than the one it was given: that is the trained."""

from __future__ import annotations

import hashlib
from typing import Any

from lpot.core.compress.weight_store import WeightStore
from lpot.core.errors import LpotError, TrainingError
from lpot.jobs.component.records import as_native

# What frameworks raise for weights of other names, numbers or shapes.
_MISFITS = (RuntimeError, ValueError, KeyError, TypeError)


def other_model(backend: Any, native: Any, returned: Any) -> Any:
    """The model that was returned, unless it is the one that was given, or no model at all.

    Functions also return losses, histories or nothing.
    """
    found = as_native(returned)
    inner = [getattr(found, name, None) for name in ("module", "_orig_mod")]
    if found is None or any(each is native for each in (found, *inner)):
        return None
    try:
        backend.weight_store(found)
    except (LpotError, *_MISFITS):
        return None
    return found


def take_over(backend: Any, store: WeightStore, other: Any, who: str) -> str:
    """Its weights, into the model that was given; gives what to tell about that."""
    try:
        store.restore(backend.weight_store(other).snapshot())
    except _MISFITS as error:
        raise TrainingError(
            f"{who} returned a model whose weights differ in name or shape from those of the one "
            f"it was given: train that in place, or a copy of it ({error})"
        ) from error
    return f"{who} returned another model than the one it was given: its weights were taken over"


def digest(store: WeightStore) -> str:
    """The same as long as no weight changes."""
    found = hashlib.sha256()
    for name in store.names():
        found.update(store.read(name).tobytes())
    return found.hexdigest()
