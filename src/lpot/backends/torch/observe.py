"""One pass over the calibration data: statistics of every op's values, in bounded memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain

import numpy as np

from lpot.backends.torch.data import owned
from lpot.backends.torch.files.trust import same_outputs
from lpot.backends.torch.observer import Observer
from lpot.backends.torch.passes.equalize_layers import find_factors
from lpot.backends.torch.prepare import Prepared
from lpot.backends.torch.run import call
from lpot.core.batch import Batch, Inputs
from lpot.core.errors import CalibrationError
from lpot.core.numerics.observations import NO_BATCH, Observations, Snapshots


def observe(
    prepared: Prepared, batches: Iterable[Inputs], sizes: Sequence[int]
) -> dict[int, Observations]:
    """A snapshot for each size; size 0 stands for everything the loader gives."""
    source = iter(batches)
    first = next(source, None)
    if first is None:
        raise CalibrationError(NO_BATCH)
    factors = useful_factors(prepared, first)
    observer = Observer(prepared.equalized(factors), factors)
    found = Snapshots(sizes, observer.snapshot, owned)
    for number, inputs in enumerate(chain((first,), source), start=1):
        observer.run(inputs, number)
        if number == 1:
            observer.confirm(inputs)
        found.add(inputs, Batch(inputs).size)
        if found.is_complete:
            break
    return found.all()


def useful_factors(prepared: Prepared, inputs: Inputs) -> dict[str, np.ndarray]:
    """Factors of equalization, only in parts whose reading proves right on this batch."""
    factors = find_factors(prepared.streams, prepared.norms, prepared.layers, prepared.names)
    if not factors:
        return {}
    observer = Observer(prepared, {})
    truth = observer.run(inputs, 1)
    trusted = observer.trusted
    factors = {op: item for op, item in factors.items() if prepared.home[op] in trusted}
    if factors and same_outputs(truth, call(prepared.equalized(factors).fresh(), inputs)):
        return factors
    return {}
