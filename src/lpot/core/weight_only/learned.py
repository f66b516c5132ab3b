"""Rounding that is learned: codes and scales go down the outputs' error in turns.

As in AutoRound (Cheng et al., "Optimize Weight Rounding via Signed Gradient Descent for the
Quantization of LLMs", EMNLP 2024) rounding is an unknown that is fitted to data, and the scales
with it. The error is that of one product, which its Hessian tells: a parabola in each unknown.
So there is no need of small steps by the sign of a gradient: each code in turn takes the whole
number nearest to its parabola's lowest point, then each scale the lowest point itself. No step can
lose, so that what comes out is never worse than what it began with. Behdin et al., "QuantEase",
2023, go down in the same way for codes alone.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import numpy.typing as npt

from lpot.core.weight_only.grid import Codes, Floats, Rounded

SWEEPS = 4  # over all codes, each followed by one over the scales
DAMPING = 0.01  # share of the mean diagonal that is added to it, as for GPTQ
BLOCK = 32  # columns whose changes are passed on at once
ROWS = 4096  # that are worked on at a time
TINY, SMALLEST = 1e-20, 1e-30  # of a Hessian's diagonal, and of a scale


def learned(
    weight: Floats, hessian: npt.NDArray[Any], start: Rounded, sweeps: int = SWEEPS
) -> Rounded:
    """The weight ([N, K]) on a grid of the start's format that loses no more than the start."""
    if not np.isfinite(hessian).all():
        return start
    curve = hessian.astype(np.float32)
    curve[np.diag_indices(len(curve))] += DAMPING * float(np.diagonal(curve).mean())
    parts = [
        _Rows(weight[at : at + ROWS], curve, start, slice(at, at + ROWS)).descended(sweeps)
        for at in range(0, len(weight), ROWS)
    ]
    codes, scales = zip(*parts, strict=True)
    return replace(start, codes=np.concatenate(codes), scales=np.concatenate(scales))


def refitted(weight: Floats, hessian: npt.NDArray[Any], start: Rounded) -> Rounded:
    """The same codes with the scales that suit them best."""
    return learned(weight, hessian, start, sweeps=0)


class _Rows:
    """Some rows of a weight, transposed, so that a column is contiguous."""

    def __init__(self, weight: Floats, curve: Floats, start: Rounded, rows: slice) -> None:
        self.curve, self.top = curve, start.format.top
        self.columns = weight.shape[1]
        self.width = start.format.width(self.columns)
        self.codes = start.codes[rows].T.astype(np.float32)
        self.scales = start.scales[rows].T.copy()
        middle = np.full(self.scales.shape, start.format.middle, np.float32)
        self.zeros = middle if start.zeros is None else start.zeros[rows].T.astype(np.float32)
        self.off = self._steps(slice(None)) * self._wide(self.scales, slice(None)) - weight.T

    def descended(self, sweeps: int) -> tuple[Codes, Floats]:
        self._fit_scales()
        for _ in range(sweeps):
            self._sweep_codes()
            self._fit_scales()
        return self.codes.T.astype(np.uint8), self.scales.T

    def _sweep_codes(self) -> None:
        slope = self.curve @ self.off
        for start in range(0, self.columns, BLOCK):
            end = min(start + BLOCK, self.columns)
            changes = np.empty((end - start, slope.shape[1]), np.float32)
            for at in range(start, end):
                scale = self.scales[at // self.width]
                bend = scale * max(self.curve[at, at], TINY)
                wish = np.zeros_like(scale)
                np.divide(slope[at], bend, out=wish, where=np.abs(bend) > SMALLEST)
                new = np.clip(np.rint(self.codes[at] - wish), 0, self.top)
                change = changes[at - start] = (new - self.codes[at]) * scale
                self.codes[at] = new
                slope[at + 1 : end] += self.curve[at + 1 : end, at, None] * change
            slope[end:] += self.curve[end:, start:end] @ changes
            self.off[start:end] += changes

    def _fit_scales(self) -> None:
        for group, start in enumerate(range(0, self.columns, self.width)):
            part = slice(start, min(start + self.width, self.columns))
            steps = self._steps(part)
            slope = (steps * (self.curve[part] @ self.off)).sum(axis=0)
            bend = (steps * (self.curve[part, part] @ steps)).sum(axis=0)
            move = np.where(bend > TINY, -slope / np.maximum(bend, TINY), 0).astype(np.float32)
            is_lost = np.abs(self.scales[group] + move) < SMALLEST  # 0 is no scale
            move[is_lost] = 0
            self.scales[group] += move
            self.off[part] += steps * move

    def _steps(self, part: slice) -> Floats:
        """Codes less their zero points."""
        return self.codes[part] - self._wide(self.zeros, part)

    def _wide(self, by_group: Floats, part: slice) -> Floats:
        """One row for each column."""
        return by_group[np.arange(self.columns)[part] // self.width]
