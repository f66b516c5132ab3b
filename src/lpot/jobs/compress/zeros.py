"""The zeros of a model that was pruned before it is trained on: they stay."""

from __future__ import annotations

from typing import Any

from lpot.core.compress.prunable import Sparsifiable
from lpot.core.compress.pruners import Pruners, PrunerSpec
from lpot.core.compress.schedule import Schedule
from lpot.core.compress.sparsity import count_zeros

FEW = 0.05  # of a weight: training leaves next to none that are exactly zero


def zeros_of(backend: Any, native: Any) -> Pruners | None:
    """Hooks that hold them; None where the model has none, or the backend can't tell."""
    if not isinstance(backend, Sparsifiable):
        return None
    store = backend.weight_store(native)
    found = count_zeros({name: store.read(name) for name in store.names()})
    # A weight of nothing but zeros is one that is still to be trained.
    names = tuple(layer.name for layer in found.layers if FEW <= layer.share < 1)
    if not names:
        return None
    locked = Pruners([PrunerSpec("pattern_lock", Schedule(0.0, 0.0, 0, 1), names)], store)
    locked.on_epoch_begin(0)
    return locked
