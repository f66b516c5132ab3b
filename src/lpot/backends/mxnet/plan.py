"""Where MXNet's fused INT8 kernels would go wrong, and what ranges have to make up for.

A fused convolution adds another tensor in place, and its result takes that tensor's integer type,
whatever it should have been. A fused clip is left to the end of the range, wherever that is.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

from lpot.backends.mxnet.fusion import Fusion, Layer
from lpot.backends.mxnet.graph import Entry, Graph

QUANTIZE = "_contrib_quantize_v2"
PREFIX = "quantized_"
# INT8 ops whose result has the type of their first input.
PASSING = (
    "_contrib_requantize",
    "_contrib_quantized_pooling",
    "_contrib_quantized_flatten",
    "_contrib_quantized_act",
)


@dataclass(frozen=True)
class Signs:
    """`signed` tensors need a range of both signs, `halved` ones fit into the lower half of theirs.

    `clashing` units (names of fused nodes) can't be right in INT8.
    """

    signed: frozenset[str] = frozenset()
    halved: frozenset[str] = frozenset()
    clashing: frozenset[str] = frozenset()


def settle_signs(
    fusion: Fusion,
    drawn: Graph,
    low: Collection[str],
    positive: Collection[str],
    narrow: Collection[str] = (),
) -> Signs:
    """What to do about every fused addition and clip.

    `positive` tensors have no negatives; `narrow` ones are stretched to 7 bits for their readers.
    """
    additions = list(_additions(fusion, drawn, low))
    signed, clashing = set(), set()
    for unit, entry in additions:
        if not unit.ends_in_relu and _is_unsigned(fusion, drawn, entry, positive):
            if drawn.producer(entry).kind == QUANTIZE:
                signed.add(unit.summand)
            else:
                clashing.add(unit.node.name)
    left = {tensor for tensor in positive if tensor not in signed}
    halved = {
        unit.gives
        for unit, entry in additions
        if unit.ends_in_relu and not _is_unsigned(fusion, drawn, entry, left)
    }
    for name in low:
        unit = fusion.units[name]
        if unit.ends_in_clip and (unit.gives in halved or unit.gives in narrow):
            clashing.add(name)
    return Signs(frozenset(signed), frozenset(halved), frozenset(clashing))


def _additions(fusion: Fusion, drawn: Graph, low: Collection[str]) -> Iterator[tuple[Layer, Entry]]:
    """Every INT8 unit that adds, and what it adds."""
    numbers = {node.name: number for number, node in enumerate(drawn.nodes)}
    for name in low:
        unit = fusion.units[name]
        number = numbers.get(PREFIX + name)
        if unit.summand and number is not None:
            yield unit, drawn.nodes[number].inputs[len(unit.node.inputs) - 1]


def _is_unsigned(fusion: Fusion, drawn: Graph, entry: Entry, positive: Collection[str]) -> bool:
    node = drawn.producer(entry)
    if node.kind == QUANTIZE:
        return drawn.tensor(node.inputs[0]) in positive
    if node.kind in PASSING:
        return _is_unsigned(fusion, drawn, node.inputs[0], positive)
    unit = fusion.units.get(node.name.removeprefix(PREFIX))
    if unit is None:
        return False
    if unit.node.members:
        return unit.ends_in_relu
    # Sums and concatenations: MXNet goes by the range.
    return unit.gives in positive
