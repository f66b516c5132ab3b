"""The handle of an ONNX model: graph as given, graph to build from, session on demand."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from lpot.backends.onnx.build import WeightCache
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.run import input_specs
from lpot.core.batch import Inputs, InputSpec
from lpot.core.cpu import give_back
from lpot.core.model import Model
from lpot.core.recipe import OpKey, Recipe
from lpot.core.repairs import Repairs

if TYPE_CHECKING:
    from lpot.backends.onnx import OnnxBackend
    from lpot.backends.onnx.bodies import Body

# Protobuf's limit is 2 GiB; some room is left for the nodes.
EMBED_LIMIT = 2**31 - 2**27
LARGE = 2**27  # bytes of weights, of which no more is held than is needed at a time


class OnnxModel(Model):
    """`graph` is what runs. `prepared` is what trials are built from (the FP32 model only)."""

    native_hint = (
        ", which onnxruntime.InferenceSession(model.SerializeToString()) runs; a function marked "
        "@lpot.takes_session gets the session itself"
    )

    def __init__(
        self,
        backend: OnnxBackend,
        graph: Graph,
        prepared: Graph | None = None,
        recipe: Recipe | None = None,
        precisions: Mapping[OpKey, str] | None = None,
        source: str = "",
        probe: Inputs | None = None,
    ) -> None:
        self.backend: OnnxBackend = backend
        self.graph = graph
        self.prepared = prepared if prepared is not None else graph
        self.recipe = recipe
        self.precisions = precisions or {}  # what each op really became, after islands were dropped
        self.source = source
        self.probe = probe  # one batch of inputs, to verify what is saved
        self.caches: dict[Repairs, WeightCache] = {}  # repairs → weights quantized so far
        self.bodies: tuple[Body, ...] = ()  # of If, Loop and Scan, to build from (FP32 only)
        self._session: Any = None
        self._folder: tempfile.TemporaryDirectory[str] | None = None

    @property
    def session(self) -> Any:
        """ONNX Runtime's, or what a backend over these files opens in its place."""
        if self._session is None:
            self._session = self.backend.open(self.graph, self.recipe)
        return self._session

    def rest(self) -> None:
        """Let go of a large model's session, which holds its weights a second time, packed."""
        if self.nbytes > LARGE:
            self._session = None
            give_back()

    @property
    def runner(self) -> Any:
        return self.session

    @cached_property
    def native(self) -> Any:
        """A self-contained ModelProto; a path where the weights are too big for one.

        For a model of another framework, tuned here as a file: an object like the one given.
        """
        if self.backend.present is not None:
            return self.backend.present(self)
        if self.nbytes < EMBED_LIMIT:
            self.rest()
            return self.graph.embedded()
        if self.source and self.recipe is None:
            return self.source
        from lpot.backends.onnx.save import write

        self._folder = tempfile.TemporaryDirectory(prefix="lpot-")
        return str(write(self.graph, Path(self._folder.name) / "model.onnx"))

    @property
    def model_proto(self) -> onnx.ModelProto | str:
        return self.native

    @cached_property
    def inputs(self) -> tuple[InputSpec, ...]:
        return input_specs(self.graph)

    @property
    def input_names(self) -> tuple[str, ...]:
        return self.graph.inputs

    @property
    def output_names(self) -> tuple[str, ...]:
        return self.graph.outputs

    @property
    def nbytes(self) -> int:
        return self.graph.nbytes

    def export_onnx(self, path: str | Path, inputs: Inputs | None = None) -> Path:
        """The model as a file for any runtime that reads ONNX; `inputs` are not needed."""
        from lpot.backends.onnx.save import plain, write

        return write(plain(self.graph), Path(path))

    def fingerprint(self) -> str:
        return self.graph.fingerprint()

    def close(self) -> None:
        self._session = None
        self.__dict__.pop("native", None)
        if self._folder is not None:
            self._folder.cleanup()
            self._folder = None
