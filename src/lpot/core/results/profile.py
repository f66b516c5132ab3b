"""Time by op: FP32 against low precision, what converting costs, and which ops lose and why."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

Role = Literal["op", "convert"]

LOSS = 1.05  # an op that takes less than this many times its FP32 time is not said to lose
LITTLE = 20e-6  # seconds of an op whose work is no more than calling its kernel
SHARE = 0.005  # of the whole; what is lost below that is not worth a word
TICK = 3e-6  # seconds; clocks of profilers count in microseconds
COLUMNS = ("op", "kind", "precision", "FP32 µs", "low µs", "times faster", "share", "remark")


@dataclass(frozen=True)
class OpTime:
    """Seconds of one op as a backend saw it run.

    `name` is the op's in the model as given, where the runtime lets it be known. `role` is
    "convert" for what only changes the form of values: quantize, dequantize, reorder.
    """

    name: str
    kind: str  # of the kernel that ran
    seconds: float
    precision: str = "fp32"
    role: Role = "op"

    def to_json(self) -> dict[str, Any]:
        return dict(vars(self))

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> OpTime:
        """
        >>> one = OpTime("conv1", "Conv", 1e-3)
        >>> OpTime.from_json(one.to_json()) == one
        True
        """
        return cls(**raw)


def quickest(turns: Iterable[Sequence[OpTime]]) -> tuple[OpTime, ...]:
    """One profile from several turns: of each op the shortest of its times.

    Whatever else the machine does only ever adds to a time: of single ops, which take microseconds,
    the shortest is what the kernel costs. What bears the same name twice in a turn counts together.

    >>> turn = [OpTime("a", "Conv", s) for s in (1.0, 2.0)]
    >>> quickest([[turn[1]], [turn[0], turn[0]], [turn[1], turn[1]]])[0].seconds
    2.0
    """
    seen: dict[tuple[str, str, str, Role], list[float]] = {}
    for turn in turns:
        sums: dict[tuple[str, str, str, Role], float] = {}
        for op in turn:
            key = (op.name, op.kind, op.precision, op.role)
            sums[key] = sums.get(key, 0.0) + op.seconds
        for key, seconds in sums.items():
            seen.setdefault(key, []).append(seconds)
    return tuple(
        OpTime(name, kind, min(times), precision, role)
        for (name, kind, precision, role), times in seen.items()
    )


@dataclass(frozen=True)
class ProfileRow:
    """One op in both models; None where it has no time of its own (fused into another, or gone)."""

    name: str
    kind: str
    precision: str
    before: float | None = None  # seconds in FP32
    after: float | None = None  # seconds in the other model
    role: Role = "op"
    reason: str = ""  # why it loses; empty when it does not

    @property
    def gain(self) -> float | None:
        """Times faster."""
        if self.before is None or not self.after:
            return None
        return self.before / self.after

    @property
    def loses(self) -> bool:
        return bool(self.reason)


@dataclass(frozen=True)
class Profile:
    """The ops of a model, FP32 against low precision, the costliest first."""

    rows: tuple[ProfileRow, ...]
    framework: str = ""
    notes: tuple[str, ...] = ()

    @property
    def before(self) -> float:
        """Seconds of all ops in FP32."""
        return sum(row.before or 0.0 for row in self.rows)

    @property
    def after(self) -> float:
        return sum(row.after or 0.0 for row in self.rows)

    @property
    def overhead(self) -> float:
        """Seconds of quantizing, dequantizing and reordering in the low-precision model."""
        return sum(row.after or 0.0 for row in self.rows if row.role == "convert")

    @property
    def losing(self) -> tuple[ProfileRow, ...]:
        """The ops that lose, those that cost the most first."""
        lost = [row for row in self.rows if row.loses]
        return tuple(sorted(lost, key=lambda row: (row.before or 0.0) - (row.after or 0.0)))

    def table(self, most: int | None = None) -> list[tuple[str, ...]]:
        """Cells under COLUMNS."""
        whole = self.after or 1.0
        return [
            (
                row.name,
                row.kind,
                row.precision,
                _micro(row.before),
                _micro(row.after),
                "" if row.gain is None else f"{row.gain:.2f}",
                f"{(row.after or 0.0) / whole:.1%}",
                row.reason,
            )
            for row in self.rows[:most]
        ]

    def summary(self) -> str:
        """The profile in one sentence or two."""
        gain = f"{self.before / self.after:.2f}" if self.after else "?"
        text = (
            f"ops take {_micro(self.before)} µs in FP32 and {_micro(self.after)} µs now ({gain} "
            f"times faster), of which {_micro(self.overhead)} µs "
            f"({self.overhead / (self.after or 1.0):.0%}) are conversions"
        )
        names = ", ".join(row.name for row in self.losing[:3])
        more = len(self.losing) - 3
        if names:
            text += f". Slower than before: {names}{f' and {more} more' if more > 0 else ''}"
        return text

    def to_json(self) -> dict[str, Any]:
        return {
            "framework": self.framework,
            "before": self.before,
            "after": self.after,
            "overhead": self.overhead,
            "rows": [{**asdict(row), "gain": row.gain} for row in self.rows],
            "losing": [row.name for row in self.losing],
            "notes": list(self.notes),
        }

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Profile:
        rows = [{k: v for k, v in row.items() if k != "gain"} for row in raw["rows"]]
        made = tuple(ProfileRow(**row) for row in rows)
        return cls(made, raw.get("framework", ""), tuple(raw.get("notes", ())))


def contrast(
    before: Sequence[OpTime],
    after: Sequence[OpTime],
    framework: str = "",
    notes: Iterable[str] = (),
) -> Profile:
    """Both profiles side by side, op by op.

    >>> fp32 = [OpTime("conv", "Conv", 200e-6), OpTime("fc", "Gemm", 10e-6)]
    >>> int8 = [OpTime("conv", "QLinearConv", 100e-6, "int8"), OpTime("fc", "QGemm", 12e-6, "int8"),
    ...         OpTime("x", "QuantizeLinear", 8e-6, "int8", "convert")]
    >>> found = contrast(fp32, int8)
    >>> [(row.name, row.gain) for row in found.rows], found.losing[0].name
    ([('conv', 2.0), ('fc', 0.8333333333333334), ('x', None)], 'x')
    """
    old, new = _by_op(before), _by_op(after)
    whole = sum(op.seconds for op in after) or 1.0
    rows = []
    for key in dict.fromkeys((*old, *new)):
        was, now = old.get(key), new.get(key)
        one = now or was
        assert one is not None
        rows.append(
            ProfileRow(
                key[0],
                one.kind,
                one.precision,
                None if was is None else was.seconds,
                None if now is None else now.seconds,
                one.role,
                reason=_reason(was, now, whole),
            )
        )
    rows.sort(key=lambda row: -max(row.before or 0.0, row.after or 0.0))
    return Profile(tuple(rows), framework, tuple(notes))


def _by_op(ops: Sequence[OpTime]) -> dict[tuple[str, Role], OpTime]:
    """By name; an op that several kernels make up is their sum, under the costliest one's kind."""
    found: dict[tuple[str, Role], OpTime] = {}
    for op in ops:
        key = (op.name, op.role)
        known = found.get(key)
        if known is not None:
            main = max(known, op, key=lambda one: one.seconds)
            total = known.seconds + op.seconds
            op = OpTime(op.name, main.kind, total, main.precision, op.role)
        found[key] = op
    return found


def _reason(was: OpTime | None, now: OpTime | None, whole: float) -> str:
    """Why an op is slower than it was; empty when it is not, or not by much."""
    if now is None or now.seconds - (was.seconds if was else 0.0) < max(TICK, SHARE * whole):
        return ""
    if now.role == "convert":
        if was is not None and now.seconds < LOSS * was.seconds:
            return ""
        return _CONVERTS if now.precision != "fp32" else _REORDERS
    if was is None or now.seconds < LOSS * was.seconds:
        return ""
    if now.precision == "fp32":
        return (
            "it stays in FP32, but its neighbours no longer pass values in the layout that "
            "its fastest kernel needs"
        )
    if was.seconds < LITTLE:
        return "too little work: the overhead exceeds what INT8 saves; keep it in FP32"
    return (
        f"for this shape the FP32 kernel ({was.kind}) is faster here than the low-precision one "
        f"({now.kind}): keep it in FP32"
    )


_CONVERTS = "converting between FP32 and INT8: one of its neighbours is in FP32"
_REORDERS = "reordering values for the next kernel"


def _micro(seconds: float | None) -> str:
    if seconds is None:
        return ""
    micro = seconds * 1e6
    return f"{micro:.0f}" if micro >= 1000 else f"{micro:.4g}"
