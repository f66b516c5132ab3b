"""What each channel of the linears' inputs was like during calibration, and who reads what."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch.utils.weak import WeakIdKeyDictionary

from lpot.backends.torch.findings import Findings
from lpot.core.numerics.observations import Extremes, Observations


class ChannelObserver:
    """Extremes and mean squares by channel, op by op.

    Ops that read one tensor are told by its identity.
    """

    def __init__(self) -> None:
        self._seen: dict[str, np.ndarray] = {}  # op → lows, highs, sums of squares
        self._rows: dict[str, int] = {}
        self.leaders: dict[str, str] = {}  # op → the first that read the same tensor
        # Tensor → its changes so far, the op that read it first, and what it was like.
        self._known = WeakIdKeyDictionary()

    def see(self, op: str, value: torch.Tensor) -> None:
        if not value.is_floating_point() or not value.numel() or not value.dim():
            return
        # Tensors made in inference mode do not count their changes: NaN is never the same.
        version = math.nan if value.is_inference() else value._version
        if value not in self._known or self._known[value][0] != version:
            self._known[value] = (version, op, _summary(value))
        _, leader, found = self._known[value]
        self.leaders.setdefault(op, leader)
        known = self._seen.get(op)
        self._seen[op] = found if known is None else _merged(known, found)
        self._rows[op] = self._rows.get(op, 0) + value.numel() // value.shape[-1]

    def forget(self) -> None:
        """A batch is over."""
        self._known.clear()

    def extremes(self) -> dict[str, Extremes]:
        return {op: Extremes(*rows[:2].astype(np.float32)) for op, rows in self._seen.items()}

    def powers(self) -> dict[str, np.ndarray]:
        """Mean squares."""
        return {op: (r[2] / self._rows[op]).astype(np.float32) for op, r in self._seen.items()}


def _summary(value: torch.Tensor) -> np.ndarray:
    rows = value.detach().float().reshape(-1, value.shape[-1])
    parts = (rows.amin(0), rows.amax(0), rows.square().sum(0))  # aminmax is slow along this axis
    return np.stack([part.numpy().astype(np.float64) for part in parts])


def _merged(one: np.ndarray, other: np.ndarray) -> np.ndarray:
    low, high = np.minimum(one[0], other[0]), np.maximum(one[1], other[1])
    return np.stack([low, high, one[2] + other[2]])


@dataclass(frozen=True, eq=False)
class Group:
    """Linears that always read the same values, and what these were like."""

    ops: tuple[str, ...]
    extremes: Extremes
    power: np.ndarray
    norm: str | None = None  # the layer norm that makes these values for them alone


def seen_channels(observations: Observations) -> list[Group]:
    """The linears that ran, each in one group; one that differs from its leader stands alone."""
    findings, seen, powers = Findings.of(observations), observations.channels, observations.powers
    members: dict[str, list[str]] = {}
    for op in seen:
        first = findings.leaders.get(op, op)
        members.setdefault(first if _alike(observations, op, first) else op, []).append(op)
    return [
        Group(tuple(ops), seen[first], powers[first], _norm(ops, findings.norms))
        for first, ops in members.items()
    ]


def _alike(observations: Observations, op: str, other: str) -> bool:
    seen, powers = observations.channels, observations.powers
    return other in seen and all(
        np.array_equal(one, two)
        for one, two in (
            (seen[op].low, seen[other].low),
            (seen[op].high, seen[other].high),
            (powers[op], powers[other]),
        )
    )


def _norm(ops: list[str], norms: Mapping[str, str]) -> str | None:
    """The norm that all these read, if they are all that read it."""
    name = norms.get(ops[0])
    readers = {op for op, norm in norms.items() if norm == name}
    return name if name is not None and readers == set(ops) else None
