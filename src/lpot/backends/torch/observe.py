"""One pass over the calibration data: statistics of every op's values, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from lpot.backends.torch.data import owned
from lpot.backends.torch.passes.equalize_layers import find_factors
from lpot.backends.torch.prepare import Prepared
from lpot.backends.torch.run import call
from lpot.backends.torch.trust import same_outputs
from lpot.backends.torch.watch import Watch
from lpot.core.backend import Observations
from lpot.core.batch import Batch, Inputs, size_in_bytes
from lpot.core.errors import CalibrationError
from lpot.core.observations import NO_BATCH

PROBE_SAMPLES = 32
PROBE_BYTES = 64 << 20


def observe(
    prepared: Prepared, batches: Iterable[Inputs], sizes: Sequence[int]
) -> dict[int, Observations]:
    """A snapshot for each size; size 0 stands for everything the loader gives."""
    source = iter(batches)
    first = next(source, None)
    if first is None:
        raise CalibrationError(NO_BATCH)
    factors = useful_factors(prepared, first)
    watch = Watch(prepared.equalized(factors), factors)
    probe: list[Inputs] = []
    done: dict[int, Observations] = {}
    wanted = sorted({size for size in sizes if size > 0})
    seen = kept = 0
    for number, inputs in enumerate(chain((first,), source), start=1):
        watch.run(inputs, number)
        if number == 1:
            watch.confirm(inputs)
        count = Batch(inputs).size
        # The first is kept whatever its size: without any there is no ranking.
        if not probe or (kept < PROBE_SAMPLES and nbytes(inputs) <= PROBE_BYTES):
            probe.append(owned(inputs))
            kept += count
        seen += count
        while wanted and seen >= wanted[0]:
            done[wanted.pop(0)] = watch.snapshot(seen, probe)
        if not wanted and 0 not in sizes:
            break
    last = watch.snapshot(seen, probe)
    return {size: done.get(size, last) for size in sizes}


def useful_factors(prepared: Prepared, inputs: Inputs) -> dict[str, np.ndarray]:
    """Factors of equalization, only in parts whose reading proves right on this batch."""
    factors = find_factors(prepared.streams, prepared.norms, prepared.sites, prepared.names)
    if not factors:
        return {}
    watch = Watch(prepared, {})
    truth = watch.run(inputs, 1)
    trusted = watch.trusted
    factors = {op: item for op, item in factors.items() if prepared.home[op] in trusted}
    if factors and same_outputs(truth, call(prepared.equalized(factors).fresh(), inputs)):
        return factors
    return {}


def nbytes(inputs: Inputs) -> int:
    values = inputs.values() if not isinstance(inputs, tuple) else inputs
    return sum(map(size_in_bytes, values))
