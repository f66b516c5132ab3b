"""A unit as it will run under one recipe."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lpot.backends.tensorflow.match import Unit
from lpot.backends.tensorflow.prepare import Prepared
from lpot.core.recipe import OpConfig


@dataclass(frozen=True)
class Step:
    """Where the unit ends, with which activation, and what is added on the way."""

    unit: Unit
    config: OpConfig
    out: str
    activation: str
    addend: str | None = None

    @property
    def sums(self) -> bool:
        """Does it add a quantized tensor in place? (A MatMul adds a float one.)"""
        return self.addend is not None and not self.unit.is_matmul


def low_readers(prepared: Prepared, steps: Mapping[str, Step]) -> dict[str, set[str]]:
    """Tensor → the nodes of the graph that will read it in 8 bits, as parts of units."""
    found: dict[str, set[str]] = {}
    for step in steps.values():
        unit = step.unit
        if unit.padding is None:
            found.setdefault(unit.x, set()).add(unit.node)
        else:
            # The Pad folded in is gone when every reader of it has it folded in.
            pad = prepared.net.nodes[unit.node].input[0]
            folded = {s.unit.node for s in steps.values() if s.unit.padding is not None}
            if all(user.name in folded for user in prepared.net.users.get(pad, ())):
                found.setdefault(unit.x, set()).add(pad)
        if step.sums:
            assert step.addend is not None and unit.residual is not None
            found.setdefault(step.addend, set()).add(unit.residual.add)
    return found
