"""The sparsest state of a model in training that met the bar."""

from __future__ import annotations

from dataclasses import asdict
from typing import Any

from lpot.core.compress.resume import Kept
from lpot.core.compress.sparsity import LayerSparsity, Sparsity
from lpot.core.compress.weight_store import WeightStore


class Best:
    """Empty until something is remembered; it goes into a training's file."""

    def __init__(self, store: WeightStore) -> None:
        self._store = store
        self.snapshot: Any = None
        self.sparsity = Sparsity(())
        self.accuracy = 0.0

    def remember(self, sparsity: Sparsity, accuracy: float) -> None:
        """The model as it is now."""
        self.snapshot = self._store.snapshot()
        self.sparsity, self.accuracy = sparsity, accuracy

    def kept(self) -> Kept:
        if self.snapshot is None:
            return Kept({}, {})
        layers = [asdict(layer) for layer in self.sparsity.layers]
        facts = {"accuracy": self.accuracy, "layers": layers}
        return Kept(self._store.packed(self.snapshot), facts)

    def take(self, kept: Kept) -> None:
        if not kept.arrays:
            return
        layers = [{**layer, "shape": tuple(layer["shape"])} for layer in kept.facts["layers"]]
        self.sparsity = Sparsity(tuple(LayerSparsity(**layer) for layer in layers))
        self.accuracy = float(kept.facts["accuracy"])
        self.snapshot = self._store.unpacked(kept.arrays)
