"""A decoder whose KV cache stays where it is: a token is written behind the others, nothing is
copied.

The runtime's GroupQueryAttention writes into the past itself where past and present are one
buffer. That is how onnxruntime-genai runs a decoder, and what a token really takes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnxruntime as ort
from onnx import TensorProto

from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.run import ORT_ERRORS
from lpot.core.errors import DataError, first_line

# What a bound run raises has no class of its own.
FAILURES: tuple[type[Exception], ...] = (*ORT_ERRORS, RuntimeError)
ATTENTION = "GroupQueryAttention"
FLOATS = "tensor(float)"
PAST, PRESENT = (3, 4), (1, 2)  # inputs and outputs of the attention: keys, values


@dataclass(frozen=True)
class Cache:
    """One half of a layer's cache."""

    past: str
    present: str
    heads: int
    size: int  # of a head


def caches_of(graph: Graph) -> tuple[Cache, ...]:
    """All that a decoder keeps; empty where some of it can't stay in place, or there is none."""
    found = []
    for node in graph.nodes:
        if node.op_type != ATTENTION or len(node.input) <= max(PAST):
            continue
        for given, made in zip(PAST, PRESENT, strict=True):
            shape = graph.shapes.get(node.input[given]) or ()
            if len(shape) != 4 or not isinstance(shape[1], int) or not isinstance(shape[3], int):
                return ()
            if graph.types.get(node.input[given]) != TensorProto.FLOAT:
                return ()
            found.append(Cache(node.input[given], node.output[made], shape[1], shape[3]))
    # Every output behind the first must be a cache that some input continues, and no other.
    complete = set(graph.outputs[1:]) == {cache.present for cache in found}
    single = len({cache.past for cache in found}) == len(found)
    known = all(cache.past in graph.inputs for cache in found)
    return tuple(found) if complete and single and known else ()


class InPlace:
    """A session with buffers for so many rows and positions."""

    def __init__(
        self, session: ort.InferenceSession, caches: tuple[Cache, ...], rows: int, room: int
    ) -> None:
        self.session, self.room = session, room
        self.binding = session.io_binding()
        self.answer = session.get_outputs()[0]
        self._logits = np.empty(0, np.float32)
        self._inputs: dict[str, np.ndarray] = {}  # the runtime reads them where they are
        self._buffers = {}
        for cache in caches:
            shape = (rows, cache.heads, room, cache.size)
            buffer = self._buffers[cache.past] = np.zeros(shape, np.float32)
            place = ("cpu", 0, np.float32, shape, buffer.ctypes.data)
            self.binding.bind_input(cache.past, *place)
            self.binding.bind_output(cache.present, *place)

    @classmethod
    def opened(
        cls, graph: Graph, session: ort.InferenceSession, rows: int, room: int
    ) -> InPlace | None:
        """None for a graph whose cache can't stay in place."""
        caches = caches_of(graph)
        answer = session.get_outputs()[0]
        if not caches or answer.type != FLOATS or not isinstance(answer.shape[-1], int):
            return None
        return cls(session, caches, rows, room)

    def bind(self, inputs: Mapping[str, np.ndarray], tokens: tuple[int, ...], past: int) -> None:
        """What is read next, without the cache: tokens, and the mask that says where they stand."""
        length = past + tokens[1]
        if length > self.room:
            raise DataError(f"there is room for {self.room} tokens in the cache, not for {length}")
        for name, array in inputs.items():
            kept = self._inputs[name] = np.ascontiguousarray(array)
            self.binding.bind_input(name, "cpu", 0, kept.dtype, kept.shape, kept.ctypes.data)
        shape = (*tokens, self.answer.shape[-1])
        if self._logits.shape != shape:
            self._logits = np.empty(shape, np.float32)
            place = ("cpu", 0, np.float32, shape, self._logits.ctypes.data)
            self.binding.bind_output(self.answer.name, *place)

    def run(self) -> np.ndarray:
        """The logits of what is bound; the next run writes into the same array."""
        try:
            self.session.run_with_iobinding(self.binding)
        except FAILURES as error:
            shapes = {name: value.shape for name, value in self._inputs.items()}
            raise DataError(f"ONNX Runtime failed on {shapes}: {first_line(error)}") from error
        return self._logits
