"""Every format is tried and timed on the CPU at hand before it may be used.

A kernel may be missing, wrong, or a trap: on some CPUs a format of fewer bits is thirty times
slower than FP32. A format is timed in turns with FP32: what disturbs the machine for a while, or
takes a core from it, slows both, and what counts is the share of FP32's time. Shares are kept for
the machine, so that each shape is timed once.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from onnx import TensorProto, helper
from onnxruntime import OrtValue

from lpot.backends.onnx.build import build_graph
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.plan import Plan
from lpot.backends.onnx.run import ORT_ERRORS, session
from lpot.backends.onnx.weight_only.emit import Stored, emit
from lpot.backends.onnx.weight_only.formats import format_of, label
from lpot.core.errors import UnsupportedModel, first_line
from lpot.core.files.timetable import Timetable
from lpot.core.measure import latency, quiet_clock
from lpot.core.recipe import FP32, OpConfig
from lpot.core.weight_only.grid import Format, Rounded

logger = logging.getLogger(__name__)

FAILURES: tuple[type[Exception], ...] = (UnsupportedModel, *ORT_ERRORS)
SECONDS = 0.03  # of a turn
ROUNDS = 7  # turns of each; the median of their ratios is not moved by three that were disturbed
# Bytes of FP32 weights that a token is timed on: a decoder's fit in no cache, not even in 4 bits.
CACHE = 1 << 28
MOST_COPIES = 512
PROMPT_COPIES, PROMPT_BYTES = 8, 1 << 26
TOLERANCE = 0.05  # of the outputs' amplitude: products of 8-bit activations are off by a per cent
SLOWER = 1.0  # of FP32's time, from which on a format does not pay


@dataclass(frozen=True)
class Times:
    """Seconds of one product: for one token, and for a prompt."""

    token: float
    prompt: float

    def mix(self, whole: Times, share: float) -> float:
        """As a share of the whole model's times, the prompt's weighed by `share`."""
        return (1 - share) * self.token / whole.token + share * self.prompt / whole.prompt


class Guard:
    """Times by shape and format. What it refuses, and why, is in `refused`."""

    def __init__(self, versions: Mapping[str, str], prompt_length: int) -> None:
        self.table = Timetable.of_this_machine(versions)
        self.prompt_length = prompt_length
        self.refused: dict[str, str] = {}  # format → why
        self._turns: dict[tuple[int, int, int], Callable[[], float]] = {}

    def times(self, columns: int, rows: int, config: OpConfig) -> Times | None:
        """None where the format is not available or wrong here."""
        # However it was rounded, a format takes the same time.
        word = re.sub(r"-(gptq|awq|learned|signround)$", "-rtn", label(config))
        name = f"{word} {columns}x{rows}"
        lone = _Lone(columns, rows, config)
        try:
            if self.table.seconds(f"product {name} right", lone.is_right) == 0.0:
                self.refused[label(config)] = "its kernel gives wrong results here"
                return None
            return Times(*(self._seconds(lone, name, tokens) for tokens in (1, self.prompt_length)))
        except FAILURES as error:
            self.refused[label(config)] = f"it has no kernel here ({first_line(error)})"
            return None

    def _seconds(self, lone: _Lone, name: str, tokens: int) -> float:
        word = "token" if tokens == 1 else str(tokens)
        plain = f"turns fp32 {lone.columns}x{lone.rows} {word}"
        whole = self.table.seconds(plain, lambda: self._plain(lone, tokens)())
        if lone.config.is_float:
            return whole
        share = self.table.seconds(f"turns {name} {word}", lambda: self._share(lone, tokens, plain))
        return share * self.table.seconds(plain, lambda: whole)

    def _plain(self, lone: _Lone, tokens: int) -> Callable[[], float]:
        """A turn of FP32. Of the last shape asked for, the session is kept for all formats."""
        key = lone.columns, lone.rows, tokens
        if key not in self._turns:
            shape = lone.columns, lone.rows
            self._turns = {k: turn for k, turn in self._turns.items() if k[:2] == shape}
            self._turns[key] = replace(lone, config=FP32).turn(tokens)
        return self._turns[key]

    def _share(self, lone: _Lone, tokens: int, plain: str) -> float:
        """Of FP32's time, in turns with it."""
        fp32, low = self._plain(lone, tokens), lone.turn(tokens)
        pairs = [(low(), fp32()) for _ in range(ROUNDS)]
        self.table.lower(plain, min(pair[1] for pair in pairs))
        return float(np.median([mine / whole for mine, whole in pairs]))

    def allows(self, columns: int, rows: int, config: OpConfig, share: float) -> bool:
        """Is it right here, and no slower than FP32 in the mix of phases asked for?"""
        if config.is_float:
            return True
        found = self.times(columns, rows, config)
        plain = self.times(columns, rows, FP32)  # which is timed again beside each format
        if plain is None or found is None:
            return found is not None
        if found.mix(plain, share) <= SLOWER:
            return True
        slow = f"{1 / found.mix(plain, share):.2f} of FP32's speed with {columns} x {rows}"
        self.refused.setdefault(label(config), slow)
        return False

    def save(self) -> None:
        self._turns = {}
        self.table.save()


@dataclass(frozen=True, eq=False)
class _Lone:
    """One product by itself, with weights of its own."""

    columns: int
    rows: int
    config: OpConfig

    def is_right(self) -> float:
        """1 where the kernel agrees with the definition, else 0."""
        x = _inputs(1, 3, self.columns)
        (found,) = session(self._graph(1)).run(None, x)
        truth = x["x0"] @ (self._stored().values().T if self._is_rounded else self._weight())
        return float(np.abs(found - truth).max() <= TOLERANCE * np.abs(truth).max())

    def turn(self, tokens: int) -> Callable[[], float]:
        """What times a call, over and over for a moment, and gives the seconds of one product."""
        copies = self._copies(tokens)
        opened = session(self._graph(copies), takes_turns=True)
        # Bound once: handing over hundreds of arrays takes as long as the products themselves.
        binding = opened.io_binding()
        for name, array in _inputs(copies, tokens, self.columns).items():
            binding.bind_ortvalue_input(name, OrtValue.ortvalue_from_numpy(array))
        for at in range(copies):
            made = OrtValue.ortvalue_from_shape_and_type([tokens, self.rows], np.float32)
            binding.bind_ortvalue_output(f"y{at}", made)

        def timed() -> float:
            call = partial(opened.run_with_iobinding, binding)
            timing = latency(call, warmup=1, seconds=SECONDS, minimum=1, clock=quiet_clock())
            return timing.minimum / copies

        return timed

    def _copies(self, tokens: int) -> int:
        """So many that a token's weights come from memory; that a prompt's product is one among
        others, with threads that are awake."""
        size = self.columns * self.rows * 4
        if tokens == 1:
            return max(1, min(MOST_COPIES, CACHE // size))
        size += tokens * (self.columns + self.rows) * 4
        return max(1, min(PROMPT_COPIES, MOST_COPIES, PROMPT_BYTES // size))

    @property
    def _is_rounded(self) -> bool:
        return self.config.mode == "weight_only"

    def _weight(self) -> np.ndarray:
        rng = np.random.default_rng(0)
        return rng.standard_normal((self.columns, self.rows)).astype(np.float32)

    def _stored(self) -> Stored:
        return Stored(_random(self.rows, self.columns, format_of(self.config)))

    def _graph(self, copies: int) -> Graph:
        """The product so many times over.

        Each has its own input: rounding of a shared one would be done once for all. Each has its
        own weight, too, or it would be read from the cache; and as the runtime packs weights of
        equal content once, they differ.
        """
        every = range(copies)
        nodes = [
            helper.make_node("MatMul", [f"x{at}", f"w{at}"], [f"y{at}"], name=f"op{at}")
            for at in every
        ]
        shape = [None, self.columns]
        given = [helper.make_tensor_value_info(f"x{at}", TensorProto.FLOAT, shape) for at in every]
        made = [helper.make_tensor_value_info(f"y{at}", TensorProto.FLOAT, None) for at in every]
        opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
        header = helper.make_model(
            helper.make_graph([], "lone", given, made), opset_imports=opsets, ir_version=10
        )
        if self._is_rounded:
            unused = np.broadcast_to(np.float32(0), (self.columns, self.rows))
            graph = Graph(header, tuple(nodes), {f"w{at}": unused for at in every})
            stored = self._stored()
            graph = emit(graph, {f"op{at}": stored for at in every})
            turned = {name: np.roll(a, at) for at, (name, a) in enumerate(graph.weights.items())}
            return Graph(graph.header, graph.nodes, turned if copies > 1 else graph.weights)
        weight = self._weight()
        graph = Graph(header, tuple(nodes), {f"w{at}": np.roll(weight, at) for at in every})
        if self.config.is_float:
            return graph
        plan = Plan({}, {f"op{at}": self.config for at in every}, {}, {}, {})
        return build_graph(graph, plan, {}, {})


def _inputs(copies: int, tokens: int, columns: int) -> dict[str, np.ndarray]:
    rng = np.random.default_rng(1)
    shape = (tokens, columns)
    return {f"x{at}": rng.standard_normal(shape).astype(np.float32) for at in range(copies)}


def _random(rows: int, columns: int, fmt: Format) -> Rounded:
    """Any codes will do to see whether a kernel is right and how long it takes."""
    rng = np.random.default_rng(1)
    codes = rng.integers(0, fmt.top + 1, (rows, columns), np.uint8)
    groups = (rows, fmt.groups(columns))
    scales = rng.uniform(0.01, 0.02, groups).astype(np.float32)
    zeros = None if fmt.symmetric else rng.integers(0, fmt.top + 1, groups, np.uint8)
    return Rounded(fmt, codes, scales, zeros)
