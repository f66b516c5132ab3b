"""Which weights become zero: magnitude, gradient sensitivity, groups, and locked patterns."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import numpy.typing as npt

from lpot.core.errors import ConfigError

Array = npt.NDArray[np.floating]
Mask = npt.NDArray[np.bool_]

PATTERNS = ("tile_pattern_1x1", "tile_pattern_2x2", "tile_pattern_1x16")
_PATTERN = re.compile(r"tile_pattern_(\d+)x(\d+)")


def tile_of(pattern: str) -> tuple[int, int]:
    """Rows and columns that become zero together.

    >>> tile_of("tile_pattern_1x16")
    (1, 16)
    """
    found = _PATTERN.fullmatch(pattern)
    sizes = (int(found[1]), int(found[2])) if found else (0, 0)
    if min(sizes) < 1:
        raise ConfigError(
            f"given {pattern!r}, expected one of {', '.join(PATTERNS)}, or any other tile of rows "
            "and columns",
            "pattern",
        )
    return sizes


def as_matrix(weight: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Its first axis against all others."""
    return weight.reshape(weight.shape[0], -1) if weight.ndim > 1 else weight.reshape(1, -1)


def lowest(scores: Array, sparsity: float, tile: tuple[int, int] = (1, 1)) -> Mask:
    """What stays when the lowest-scored share goes, exactly so many, whole tiles at a time.

    With ties the first goes.

    >>> lowest(np.array([[3.0, 1.0], [2.0, 4.0]]), 0.5).tolist()
    [[True, False], [False, True]]
    """
    matrix = as_matrix(scores)
    tiles = _tiled(matrix, tile)
    count = round(sparsity * tiles.size)
    keep = np.ones(tiles.size, np.bool_)
    keep[np.argsort(tiles.reshape(-1), kind="stable")[:count]] = False
    spread = np.repeat(np.repeat(keep.reshape(tiles.shape), tile[0], 0), tile[1], 1)
    return spread[: matrix.shape[0], : matrix.shape[1]].reshape(scores.shape)


def _tiled(matrix: Array, tile: tuple[int, int]) -> Array:
    """The mean score of each tile; those at the edges may be smaller."""
    rows, columns = matrix.shape
    high, wide = -(-rows // tile[0]), -(-columns // tile[1])
    padded = np.full((high * tile[0], wide * tile[1]), np.nan)
    padded[:rows, :columns] = matrix
    found: Array = np.nanmean(padded.reshape(high, tile[0], wide, tile[1]), axis=(1, 3))
    return found


def magnitude(weight: Array, sparsity: float, tile: tuple[int, int] = (1, 1)) -> Mask:
    """Han et al., "Learning both Weights and Connections for Efficient Neural Networks" (2015)."""
    return lowest(np.abs(weight), sparsity, tile)


def gradient_sensitivity(
    weight: Array, gradient: Array, sparsity: float, tile: tuple[int, int] = (1, 1)
) -> Mask:
    """By what the loss would change: Molchanov et al., "Importance Estimation for Neural Network
    Pruning" (2019)."""
    return lowest(np.abs(weight * gradient), sparsity, tile)


def locked(weight: Array) -> Mask:
    """The zeros of a model that is sparse already, to be kept while it is trained on."""
    found: Mask = weight != 0
    return found


def lasso_step(weight: Array, strength: float, tile: tuple[int, int]) -> Array:
    """What a group lasso adds to the gradient: each tile is drawn to zero as a whole.

    Yuan and Lin, "Model selection and estimation in regression with grouped variables" (2006).
    """
    matrix = as_matrix(weight)
    norms = np.sqrt(_tiled(matrix**2, tile))
    spread = np.repeat(np.repeat(norms, tile[0], 0), tile[1], 1)
    spread = spread[: matrix.shape[0], : matrix.shape[1]]
    found: Array = (strength * matrix / np.maximum(spread, 1e-12)).reshape(weight.shape)
    return found
