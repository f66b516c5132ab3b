"""Scaling input channels before rounding, so that those which matter are rounded more finely.

Lin et al., "AWQ: Activation-aware Weight Quantization for LLM Compression and Acceleration",
MLSys 2024: weight columns are multiplied by s, the activations divided by it, with
s = (mean |x|)^alpha and alpha searched for.
"""

from __future__ import annotations

import numpy as np

from lpot.core.weight_only.grid import Floats, Format, Rounded
from lpot.core.weight_only.nearest import round_to_nearest

ALPHAS = tuple(step / 10 for step in range(10))


def scaled(weight: Floats, energy: Floats, fmt: Format) -> tuple[Floats, Rounded]:
    """The scales of the columns ([K]) and the scaled weight on the grid.

    `energy` is the mean square of each input. Scales of 1 where nothing is won by others.
    """
    amplitude = np.sqrt(np.maximum(energy, 0)).astype(np.float32)
    best: tuple[float, Floats, Rounded] | None = None
    for alpha in ALPHAS:
        scales = _scales(amplitude, alpha)
        rounded = round_to_nearest(weight * scales, fmt, energy / scales**2)
        off = rounded.values() / scales - weight
        error = float((np.square(off) * energy).sum())
        if best is None or error < best[0]:
            best = error, scales, rounded
    assert best is not None
    return best[1], best[2]


def _scales(amplitude: Floats, alpha: float) -> Floats:
    floor = max(float(amplitude.max()) * 1e-4, 1e-12)
    scales = np.maximum(amplitude, floor) ** np.float32(alpha)
    centre = np.sqrt(float(scales.max()) * float(scales.min()))
    return np.asarray(scales / (centre or 1.0), np.float32)
