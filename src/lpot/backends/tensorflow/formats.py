"""How tensors are held in 8 bits: which ops make and take a form, and the form of each tensor.

All tensors that an op only passes on share one form with it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from lpot.backends.tensorflow.prepare import Prepared
from lpot.backends.tensorflow.runtime import tf
from lpot.backends.tensorflow.structure.layers import Follower, Layer, Step, low_readers
from lpot.core.errors import CalibrationError
from lpot.core.numerics.rounding import TensorStats, affine

SIX = 6.0 * (1 + 1e-6)


@dataclass(frozen=True)
class Format:
    """real = (q - zero) · scale, in quint8 (zero 0 to 255) or qint8 (zero 0).

    TensorFlow's convolutions know no zero point: they take quint8 as if zero were 0. The shift of
    zero · scale that they see too much is a constant, and the biases on either side absorb it.
    """

    dtype: str
    scale: float
    zero: int = 0

    @classmethod
    def of(cls, lo: float, hi: float, dtype: str, scheme: str) -> Format:
        if dtype == "int8":
            return cls("qint8", float(affine(lo, hi, "int8", "sym").scale))
        params = affine(lo, hi, "uint8", scheme)
        return cls("quint8", float(params.scale), int(params.zero_point))

    @property
    def tf_dtype(self) -> tf.DType:
        return tf.quint8 if self.dtype == "quint8" else tf.qint8

    @property
    def shift(self) -> float:
        """What a kernel that knows no zero point sees too much."""
        return self.zero * self.scale

    @property
    def low(self) -> float:
        return -127 * self.scale if self.dtype == "qint8" else -self.shift

    @property
    def high(self) -> float:
        return 127 * self.scale if self.dtype == "qint8" else (255 - self.zero) * self.scale

    @property
    def kernel_range(self) -> tuple[float, float]:
        """The range to tell a kernel that knows no zero point."""
        return self.low + self.shift, self.high + self.shift


def takes(layer: Layer, form: Format) -> bool:
    """Zeros that padding puts into the window must mean 0."""
    return form.zero == 0 or not layer.padded


def makes(step: Step, form: Format) -> bool:
    """Can the op's own kernel give its result in this form?"""
    activation = step.activation
    if step.layer.is_matmul:
        # GELU and its like are followed by a true zero point; for the others the bias carries it.
        return step.addend is None and (activation not in ("Relu", "Relu6") or form.zero == 0)
    if step.sums and form.dtype != "quint8":
        return False
    if not activation:
        return True
    # The upper end of the range is what cuts at 6.
    return form.zero == 0 and (activation == "Relu" or form.high <= SIX)


Forms = dict[str, Format]


def choose_formats(
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
        if step.out in wanted and (not step.layer.is_matmul or makes(step, wanted[step.out]))
    }
    for step in steps.values():
        if step.sums:
            asked = Format.of(*_range([step.layer.out], step, stats, "uint8"), "uint8", "asym")
            wanted.setdefault(step.layer.out, asked)
    signed = {
        step.layer.x: Format.of(*_range([step.layer.x], step, stats, "int8"), "int8", "sym")
        for step in steps.values()
        if not takes(step.layer, wanted[step.layer.x])
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
    readers = low_readers(prepared.net, steps)
    for step in steps.values():
        yield step.layer.x
        if step.sums:
            assert step.addend is not None
            yield step.addend
        users = [user.name for user in prepared.net.users.get(step.out, ())]
        low = all(user in followers or user in readers.get(step.out, ()) for user in users)
        # A MatMul gives floats as cheaply: it gives 8 bits only if nobody wants floats.
        wants_floats = not users or not low or step.out in prepared.net.keep
        if not step.layer.is_matmul or not (wants_floats or step.addend):
            yield step.out
    for item in followers.values():
        yield from (*item.inputs, item.out)


def _form(
    members: list[str], steps: Mapping[str, Step], stats: Mapping[str, TensorStats]
) -> Format:
    inside = set(members)
    readers = [step for step in steps.values() if step.layer.x in inside]
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
        fits = sum(takes(step.layer, form) for step in readers)
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
