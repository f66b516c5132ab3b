"""How an activation lies in uint8."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Affine:
    """real = (q - zero_point) * scale.

    With 7 bits the calibrated range fills 0..127; what lies above it goes on up to 255, so that an
    outlier is kept rather than cut.
    """

    scale: float
    zero_point: int
