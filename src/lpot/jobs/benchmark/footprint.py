"""How much memory a model needs to run: the peak of a process that does nothing else."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from lpot.core.batch import Inputs
from lpot.core.benchmark import Settings
from lpot.core.errors import LpotError
from lpot.core.model import Model
from lpot.jobs.benchmark.api import benchmark

logger = logging.getLogger(__name__)

_ONE_LOOK = Settings(iteration=1, warmup=1)


def peak_memory(model: Model, inputs: Inputs) -> int | None:
    """Bytes, or None where it can't be measured."""
    names = model.input_names or ()
    feeds = inputs if isinstance(inputs, Mapping) else dict(zip(names, inputs, strict=True))
    try:
        (measured,) = benchmark([model], feeds=feeds, settings=_ONE_LOOK).models
    except (LpotError, OSError) as error:
        logger.warning("memory was not measured: %s", error)
        return None
    if measured.error is not None:
        logger.warning("memory was not measured: %s", measured.error)
    return measured.peak_memory or None
