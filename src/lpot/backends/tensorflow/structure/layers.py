"""What a graph is quantized by: layers and followers as they are found, steps as they will run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lpot.backends.tensorflow.structure.graph import Net
from lpot.core.recipe import OpConfig, OpKey

FOLLOWERS = ("MaxPool", "AvgPool", "ConcatV2")
# Ops that move values of any type. They are no ops of a recipe: they go along where that is free.
VIEWS = ("Reshape", "Squeeze", "ExpandDims", "StridedSlice", "Slice")
MOVERS = (*VIEWS, "Pad", "PadV2")
SUMS = ("Add", "AddV2", "AddN")
CONV_ACTIVATIONS = ("Relu", "Relu6")
MATMUL_ACTIVATIONS = (*CONV_ACTIVATIONS, "LeakyRelu", "Elu", "Tanh", "Sigmoid")
# A pass that lowers an op to a MatMul notes here which op of the user's graph it was.
ORIGIN = "_lpot_origin"


@dataclass(frozen=True)
class Residual:
    """The sum behind a layer, and the activation behind the sum."""

    add: str
    addend: str
    activation: str
    out: str


@dataclass(frozen=True)
class Layer:
    """One compute op with its bias and activation; `out` is the last node of these."""

    key: OpKey
    node: str
    x: str
    weight: str
    bias: str | None
    activation: str
    out: str
    channels: int
    padding: tuple[int, ...] | None = None  # of a Pad folded in
    padded: bool = False  # do zeros enter the window?
    residual: Residual | None = None

    is_matmul: bool = False


@dataclass(frozen=True)
class Follower:
    """An op that hands quantized values on with their scale. A mover is not named in recipes."""

    key: OpKey
    inputs: tuple[str, ...]
    out: str

    @property
    def is_mover(self) -> bool:
        return self.key.kind in MOVERS

    @property
    def is_view(self) -> bool:
        """May its output share memory with its input?"""
        return self.key.kind in VIEWS


@dataclass(frozen=True)
class Step:
    """Where the layer ends, with which activation, and what is added on the way."""

    layer: Layer
    config: OpConfig
    out: str
    activation: str
    addend: str | None = None

    @property
    def sums(self) -> bool:
        """Does it add a quantized tensor in place? (A MatMul adds a float one.)"""
        return self.addend is not None and not self.layer.is_matmul


def low_readers(net: Net, steps: Mapping[str, Step]) -> dict[str, set[str]]:
    """Tensor → the nodes of the graph that will read it in 8 bits, as parts of layers."""
    found: dict[str, set[str]] = {}
    for step in steps.values():
        layer = step.layer
        if layer.padding is None:
            found.setdefault(layer.x, set()).add(layer.node)
        else:
            # The Pad folded in is gone when every reader of it has it folded in.
            pad = net.nodes[layer.node].input[0]
            folded = {s.layer.node for s in steps.values() if s.layer.padding is not None}
            if all(user.name in folded for user in net.users.get(pad, ())):
                found.setdefault(layer.x, set()).add(pad)
        if step.sums:
            assert step.addend is not None and layer.residual is not None
            found.setdefault(step.addend, set()).add(layer.residual.add)
    return found
