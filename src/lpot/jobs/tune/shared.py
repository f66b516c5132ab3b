"""What a tuning may share with others of the same model (`jobs/many/pool.py`), and by what key."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from lpot.core.backend import Observations
from lpot.core.progress import counted

if TYPE_CHECKING:
    from lpot.jobs.tune.quantize import Job


def observed(job: Job) -> dict[int, Observations]:
    """Statistics for every number of samples that is asked for."""
    assert job.calibration is not None
    key = (job.fingerprint_of_model, job.calibration.fingerprint(), job.space.samples)
    return job.request.pool.observed(key, partial(_calibrate, job))


def baseline_key(job: Job) -> tuple[str, ...]:
    """What FP32's score depends on: not on the goal, and not on the target."""
    evaluation = job.config.evaluation.model_dump_json(exclude_unset=True, fallback=str)
    known = None if job.evaluator is None else job.evaluator.identity
    return (job.fingerprint_of_model, evaluation, str(known))


def _calibrate(job: Job) -> dict[int, Observations]:
    """One pass over the data."""
    assert job.calibration is not None
    sizes = job.space.samples
    steps = -(-max(sizes) // job.calibration.batch_size) or job.calibration.length
    job.listener.phase("calibrating", steps)
    batches = counted(job.calibration.batches(sizes), job.listener)
    found = job.backend.observe(job.model, batches, sizes)
    job.model.close()
    return found
