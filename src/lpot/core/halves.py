"""Which weights are kept as float16 in files, for every framework: they are computed with wider."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

LARGEST = float(np.finfo(np.float16).max)
FEWEST = 64  # values: less than that saves nothing
COARSE = 1e-3  # relative error of the whole: rounding alone gives 3e-4, values near zero much more


def halved(array: npt.NDArray[Any] | None) -> npt.NDArray[np.float16] | None:
    """The values as float16; None where that saves nothing, or loses more than rounding does.

    >>> halved(np.full((8, 8), 0.1, np.float32)).dtype
    dtype('float16')
    >>> halved(np.full((8, 8), 1e6, np.float32)), halved(np.full((8, 8), 1e-7, np.float32))
    (None, None)
    """
    if array is None or array.dtype != np.float32 or array.size < FEWEST:
        return None
    if not np.abs(array).max() <= LARGEST:  # nor where one is no number
        return None
    found: npt.NDArray[np.float16] = array.astype(np.float16)
    wide = array.astype(np.float64)
    lost, whole = np.square(found - wide).sum(), np.square(wide).sum()
    return found if lost <= COARSE**2 * whole else None
