"""Fitting layers by least squares that hold on to the weights that are there; and which layers."""

from __future__ import annotations

from collections.abc import Sequence, Set

import numpy as np
import numpy.typing as npt

ROWS = 8192  # positions of a batch that a layer is fitted to
WIDEST = 6000  # inputs of a layer: the normal equations are solved at once
RIDGE = 1e-3  # of the mean square: how firmly the weights that are there are held

Doubles = npt.NDArray[np.float64]


def solved(gram: Doubles, cross: Doubles, start: Doubles) -> Doubles | None:
    """Weights near `start` for the normal equations `gram @ weights = cross`; None where these
    have no finite solution.

    >>> solved(np.eye(2), np.array([[1.0], [3.0]]), np.array([[1.0], [3.0]])).round(6).tolist()
    [[1.0], [3.0]]
    """
    hold = RIDGE * max(float(gram.diagonal().mean()), 1e-12)
    try:
        found: Doubles = np.linalg.solve(
            gram + hold * np.eye(len(gram)), cross + hold * start
        ).astype(np.float64)
    except np.linalg.LinAlgError:
        return None
    return found if np.isfinite(found).all() else None


def behind(
    order: Sequence[str], names: Sequence[str], cut: Set[str], touched: Set[str], most: int
) -> list[str]:
    """So many touched layers behind each cut, which is one of those or a layer that is gone."""
    found, left = [], most
    for name in order:
        if name in cut or name not in names:
            left = most
        if name in cut or (name in touched and left > 0):
            found.append(name)
            left -= name in touched
    return found
