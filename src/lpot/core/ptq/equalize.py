"""Cross-layer equalization: sharing out ranges between two layers, the function unchanged.

Channel i between two layers may be divided by s_i before and multiplied by s_i after, as long as
what lies between lets positive factors through (ReLU, pooling). Powers of two change no bit of an
FP32 result.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[np.float64]

# Apply a scaling only if it is expected to cut the noise power of the second layer to a quarter:
# nets that nobody tore apart are left as they are.
WORTH = 4.0


def channel_scales(first: npt.ArrayLike, second: npt.ArrayLike) -> Array | None:
    """Factors s for the channels between two layers; None when there is little to gain.

    Args:
        first: per channel, the largest weight (or bias) that makes it.
        second: per channel, the largest weight that reads it.

    >>> channel_scales([1.0, 16.0, 1.0], [1.0, 1 / 16, 1.0])
    array([0.5, 8. , 0.5])
    >>> channel_scales([1.0, 0.9], [0.8, 1.0]) is None
    True
    """
    makes = np.asarray(first, np.float64)
    reads = np.asarray(second, np.float64)
    alive = (makes > 0) & (reads > 0)
    if alive.sum() < 2:
        return None
    wanted = np.sqrt(makes[alive] / reads[alive])
    factors = np.ones_like(makes)
    # Around their own middle: a factor common to all channels gains nothing.
    factors[alive] = 2.0 ** np.round(np.log2(wanted / np.exp(np.mean(np.log(wanted)))))
    before = makes[alive].max() ** 2 * np.sum(reads[alive] ** 2)
    after = (makes / factors)[alive].max() ** 2 * np.sum((reads * factors)[alive] ** 2)
    return factors if before > WORTH * after else None
