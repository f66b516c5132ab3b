"""The FP32 model as trials are built from it: rewritten pass by pass, and computing the same.

What a pass promises is checked on made-up inputs each time: one that changes what the model
computes is left out, and said so.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnxruntime as ort

from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.passes.equalize_layers import equalize_layers
from lpot.backends.onnx.passes.fold_batchnorm import fold_batchnorm
from lpot.backends.onnx.passes.fold_constants import fold_constants
from lpot.backends.onnx.passes.fuse_matmul_bias import fuse_matmul_bias
from lpot.backends.onnx.passes.merge_reshapes import merge_reshapes
from lpot.backends.onnx.passes.move_guards import move_guards
from lpot.backends.onnx.passes.normalize_gemm import normalize_gemm
from lpot.backends.onnx.passes.pool_means import pool_means
from lpot.backends.onnx.passes.raise_opset import raise_opset
from lpot.backends.onnx.passes.reorder_gelu import reorder_gelu
from lpot.backends.onnx.passes.split_fused import split_fused
from lpot.backends.onnx.passes.spread_transposed_conv import spread_transposed_conv
from lpot.backends.onnx.passes.widen_halves import widen_halves
from lpot.backends.onnx.passes.write_as_matmul import write_as_matmul
from lpot.backends.onnx.run import ORT_ERRORS, input_specs, session
from lpot.core.batch import InputSpec
from lpot.core.errors import DataError, UnsupportedModel
from lpot.core.feed import synthetic
from lpot.core.ptq.distance import arrays

logger = logging.getLogger(__name__)

FAILS: tuple[type[Exception], ...] = (UnsupportedModel, *ORT_ERRORS)
Pass = Callable[[Graph], Graph]
PASSES: tuple[Pass, ...] = (
    raise_opset,
    split_fused,
    widen_halves,
    fold_constants,
    move_guards,
    write_as_matmul,
    fold_batchnorm,
    reorder_gelu,
    spread_transposed_conv,
    pool_means,
    normalize_gemm,
    equalize_layers,
    fuse_matmul_bias,
    merge_reshapes,
)
# Rounding apart, relative to the largest value of an output.
SAME, SAME_HALVES = 1e-3, 2e-2
NUDGE = 1e-6  # inputs and weights moved by so much show how far rounding alone takes a model
SIZES = (2, 32, 8, 64, 224, 1)  # tried for the dimensions that a model leaves open
LARGE = 65536  # values of one sample, from which on one is enough


def prepare(graph: Graph, running: ort.InferenceSession, passes: Sequence[Pass] = PASSES) -> Graph:
    """The graph rewritten by all passes; `running` is a session on it."""
    whole = graph
    for step in passes:
        whole = step(whole)
    if whole is graph:
        return graph
    probe = Probe.found(graph, running)
    if probe is None or probe.agrees(whole):
        return whole
    kept = graph
    for step in passes:
        made = step(kept)
        if made is kept or probe.agrees(made):
            kept = made
        else:
            logger.warning(
                "the rewrite %s would change what the model computes: left out. "
                "Please report this with the model",
                step.__name__,
            )
    return kept


class Probe:
    """What a model gives for made-up inputs, and whether a rewritten one gives the same."""

    def __init__(
        self, graph: Graph, running: ort.InferenceSession, feeds: dict[str, np.ndarray]
    ) -> None:
        self.graph, self.running, self.feeds = graph, running, feeds
        self.truth = _run(running, feeds)
        halves = any(array.dtype == np.float16 for array in graph.weights.values())
        self.tolerance = SAME_HALVES if halves else SAME

    @classmethod
    def found(cls, graph: Graph, running: ort.InferenceSession) -> Probe | None:
        """With the first inputs that the model takes; None where none of those tried is."""
        if _may_divide_by_zero(graph):
            return None
        for feeds in _guesses(input_specs(graph)):
            try:
                return cls(graph, running, feeds)
            except ORT_ERRORS:
                continue
        logger.info("no made-up inputs fit the model: its rewrites are not compared with it")
        return None

    def agrees(self, graph: Graph) -> bool:
        """Does the graph give what the model gives, as far as rounding lets one tell?"""
        try:
            found = _run(_plain(graph), self.feeds)
        except FAILS:
            return False
        error = apart(self.truth, found)
        return error <= self.tolerance or error <= 10 * self._rounding()

    def _rounding(self) -> float:
        """How far apart the model's own outputs are once inputs and weights are nudged.

        In a deep net of which little depends on the inputs, the weights' rounding is what grows.
        """
        random = np.random.default_rng(0)
        errors = [apart(self.truth, _run(self.running, self.feeds))]
        for _ in range(3):
            feeds = {name: _nudged(array, random) for name, array in self.feeds.items()}
            weights = {name: _nudged(array, random) for name, array in self.graph.weights.items()}
            moved = _plain(self.graph.replaced(self.graph.nodes, weights))
            errors.append(apart(self.truth, _run(moved, feeds)))
        return max(errors)


def _nudged(array: np.ndarray, random: np.random.Generator) -> np.ndarray:
    if array.dtype.kind != "f":
        return array
    factors = random.uniform(1 - NUDGE, 1 + NUDGE, array.shape)
    return np.asarray(array * factors, array.dtype)


def _plain(graph: Graph) -> ort.InferenceSession:
    """Without optimisation, which takes the longest, and whose fusions would be compared, too."""
    return session(graph, ort.GraphOptimizationLevel.ORT_DISABLE_ALL, packs=False)


def apart(truth: Sequence[Any], found: Sequence[Any]) -> float:
    """The largest difference, relative to the largest value of its output; inf for other forms."""
    worst = 0.0
    left, right = list(arrays(list(truth))), list(arrays(list(found)))
    if len(left) != len(right):
        return np.inf
    for one, other in zip(left, right, strict=True):
        if one.shape != other.shape or one.dtype.kind != other.dtype.kind:
            return np.inf
        if one.dtype.kind not in "fiub":
            worst = max(worst, 0.0 if np.array_equal(one, other) else np.inf)
            continue
        exact, near = one.astype(np.float64), other.astype(np.float64)
        if not np.array_equal(np.isfinite(exact), np.isfinite(near)):
            return np.inf
        sound = np.isfinite(exact)
        gap = np.abs(exact[sound] - near[sound]).max(initial=0.0)
        worst = max(worst, float(gap / max(np.abs(exact[sound]).max(initial=0.0), 1e-6)))
    return worst


def _run(running: ort.InferenceSession, feeds: dict[str, np.ndarray]) -> list[Any]:
    quiet = ort.RunOptions()
    quiet.log_severity_level = 4  # inputs that do not fit are no news
    return list(running.run(None, feeds, quiet))


def _guesses(specs: Sequence[InputSpec]) -> Iterator[dict[str, np.ndarray]]:
    """Inputs with the open dimensions set to one size after the other: the batch, then the rest."""
    if any(spec.shape is None or spec.dtype == "object" for spec in specs):
        return
    seen: set[tuple[tuple[int | str | None, ...], ...]] = set()
    fixed = [dim for spec in specs for dim in (spec.shape or ())[1:] if isinstance(dim, int)]
    for batch in (2, 1) if np.prod(fixed, dtype=np.float64) <= LARGE else (1, 2):
        for size in SIZES:
            sized = [replace(spec, shape=_sized(spec, batch, size)) for spec in specs]
            shapes = tuple(spec.shape or () for spec in sized)
            if shapes in seen:
                continue
            seen.add(shapes)
            try:
                yield synthetic(sized)
            except (DataError, MemoryError):
                return


def _sized(spec: InputSpec, batch: int, size: int) -> tuple[int, ...]:
    return tuple(
        dim if isinstance(dim, int) else (batch if axis == 0 else size)
        for axis, dim in enumerate(spec.shape or ())
    )


def _may_divide_by_zero(graph: Graph) -> bool:
    """A whole number divided by zero ends the process; on the user's data alone is that theirs."""
    floats = (0, 1, 10, 11, 16)
    return any(
        node.op_type in ("Div", "Mod")
        and graph.types.get(node.output[0], 0) not in floats
        and not graph.is_constant(node.input[1])
        for node in graph.nodes
    )
