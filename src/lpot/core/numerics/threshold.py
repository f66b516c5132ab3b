"""Which range of a tensor to quantize: minmax, percentile, KL divergence and squared error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Range = tuple[float, float]

KL_COVERAGE = 0.99  # keep at least this part: KL alone may cut a tensor to pieces
_COARSE, _FINE = 17, 9  # candidate thresholds of the two search rounds
_KL_FLOOR = 1e-6  # mass given to an empty edge cell, so that clipping into it is dear but finite
_KL_GRAIN = 8  # fine bins per level of the usual KL search on 2048 linear bins


@dataclass(frozen=True, eq=False)
class Density:
    """Filled bins of a histogram in ascending order; mass is spread evenly inside a bin."""

    lower: Array
    upper: Array
    mass: Array
    minimum: float
    maximum: float

    @cached_property
    def total(self) -> float:
        return float(self.mass.sum())

    @cached_property
    def centre(self) -> Array:
        middle: Array = (self.lower + self.upper) / 2
        return middle

    @cached_property
    def power(self) -> float:
        return float(self.mass @ self.centre**2) / self.total if self.total else 0.0

    @property
    def full_range(self) -> Range:
        return min(self.minimum, 0.0), max(self.maximum, 0.0)

    @cached_property
    def nonzero(self) -> Density:
        """The same without exact zeros: quantization keeps those, whatever the range."""
        keep = (self.lower != 0.0) | (self.upper != 0.0)
        return self._select(keep)

    @cached_property
    def folded(self) -> Density:
        """The density of |x|."""
        swap = self.lower < 0
        lower = np.where(swap, -self.upper, self.lower)
        upper = np.where(swap, -self.lower, self.upper)
        order = np.argsort(lower, kind="stable")
        top = max(-self.minimum, self.maximum, 0.0)
        return Density(lower[order], upper[order], self.mass[order], 0.0, top)

    def coarse(self, floor: float) -> Density:
        """Fewer bins for a search: eight neighbours make one, those below `floor` are left out."""
        keep = np.maximum(np.abs(self.lower), np.abs(self.upper)) > floor
        kept = self._select(keep)
        size = len(kept.mass)
        if size <= 256:
            return kept
        starts = np.arange(0, size, 8)
        ends = np.minimum(starts + 8, size) - 1
        mass = np.add.reduceat(kept.mass, starts)
        return Density(kept.lower[starts], kept.upper[ends], mass, self.minimum, self.maximum)

    def _select(self, keep: Array) -> Density:
        return Density(
            self.lower[keep], self.upper[keep], self.mass[keep], self.minimum, self.maximum
        )


def minmax(density: Density, symmetric: bool, levels: int, percentile: float) -> Range:
    lo, hi = density.full_range
    if symmetric:
        hi = max(hi, -lo)
        return 0.0 - hi, hi
    return lo, hi


def percentile_range(density: Density, symmetric: bool, levels: int, percentile: float) -> Range:
    if not 0.0 < percentile <= 100.0:
        raise ValueError(f"percentile must be above 0 and at most 100, got {percentile!r}")
    tail = 1.0 - percentile / 100.0
    if density.total == 0 or tail == 0.0:
        return minmax(density, symmetric, levels, percentile)
    if symmetric:
        hi = _quantiles(density.folded, 0.0, tail)[1]
        return 0.0 - hi, hi
    lo, hi = _quantiles(density, tail / 2, tail / 2)
    return min(lo, 0.0), max(hi, 0.0)


def _quantiles(density: Density, below: float, above: float) -> Range:
    """The smallest range of whole bins that leaves at most these parts of the mass outside."""
    cumulated = np.cumsum(density.mass)
    last = len(cumulated) - 1
    slack = 1e-9 * density.total  # 1 - 0.9999 is not quite 0.0001
    first = int(np.searchsorted(cumulated, below * density.total + slack, side="right"))
    top = int(np.searchsorted(cumulated, (1.0 - above) * density.total - slack, side="left"))
    return float(density.lower[min(first, last)]), float(density.upper[min(top, last)])


def mse(density: Density, symmetric: bool, levels: int, percentile: float) -> Range:
    """Clip where the expected squared error is least."""
    lo, hi = minmax(density, symmetric, levels, percentile)
    active = density.nonzero
    if len(active.mass) < 2 or hi <= lo:
        return lo, hi
    typical = _median(active.folded)
    # Values below half of the smallest step become 0 in every candidate: a constant, left out.
    coarse = active.coarse(floor=typical / (2 * levels))
    points = levels - 1 if symmetric else levels
    return _search(
        lambda los, his: _errors(coarse, los, his, points),
        (lo, hi),
        (max(lo, -typical) if lo < 0 else 0.0, min(hi, typical) if hi > 0 else 0.0),
        symmetric,
    )


def kl(density: Density, symmetric: bool, levels: int, percentile: float) -> Range:
    """Clip where the quantized distribution diverges least from the true one."""
    lo, hi = minmax(density, symmetric, levels, percentile)
    active = (density.folded if symmetric else density).nonzero
    if len(active.mass) < 2 or hi <= lo:
        return lo, hi
    out = (1.0 - KL_COVERAGE) / (1 if symmetric else 2)
    least_lo, least_hi = _quantiles(active, 0.0 if symmetric else out, out)
    table = _DivergenceTable(active, max(-least_lo, least_hi) / (_KL_GRAIN * levels))
    # Beyond 10 bits the histogram is coarser than the levels: more cells would tell nothing.
    cells = min(levels // 2 if symmetric else levels, 1024)

    def score(los: Array, his: Array) -> Array:
        return table.divergence(np.zeros_like(los) if symmetric else los, his, cells)

    return _search(score, (lo, hi), (min(least_lo, 0.0), max(least_hi, 0.0)), symmetric)


ALGORITHMS: Mapping[str, Callable[[Density, bool, int, float], Range]] = {
    "minmax": minmax,
    "percentile": percentile_range,
    "kl": kl,
    "mse": mse,
}


def _median(density: Density) -> float:
    return _quantiles(density, 0.0, 0.5)[1]


def _search(
    score: Callable[[Array, Array], Array], widest: Range, narrowest: Range, symmetric: bool
) -> Range:
    """Least score between two ranges: both ends together first, then each end alone."""
    (wide_lo, wide_hi), (slim_lo, slim_hi) = widest, narrowest
    los, his = _ladder(wide_lo, slim_lo, _COARSE), _ladder(wide_hi, slim_hi, _COARSE)
    if symmetric:
        hi = _refine(lambda h: score(-h, h), his)
        return -hi, hi
    best = int(np.argmin(score(los, his)))
    lo, hi = float(los[best]), float(his[best])
    if wide_hi > 0:
        hi = _refine(lambda h: score(np.full_like(h, lo), h), np.append(his, hi))
    if wide_lo < 0:
        lo = _refine(lambda low: score(low, np.full_like(low, hi)), np.append(los, lo))
    return lo, hi


def _ladder(widest: float, narrowest: float, count: int) -> Array:
    """Thresholds from the widest inwards, evenly in ratio."""
    if widest == 0.0:
        return np.zeros(count)
    ratio = min(1.0, max(narrowest / widest, 1e-6))
    ladder: Array = widest * np.geomspace(1.0, ratio, count)
    return ladder


def _refine(score: Callable[[Array], Array], thresholds: Array) -> float:
    """Least score among the thresholds, then among finer ones between its neighbours."""
    order = np.sort(thresholds)
    best = int(np.argmin(score(order)))
    around = np.linspace(order[max(best - 1, 0)], order[min(best + 1, len(order) - 1)], _FINE)
    around = np.append(around, order[best])
    return float(around[int(np.argmin(score(around)))])


def squared_error(density: Density, lo: float, hi: float, levels: int) -> float:
    """Expected squared error per value on a grid of `levels` points over [lo, hi] with 0 on it."""
    if density.total == 0:
        return 0.0
    return float(_errors(density, np.array([lo]), np.array([hi]), levels)[0]) / density.total


def _errors(density: Density, los: Array, his: Array, levels: int) -> Array:
    """Summed squared error for each candidate range: rows are candidates, columns are bins."""
    los, his = np.minimum(los, 0.0), np.maximum(his, 0.0)
    step = (his - los) / (levels - 1)
    step = np.where(step > 0, step, np.finfo(np.float64).tiny)[:, None]
    # The grid is moved so that zero lies on it, as the zero point does.
    first = np.rint(los[:, None] / step) * step
    last = first + (levels - 1) * step
    # A bin much narrower than a step counts by its centre: the integral would lose all its digits.
    width = density.upper - density.lower
    narrow, wide = width <= float(step.max()) / 16, width > float(step.min()) / 16
    error = np.empty((len(los), len(width)))
    if narrow.any():
        centre = density.centre[narrow]
        error[:, narrow] = (centre - np.rint(np.clip(centre, first, last) / step) * step) ** 2
    if wide.any():
        a, b = density.lower[wide], density.upper[wide]
        mean = (_primitive(b, first, last, step) - _primitive(a, first, last, step)) / (b - a)
        error[:, wide] = np.where(b - a > step / 16, mean, error[:, wide])
    summed: Array = error @ density.mass
    return summed


def _primitive(x: Array, first: Array, last: Array, step: Array) -> Array:
    """Integral of the squared error from 0 to x: 1/12 per step inside, cubic outside."""
    inside = np.clip(x, first, last)
    units = inside / step
    whole = np.rint(units)
    outside = x - inside
    cells = (whole / 12 + (units - whole) ** 3 / 3) * step**3
    integral: Array = cells + outside**3 / 3
    return integral


class _DivergenceTable:
    """Cumulated mass, support and entropy at bin edges: a candidate range is then a few lookups."""

    def __init__(self, density: Density, resolution: float) -> None:
        lower, upper, mass = _merge_below(density, resolution)
        mass = mass / mass.sum()
        width = np.maximum(upper - lower, resolution * 1e-3)
        self._lower, self._width = lower, width
        self._mass, self._entropy = mass, mass * np.log(mass / width)
        self._sums = [
            np.concatenate([[0.0], np.cumsum(part)]) for part in (mass, width, self._entropy)
        ]

    def divergence(self, los: Array, his: Array, cells: int) -> Array:
        """KL(true ‖ quantized) for each candidate range, clipped mass piled on the edge cells."""
        ticks = np.linspace(0.0, 1.0, cells + 1)
        edges = los[:, None] + (his - los)[:, None] * ticks
        mass, width, entropy = self._at(edges)
        inner, support = np.diff(mass, axis=1), np.diff(width, axis=1)
        used = (inner > 0) & (support > 0)
        safe = np.where(used, inner, 1.0)
        flat = np.where(used, safe * np.log(safe / np.where(used, support, 1.0)), 0.0)
        kept = np.maximum(mass[:, -1] - mass[:, 0], _KL_FLOOR)
        score: Array = entropy[:, -1] - entropy[:, 0] - flat.sum(axis=1) + np.log(kept)
        score += _pile(inner[:, -1], 1.0 - mass[:, -1])
        score += _pile(inner[:, 0], mass[:, 0])
        return score

    def _at(self, x: Array) -> tuple[Array, Array, Array]:
        index = np.searchsorted(self._lower, x, side="right") - 1
        index = np.maximum(index, 0)
        part = np.clip((x - self._lower[index]) / self._width[index], 0.0, 1.0)
        own = (self._mass, self._width, self._entropy)
        mass, width, entropy = (
            total[index] + part * each[index] for total, each in zip(self._sums, own, strict=True)
        )
        return mass, width, entropy


def _pile(cell: Array, clipped: Array) -> Array:
    """Cost of putting the clipped mass on top of an edge cell."""
    clipped = np.maximum(clipped, 0.0)
    base = np.maximum(cell, _KL_FLOOR) / _KL_GRAIN
    cost: Array = np.where(clipped > 0, (base + clipped) * np.log((base + clipped) / base), 0.0)
    return cost


def _merge_below(density: Density, resolution: float) -> tuple[Array, Array, Array]:
    """Bins with those nearer to zero than the resolution put together, one for each sign."""
    small_up = (density.lower >= 0) & (density.upper <= resolution)
    small_down = (density.upper <= 0) & (density.lower >= -resolution)
    rest = ~(small_up | small_down)
    lower, upper, mass = density.lower[rest], density.upper[rest], density.mass[rest]
    for small, edges in ((small_down, (-resolution, 0.0)), (small_up, (0.0, resolution))):
        held = float(density.mass[small].sum())
        if held:
            lower, upper = np.append(lower, edges[0]), np.append(upper, edges[1])
            mass = np.append(mass, held)
    order = np.argsort(lower, kind="stable")
    return lower[order], upper[order], mass[order]
