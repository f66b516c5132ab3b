"""`tuning.diagnosis`: the tensors of FP32 and of the best model, side by side in the workspace."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lpot.core.backend import Traced
from lpot.core.errors import LpotError
from lpot.core.model import Model

if TYPE_CHECKING:
    from lpot.jobs.tune.job import Job

FOLDER = "inspect_saved"
SIDES = ("fp32.npz", "low.npz")
TOGETHER = 128  # ops looked at in one run: bounds the memory


def dump_tensors(job: Job, model: Model) -> None:
    """What each op gave on the first calibration batch, and its weight, in both models.

    `inspect_saved/fp32.npz` and `low.npz` hold arrays under `output/<op>` and `weight/<op>`; of
    large tensors evenly thinned values, in one row.
    """
    if not job.config.tuning.diagnosis:
        return
    backend = job.backend
    if not isinstance(backend, Traced) or job.calibration is None:
        why = "needs calibration data" if job.calibration is None else f"{backend.name} has none"
        job.add_note(f"tuning.diagnosis: no tensors between ops were kept: {why}")
        return
    job.listener.phase("keeping tensors for diagnosis")
    keys = [info.key for info in job.capability.low()]
    sides: tuple[dict[str, Any], dict[str, Any]] = ({}, {})
    try:
        inputs = job.calibration.first.inputs
        for start in range(0, len(keys), TOGETHER):
            found = backend.tensors(job.model, model, keys[start : start + TOGETHER], inputs)
            for key, pair in found.items():
                for arrays, tensors in zip(sides, pair, strict=True):
                    for what, seen in (("output", tensors.output), ("weight", tensors.weight)):
                        if seen is not None:
                            arrays[f"{what}/{key.name}"] = seen.shaped
        folder = job.workspace.folder / FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        for name, arrays in zip(SIDES, sides, strict=True):
            np.savez_compressed(folder / name, **arrays)
    except (LpotError, OSError) as error:
        job.add_note(f"tuning.diagnosis: the tensors were not kept ({error})")
        return
    job.add_note(f"tensors of {len(keys)} op(s), FP32 and low precision: {folder}")
