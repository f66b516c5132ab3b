"""Round to nearest, in groups."""

from __future__ import annotations

import numpy as np

from lpot.core.weight_only.grid import CHUNK, Codes, Floats, Format, Rounded, encode, fit, in_groups


def round_to_nearest(weight: Floats, fmt: Format, energy: Floats | None = None) -> Rounded:
    """The weight ([N, K]) on the grid; `energy` ([K]) is the mean square of each input."""
    rows, columns = weight.shape
    step = max(1, CHUNK // columns)
    weigh = None if energy is None else in_groups(energy[None].astype(np.float32), fmt)[0]
    parts = [_chunk(weight[at : at + step], fmt, weigh) for at in range(0, rows, step)]
    codes, scales, zeros = zip(*parts, strict=True)
    return Rounded(
        fmt,
        np.concatenate(codes),
        np.concatenate(scales),
        None if fmt.symmetric else np.concatenate(zeros),
    )


def _chunk(weight: Floats, fmt: Format, energy: Floats | None) -> tuple[Codes, Floats, Codes]:
    groups = in_groups(np.ascontiguousarray(weight, np.float32), fmt)
    scales, zeros = fit(groups, fmt, energy)
    middle = np.full(scales.shape, fmt.middle, np.uint8) if zeros is None else zeros
    codes = encode(groups, scales[..., None], middle[..., None], fmt).astype(np.uint8)
    return codes.reshape(len(weight), -1)[:, : weight.shape[1]], scales, middle
