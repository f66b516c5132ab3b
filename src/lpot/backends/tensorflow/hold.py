"""Choosing how tensors are held in 8 bits: one form for all that pass values on unchanged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lpot.backends.tensorflow.formats import Format, makes, takes
from lpot.backends.tensorflow.match import Follower
from lpot.backends.tensorflow.prepare import Prepared
from lpot.backends.tensorflow.steps import Step, low_readers
from lpot.core.errors import CalibrationError
from lpot.core.numerics import TensorStats

Forms = dict[str, Format]


def hold(
    prepared: Prepared,
    steps: Mapping[str, Step],
    followers: Mapping[str, Follower],
    stats: Mapping[str, TensorStats],
) -> tuple[Forms, Forms, Forms]:
    """(what readers want, what makers give, what readers that refuse the first get) by tensor.

    What a fused sum hides is there, too: other runtimes have to hold it.
    """
    wanted: Forms = {}
    for members in _groups(prepared, steps, followers):
        form = _form(members, steps, stats)
        wanted.update(dict.fromkeys(members, form))
    held = {
        step.out: _made(step, wanted[step.out], stats)
        for step in steps.values()
        if step.out in wanted and (not step.unit.is_matmul or makes(step, wanted[step.out]))
    }
    for step in steps.values():
        if step.sums:
            asked = Format.of(*_range([step.unit.out], step, stats, "uint8"), "uint8", "asym")
            wanted.setdefault(step.unit.out, asked)
    signed = {
        step.unit.x: Format.of(*_range([step.unit.x], step, stats, "int8"), "int8", "sym")
        for step in steps.values()
        if not takes(step.unit, wanted[step.unit.x])
    }
    return wanted, held, signed


def _groups(
    prepared: Prepared, steps: Mapping[str, Step], followers: Mapping[str, Follower]
) -> Iterable[list[str]]:
    """Tensors to hold in 8 bits; those joined by a follower stand together."""
    root: dict[str, str] = {}

    def find(name: str) -> str:
        while (parent := root.get(name, name)) != name:
            name = parent
        return name

    for item in followers.values():
        for name in item.inputs:
            one, other = find(item.out), find(name)
            if one != other:
                root[one] = other
    groups: dict[str, dict[str, None]] = {}
    for name in _tensors(prepared, steps, followers):
        groups.setdefault(find(name), {})[name] = None
    return [list(members) for members in groups.values()]


def _tensors(
    prepared: Prepared, steps: Mapping[str, Step], followers: Mapping[str, Follower]
) -> Iterable[str]:
    readers = low_readers(prepared, steps)
    for step in steps.values():
        yield step.unit.x
        if step.sums:
            assert step.addend is not None
            yield step.addend
        users = [user.name for user in prepared.net.users.get(step.out, ())]
        low = all(user in followers or user in readers.get(step.out, ()) for user in users)
        # A MatMul gives floats as cheaply: it gives 8 bits only if nobody wants floats.
        wants_floats = not users or not low or step.out in prepared.net.keep
        if not step.unit.is_matmul or not (wants_floats or step.addend):
            yield step.out
    for item in followers.values():
        yield from (*item.inputs, item.out)


def _form(
    members: list[str], steps: Mapping[str, Step], stats: Mapping[str, TensorStats]
) -> Format:
    inside = set(members)
    readers = [step for step in steps.values() if step.unit.x in inside]
    makers = [step for step in steps.values() if step.out in inside]
    added = sum(step.sums and step.addend in inside for step in steps.values())
    leader = (readers or makers or list(steps.values()))[0]
    config = leader.config.activation
    offers = [
        Format.of(*_range(members, leader, stats, dtype), dtype, scheme)
        for dtype, scheme in (
            (config.dtype, config.scheme or "asym"),
            ("uint8", "asym"),
            ("int8", "sym"),
        )
    ]

    def score(form: Format) -> int:
        fits = sum(takes(step.unit, form) for step in readers)
        fits += sum(makes(step, form) for step in makers)
        return fits + 2 * added * (form.dtype == "quint8")

    return max(offers, key=score)  # the first among equals


def _made(step: Step, form: Format, stats: Mapping[str, TensorStats]) -> Format:
    """The form wanted, or the nearest that the op's kernel can give."""
    if makes(step, form):
        return form
    own = Format.of(*_range([step.out], step, stats, "uint8"), "uint8", "asym")
    return own


def _range(
    members: list[str], step: Step, stats: Mapping[str, TensorStats], dtype: str
) -> tuple[float, float]:
    algorithm = step.config.activation.algorithm or "minmax"
    ranges = []
    for name in members:
        if name not in stats:
            raise CalibrationError(f"tensor {name!r} was not observed: calibrate this model again")
        ranges.append(stats[name].range(algorithm, symmetric=dtype == "int8"))
    return min(lo for lo, _ in ranges), max(hi for _, hi in ranges)
