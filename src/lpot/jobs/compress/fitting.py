"""After more weights became zero: those that are left, fitted to what the full model gives."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lpot.core.blame import raised as blame
from lpot.core.compress.prunable import Fits
from lpot.core.compress.pruners import Pruners
from lpot.core.compress.samples import first_batches
from lpot.core.compress.training_data import TrainingData
from lpot.core.tune import guarded

SAMPLES, EACH = 256, 32  # of the training data, and of a batch: its columns are held at once


class Fitting:
    """Remembers the model as it came. Where it can't be fitted, that is told, once."""

    def __init__(
        self, backend: Fits, native: Any, loader: TrainingData, tell: Callable[[str], None]
    ) -> None:
        self._fit = backend.fitter(native)
        self._tell = tell
        # Now, before anything is trained: a run that goes on later sees the same.
        self._batches = guarded(lambda: first_batches(loader, SAMPLES, each=EACH))
        loader.set_epoch(0)

    def __call__(self, pruners: Pruners) -> None:
        batches = self._batches
        if isinstance(batches, Exception):  # the training will tell what is wrong with its data
            return
        found = guarded(lambda: self._fit(pruners.masks, batches))
        pruners.hold()
        if isinstance(found, Exception):
            self._batches = found
            self._tell(f"the weights that are left are not fitted before training: {blame(found)}")
