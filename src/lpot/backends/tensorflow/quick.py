"""Sessions for a few runs, in which each run borrows the weights.

Written into a graph, weights are copied by its import, by the session, and by what the session
makes of its graph. What is fed stays where it lies.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from lpot.backends.tensorflow.run import import_graph, run_in, session_config
from lpot.backends.tensorflow.runtime import NodeDef, v1
from lpot.backends.tensorflow.structure.graph import Net, lightened
from lpot.backends.tensorflow.structure.nodes import full_name, value_of
from lpot.core.batch import Inputs

if TYPE_CHECKING:
    from lpot.backends.tensorflow.model import TensorflowModel

LENT = 1 << 14  # bytes of a constant that is fed
ALIGNED = 64  # bytes: TensorFlow copies what is fed from anywhere else


class QuickSession:
    """Runs a graph as it stands: to optimise it would cost more than a few runs save."""

    def __init__(self, net: Net) -> None:
        lent = {name: node for name, node in net.nodes.items() if is_lent(node)}
        self.graph = import_graph(lightened(net.header, net.nodes.values(), lent))
        self._weights = {full_name(name): _aligned(value_of(node)) for name, node in lent.items()}
        self._session = v1.Session(graph=self.graph, config=session_config(quick=True))

    def __enter__(self) -> QuickSession:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def run(self, fetches: Any, feeds: Mapping[str, Any] | None = None) -> Any:
        return self._session.run(fetches, {**self._weights, **(feeds or {})})

    def close(self) -> None:
        self._session.close()
        self._weights.clear()


def run_few(model: TensorflowModel, batches: Sequence[Inputs]) -> list[list[np.ndarray]]:
    """Outputs of each batch, from a session that takes less time and memory to open."""
    with QuickSession(model.net) as session:
        return [run_in(session, model, inputs) for inputs in batches]


def is_lent(node: NodeDef) -> bool:
    """One that waits for a branch or a loop must go on waiting."""
    return node.op == "Const" and not node.input and node.ByteSize() >= LENT


def _aligned(array: np.ndarray) -> np.ndarray:
    room = np.empty(array.nbytes + ALIGNED, np.uint8)
    start = -room.ctypes.data % ALIGNED
    made: np.ndarray = room[start : start + array.nbytes].view(array.dtype).reshape(array.shape)
    made[...] = array
    return made
