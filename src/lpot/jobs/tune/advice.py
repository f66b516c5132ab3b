"""Free choices first: what brings the outputs nearer to FP32, found without any label."""

from __future__ import annotations

import math
from dataclasses import replace

from lpot.core.backend import Observations
from lpot.core.files.journal import key_of
from lpot.core.files.timetable import keep, recall
from lpot.core.model import Model
from lpot.core.ptq.distance import few, mean_distance
from lpot.core.ptq.sensitivity import errors
from lpot.core.recipe import Recipe
from lpot.core.space import TuningSpace
from lpot.jobs.tune.job import Job

BETTER = 0.8  # of the outputs' error, below which advice is taken
FAR = 0.3  # of the outputs' size: nobody would call that the same model


def advised(job: Job, space: TuningSpace) -> TuningSpace:
    """The space with the best advice as the most wanted.

    The backend guesses from statistics; the outputs on a calibration batch decide. What was found
    is kept with the run, so that a rerun needs no calibration to propose the same recipes.
    """
    place = job.workspace.folder / f"advice-{key_of(job.fingerprint)}.json"
    known = recall(place, Recipe.from_json)
    if known is None:
        known = _best_advice(job, space)
        keep(place, known.to_json(), "the advice is")
    return space.preferring(known)


def _best_advice(job: Job, space: TuningSpace) -> Recipe:
    default = space.default()
    observations = job.observe(default.samples)
    if observations is None or not observations.probe:
        return default
    advice = job.backend.advise(job.model, default, observations)
    smooth = job.config.quantization.recipes.smooth_quant
    candidates = [
        _allowed(space, default, recipe)
        for recipe in advice
        if smooth or recipe.repairs == default.repairs
    ]
    candidates = [recipe for recipe in dict.fromkeys(candidates) if recipe != default]
    if not candidates:
        return default
    job.listener.phase("choosing ranges without labels")
    tried = dict(enumerate([default, *candidates]))
    off = errors(job.backend, job.model, tried, observations, few(observations.probe))
    job.model.close()
    usual = off.pop(0)
    least = min(off.values())
    if not least < BETTER * usual:
        return default
    best = tried[min(off, key=off.__getitem__)]
    added = [repair for repair in best.repairs.to_json() if repair not in default.repairs.to_json()]
    if added:
        job.add_note(
            f"outlier channels are smoothed ({', '.join(added)}): the error of the outputs "
            f"falls from {usual:.2g} to {least:.2g} of their power on the calibration data"
        )
    return best


def _allowed(space: TuningSpace, default: Recipe, recipe: Recipe) -> Recipe:
    """The advice as far as the user's rules go."""
    changes = {key: config for key, config in recipe.ops.items() if config in space.choices[key]}
    return replace(default.replace(changes), repairs=recipe.repairs)


def how_far(job: Job, model: Model, observations: Observations | None) -> str:
    """A sentence on the distance from FP32, for models that nobody evaluates; '' without data."""
    probe = few(observations.probe) if observations is not None else []
    if not probe:
        return ""
    exact, found = (
        [job.backend.run(one, inputs) for inputs in probe] for one in (job.model, model)
    )
    job.model.close()  # it opens again when it is run again; until then others need the memory
    share = math.sqrt(mean_distance(exact, found))
    if not math.isfinite(share):
        return (
            "on calibration data its outputs are not FP32's: some are NaN or infinite, of another "
            "shape, or not 0 where FP32 gives 0; give an evaluate function or a metric to search "
            "with"
        )
    told = f"on calibration data its outputs are off by {share:.2%} of FP32's (root mean square)"
    if share > FAR:
        return f"far from FP32: {told}; give an evaluate function or a metric to search with"
    return told
