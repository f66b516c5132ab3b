"""May a fused sum overwrite what it adds? The kernel writes its result over the summand."""

from __future__ import annotations

from lpot.backends.tensorflow.match import Unit
from lpot.backends.tensorflow.nodes import node_name
from lpot.backends.tensorflow.prepare import Prepared


def can_sum(prepared: Prepared, unit: Unit) -> bool:
    """True when everyone else who reads the addend has done so before this unit can run."""
    residual = unit.residual
    assert residual is not None
    net, addend = prepared.net, residual.addend
    if node_name(addend) in net.keep or unit.x == addend or ":" in addend:
        return False
    if _shares_memory(prepared, addend):
        return False
    before = net.ancestors(prepared.inputs_of(unit))
    others = [user.name for user in net.users.get(addend, ()) if user.name != residual.add]
    return all(name in before and not _shares_memory(prepared, name) for name in others)


def _shares_memory(prepared: Prepared, name: str) -> bool:
    follower = prepared.followers.get(name)
    return follower is not None and follower.is_view
