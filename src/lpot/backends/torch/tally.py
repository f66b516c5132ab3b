"""What calibration counts: a histogram a tensor, which ops ran, and on what shapes."""

from __future__ import annotations

import math
from typing import Any

import torch

from lpot.backends.torch.ranges import inlet_name
from lpot.core.numerics.rounding import TensorStats

MOST_CALLS = 64  # of one op in one batch, told apart
UNLIKE = 4.0  # two bits are lost
SAMPLED = 65536  # values looked at per tensor and batch; extremes are exact


class Tally:
    """Grows with every batch."""

    def __init__(self) -> None:
        self.stats: dict[str, TensorStats] = {}
        self.ran: set[str] = set()
        self.uneven: set[str] = set()  # sums of tensors of different shapes
        self.estranged: set[str] = set()  # ops called in a way that no kernel can serve
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.widths: dict[str, list[float]] = {}  # of an op's input, the widest of each call
        self._calls: dict[str, int] = {}  # in this batch
        self._last: tuple[torch.Tensor, float, Any, float, float] | None = None

    def see_inlet(self, op: str, value: Any) -> None:
        """The input of an op with static ranges."""
        self.add(inlet_name(op), value)
        if self._last is not None and self._last[0] is value:
            self._measure(op, self._last[4] - self._last[3])
        if isinstance(value, torch.Tensor):
            self.shapes.setdefault(op, tuple(value.shape))

    def _measure(self, op: str, width: float) -> None:
        number = self._calls.get(op, 0)
        self._calls[op] = number + 1
        widths = self.widths.setdefault(op, [])
        if number == len(widths) < MOST_CALLS:
            widths.append(width)
        elif number < len(widths):
            widths[number] = max(widths[number], width)

    @property
    def unlike(self) -> set[str]:
        """Ops whose calls have inputs of so different ranges that one scale does not suit all."""
        return {op for op, all_ in self.widths.items() if max(all_) > UNLIKE * min(all_)}

    def add(self, name: str, value: Any) -> None:
        if (
            not isinstance(value, torch.Tensor)
            or not value.is_floating_point()
            or not value.numel()
        ):
            return
        # Tensors made in inference mode do not count their changes: NaN is never the same.
        version = math.nan if value.is_inference() else value._version
        if self._last is None or self._last[0] is not value or self._last[1] != version:
            # Query, key and value read the same tensor: it is looked at once.
            low, high = torch.aminmax(value)
            self._last = (value, version, _sample(value), float(low), float(high))
        _, _, sample, low_value, high_value = self._last
        stats = self.stats.setdefault(name, TensorStats.empty())
        stats.update(sample, low_value, high_value)

    def forget(self) -> None:
        """Let go of the batch's tensors."""
        self._calls.clear()
        self._last = None


def _sample(value: torch.Tensor) -> Any:
    flat = value.detach().float().reshape(-1)
    # One more than needed: a stride that is a power of two would visit few channels.
    stride = flat.numel() // SAMPLED + 1 if flat.numel() > SAMPLED else 1
    return flat[::stride].numpy()
