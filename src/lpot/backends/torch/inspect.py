"""What each module of a model can be, and why not more."""

from __future__ import annotations

from lpot.backends.torch.abilities import activation_bits, choices
from lpot.backends.torch.kinds import has_products
from lpot.backends.torch.passes.capture_graph import Capture
from lpot.backends.torch.prepare import Prepared
from lpot.core.backend import Approach, Target
from lpot.core.recipe import OpKey
from lpot.core.space import Capability, OpInfo


def inspect(prepared: Prepared, approach: Approach, target: Target) -> Capability:
    """Every op and every other leaf module, in the model's order."""
    found: dict[OpKey, OpInfo] = {}
    for layer in prepared.layers.values():
        options = choices(layer.spec, approach, target)
        reason = "" if len(options) > 1 else f"{layer.key.kind} has no {approach} kernel"
        found[layer.key] = OpInfo(layer.key, options, reason)
    found.update({key: OpInfo(key, reason=reason) for key, reason in prepared.others.items()})
    order = {name: number for number, name in enumerate(prepared.names)}
    ops = dict(sorted(found.items(), key=lambda item: order[item[0].name]))
    return Capability(ops, tuple(_notes(prepared, approach, target)), left=_left(prepared))


def _left(prepared: Prepared) -> str:
    """Layers with weights that no search can change: how many, why, what to do."""
    why: dict[str, list[str]] = {}
    for key, reason in prepared.others.items():
        if has_products(prepared.names[key.name]):
            why.setdefault(reason, []).append(key.name)
    if not why:
        return ""
    count = sum(map(len, why.values()))
    whole = count + len(prepared.layers)
    told = "; ".join(
        f"{len(names)} ({names[0]}{', …' if names[1:] else ''}): {reason}"
        for reason, names in sorted(why.items(), key=lambda item: -len(item[1]))
    )
    return f"{count} of {whole} layers with weights. {told}"


def _notes(prepared: Prepared, approach: Approach, target: Target) -> list[str]:
    notes = []
    if prepared.layers and activation_bits(target) == 7:
        whose = "this CPU's" if target == "this" else f"target {target}'s"
        notes.append(
            f"reduced range: {whose} kernels overflow with 8-bit activations; 7 bits are used"
        )
    if not prepared.layers:
        notes.append("the model has no module with an INT8 kernel: there is nothing to quantize")
    if approach == "static":
        lively = sum(not layer.spec.static for layer in prepared.layers.values())
        if lively:
            notes.append(f"{lively} op(s) have no static kernel and need no calibration")
    left = _left(prepared)
    if left:
        notes.append(f"stays in FP32: {left}")
    captured = [
        part.name or "the whole model" for part in prepared.captures if _joins(prepared, part)
    ]
    if captured and approach != "dynamic":
        shown = ", ".join(captured[:3]) + (" …" if len(captured) > 3 else "")
        notes.append(f"values can stay in INT8 between ops in {len(captured)} part(s): {shown}")
    return notes


def _joins(prepared: Prepared, part: Capture) -> bool:
    """Are there two ops in it that could hand int8 to each other?"""
    names = set(part.targets.values())
    return sum(layer.spec.static for name, layer in prepared.layers.items() if name in names) > 1
