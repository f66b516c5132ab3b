"""MXNet 1.9: models of a framework that is no longer developed, on oneDNN's INT8 kernels."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from lpot.backends.mxnet import abilities
from lpot.backends.mxnet import load as loading
from lpot.backends.mxnet import save as saving
from lpot.backends.mxnet.build import build_network
from lpot.backends.mxnet.graph import grouped
from lpot.backends.mxnet.inspect import inspect
from lpot.backends.mxnet.model import MxnetModel
from lpot.backends.mxnet.observe import observe
from lpot.backends.mxnet.run import feed
from lpot.backends.mxnet.runtime import mx
from lpot.core.backend import Approach, Backend, ModelSpec, Observations, Target
from lpot.core.batch import Inputs
from lpot.core.errors import CalibrationError
from lpot.core.recipe import Recipe
from lpot.core.space import Capability


class MxnetBackend(Backend[MxnetModel]):
    name = "mxnet"
    best_name = "best_model-symbol.json"

    def load(self, source: Any, spec: ModelSpec = ModelSpec()) -> MxnetModel:
        if isinstance(source, MxnetModel):
            return source
        loaded = loading.load(source, spec)
        return MxnetModel(self, loaded.network, loaded.block)

    def inspect(
        self, model: MxnetModel, approach: Approach = "static", target: Target = "this"
    ) -> Capability:
        return inspect(model, approach, target)

    def observe(
        self, model: MxnetModel, batches: Iterable[Inputs], sizes: Sequence[int] = (0,)
    ) -> dict[int, Observations]:
        return observe(model, batches, sizes)

    def build(
        self, model: MxnetModel, recipe: Recipe, observations: Observations | None = None
    ) -> MxnetModel:
        if not recipe.low_ops:
            return MxnetModel(self, model.network, model.block, recipe)
        if observations is None:
            raise CalibrationError("static quantization needs calibration data")
        network, precisions = build_network(model.even, model.fusion, recipe, observations.tensors)
        probe = feed(network, observations.probe[0]) if observations.probe else None
        return MxnetModel(self, network, model.block, recipe, precisions, probe)

    def run(self, model: MxnetModel, inputs: Inputs) -> list[np.ndarray]:
        return model.run(feed(model.network, inputs))

    def save(self, model: MxnetModel, path: Path) -> Path:
        return saving.save(model, path)

    def restore(self, path: Path) -> MxnetModel:
        return saving.restore(self, path)

    def versions(self) -> dict[str, str]:
        return {"mxnet": mx.__version__}

    def worst_error(self, kind: str) -> float:
        return abilities.worst_error(kind) if kind in abilities.COMPUTE else 0.0

    def overflow(self, model: MxnetModel, recipe: Recipe | None) -> str:
        """Depthwise convolutions use all 8 bits on every CPU: their kernels sum in 32."""
        if recipe is None:
            return ""
        summed_wide = grouped(model.network.symbol)
        narrow = {key: op for key, op in recipe.ops.items() if key.name not in summed_wide}
        return super().overflow(model, replace(recipe, ops=narrow))
