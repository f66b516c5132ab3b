"""What calibration saw."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from lpot.core.batch import Inputs
from lpot.core.histogram import TensorStats


@dataclass(frozen=True, eq=False)
class Observations:
    """What one pass over the calibration data told, in bounded memory.

    `tensors` maps a tensor (or module) name to its statistics. `probe` keeps the inputs of the
    first batches, for label-free comparisons of outputs; it is never written to disk.
    """

    samples: int
    tensors: Mapping[str, TensorStats]
    probe: tuple[Inputs, ...] = ()
    extra: Mapping[str, Any] = field(default_factory=dict)  # what one backend alone needs
