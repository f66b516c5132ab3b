"""OpenVINO: the files of ONNX's backend, run by another runtime. Its abilities are its own."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from lpot.backends.onnx import OnnxBackend
from lpot.backends.onnx.abilities import Kernels, worst_case
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.model import EMBED_LIMIT, OnnxModel
from lpot.backends.onnx.save import write
from lpot.backends.openvino.profile import gains, profile
from lpot.backends.openvino.session import Floats, Session, has_bf16, versions, write_ir
from lpot.core.backend import Approach, Backend, Observations, Target
from lpot.core.batch import Inputs
from lpot.core.errors import ConfigError
from lpot.core.recipe import OpKey, Recipe
from lpot.core.results.profile import OpTime
from lpot.core.space import Capability

logger = logging.getLogger(__name__)

FLOATS: Mapping[str, Floats] = {"": "f32", "bf16": "bf16", "fp16": "f16"}


class OpenvinoBackend(OnnxBackend):
    """Inspects, observes and builds as ONNX's backend does; opens, times and probes by itself."""

    name = "openvino"
    over = "onnx"
    stores_halves = ""
    kernels = Kernels(("MatMul", "Gemm", "Conv"), ("Sigmoid", "LeakyRelu"), silu="")

    def __init__(self) -> None:
        self.floats = ("bf16",) if has_bf16() else ()

    def for_approach(self, approach: Approach, settings: Mapping[str, Any]) -> Backend[Any]:
        if approach == "weight_only":
            raise ConfigError(
                "weights in few bits are run by ONNX Runtime: leave out runtime: openvino",
                path="model.runtime",
            )
        if approach == "dynamic":
            raise ConfigError(
                "OpenVINO only emulates dynamically quantized ONNX models, slower than FP32: use "
                "static quantization, or another runtime",
                path="quantization.approach",
            )
        return self

    def open(self, graph: Graph, recipe: Recipe | None = None, times: bool = False) -> Session:
        floats = FLOATS["" if recipe is None else recipe.repairs.floats]
        if graph.nbytes < EMBED_LIMIT:
            return Session(graph.embedded().SerializeToString(), floats, times)
        with TemporaryDirectory(prefix="lpot-") as folder:  # the weights are read while it opens
            path = write(graph, Path(folder) / "model.onnx")
            return Session(os.fspath(path), floats, times)

    def open_file(self, path: Path, recipe: Recipe | None = None) -> Session:
        return Session(os.fspath(path), FLOATS["" if recipe is None else recipe.repairs.floats])

    def convert(self, source: Path, target: Path) -> None:
        """An ONNX file as IR: the target, and its weights in a .bin beside it."""
        write_ir(source, target)

    def inspect(
        self, model: OnnxModel, approach: Approach = "static", target: Target = "this"
    ) -> Capability:
        """Static configs alone: what ONNX calls dynamic is only emulated."""
        return super().inspect(model, "static" if approach == "auto" else approach, target)

    def build(
        self, model: OnnxModel, recipe: Recipe, observations: Observations | None = None
    ) -> OnnxModel:
        built = super().build(model, recipe, observations)
        if word := recipe.repairs.floats:
            ops = built.precisions or dict.fromkeys(recipe.ops, "fp32")
            built.precisions = {key: word if was == "fp32" else was for key, was in ops.items()}
        return built

    def restore(self, path: Path) -> OnnxModel:
        model = super().restore(path)
        word = "" if model.recipe is None else model.recipe.repairs.floats
        if word == "bf16" and not has_bf16():
            logger.warning(
                "%s: what stays float was tuned to run in bf16, and this CPU has no bf16: it runs "
                "in f32 here, more exactly and up to twice as long",
                path,
            )
        return model

    def profile(self, model: OnnxModel, inputs: Inputs, runs: int) -> tuple[OpTime, ...]:
        opened = self.open(model.graph, model.recipe, times=True)
        return profile(opened, model, inputs, runs)

    def gains(
        self, model: OnnxModel, recipe: Recipe, observations: Observations
    ) -> dict[OpKey, float]:
        return gains(self, model, recipe, observations)

    def in_place(self, model: OnnxModel, rows: int, room: int) -> None:
        """ONNX Runtime's alone."""

    def worst_error(self, kind: str) -> float:
        return _worst_error("Conv" if kind.startswith("Conv") else "MatMul")

    def versions(self) -> dict[str, str]:
        return {**super().versions(), **versions()}

    def usage(self, model: OnnxModel, path: Path) -> str:
        floats = FLOATS["" if model.recipe is None else model.recipe.repairs.floats]
        hint = f'{{"INFERENCE_PRECISION_HINT": "{floats}"}}'
        return (
            "import openvino\n"
            f'model = openvino.Core().compile_model("{path}", "CPU", {hint})\n'
            "outputs = model(inputs)"
        )


@lru_cache
def _worst_error(kind: str) -> float:
    """The worst case through the kernels of this runtime."""
    proto, data, truth = worst_case(kind)
    (result,) = Session(proto).run(None, {"x": data})
    return float(np.abs(result / truth - 1.0).max())
