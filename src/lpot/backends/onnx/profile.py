"""Time of every op as ONNX Runtime's own profiler has it, under the names of the model given."""

from __future__ import annotations

import json
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.model import OnnxModel
from lpot.backends.onnx.run import run_session, session
from lpot.core.batch import Inputs
from lpot.core.results.profile import OpTime, Role, quickest

WARMUP = 2
_ENDING = "_kernel_time"
# What the runtime adds to the name of a node that it has rewritten.
_ADDED = re.compile(r"^fused |(?:_token_\d+)?$")
_LOW = re.compile(
    r"^(QLinear|QGemm|QAttention|QEmbed|Q[A-Z]|DynamicQuantize|.*Integer|MatMulNBits)"
)
_MOVES = ("ReorderInput", "ReorderOutput", "QuantizeLinear", "DequantizeLinear")
_BLOCKED = "_nchwc"  # convolutions in the blocked layout go by their output's name
# What the runtime merges into a convolution before it.
_MERGED = ("Relu", "Clip", "LeakyRelu", "Sigmoid", "Tanh", "HardSigmoid", "BatchNormalization")


def profile(model: OnnxModel, inputs: Inputs, runs: int) -> tuple[OpTime, ...]:
    """The shortest time of each op over so many runs."""
    with tempfile.TemporaryDirectory(prefix="lpot-profile-") as folder:
        running = session(model.graph, profile_to=str(Path(folder) / "ops"))
        for _ in range(WARMUP + runs):
            run_session(running, model.inputs, inputs)
        events = json.loads(Path(running.end_profiling()).read_text("utf-8"))
    names = _Names(model.graph)
    turns = _turns(events, names)
    return quickest(turns[WARMUP:] or turns)


def _turns(events: list[dict[str, Any]], names: _Names) -> list[list[OpTime]]:
    """The ops by run: the runtime writes one event for each run after those of its ops."""
    found: list[list[OpTime]] = []
    current: list[OpTime] = []
    for event in sorted(events, key=lambda one: one.get("ts", 0) + one.get("dur", 0)):
        label = event.get("name", "")
        if event.get("cat") == "Node" and label.endswith(_ENDING):
            current.append(names.op(label.removesuffix(_ENDING), event))
        elif label == "model_run":
            found.append(current)
            current = []
    return [turn for turn in found if turn]


class _Names:
    """From the names of the runtime's nodes back to those of the graph."""

    def __init__(self, graph: Graph) -> None:
        self._nodes = {node.name: node for node in graph.nodes}
        self._makers: Mapping[str, Any] = {
            name: node for node in graph.nodes for name in node.output if name
        }

    def op(self, label: str, event: Mapping[str, Any]) -> OpTime:
        kind = str(event["args"].get("op_name", ""))
        name = self._known(label)
        # A transposition that the graph does not have is the runtime's change of layout.
        moves = kind in _MOVES or (kind == "Transpose" and name not in self._nodes)
        role: Role = "convert" if moves else "op"
        low = bool(_LOW.match(kind)) or kind in ("QuantizeLinear", "DequantizeLinear")
        seconds = event["dur"] * 1e-6
        return OpTime(name, kind, seconds, "int8" if low else "fp32", role)

    def _known(self, label: str) -> str:
        if label in self._nodes:
            return label
        name = _ADDED.sub("", label)
        if name in self._nodes:
            return name
        blocked = name.endswith(_BLOCKED)
        if blocked and name.removesuffix(_BLOCKED) in self._makers:
            return self._convolution(self._makers[name.removesuffix(_BLOCKED)])
        return name.removesuffix(_BLOCKED)

    def _convolution(self, node: Any) -> str:
        """The op that others were merged into."""
        while node.op_type in _MERGED and node.input and node.input[0] in self._makers:
            node = self._makers[node.input[0]]
        return str(node.name)
