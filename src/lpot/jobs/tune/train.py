"""Quantization-aware training before the search: the user's own loop on a rounded model.

Trials are built from the trained model; the bar is set by FP32 as given.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from lpot.config.schema import Config
from lpot.core.backend import Backend, Observations, Trainable
from lpot.core.batch import Batch, Inputs
from lpot.core.blame import raised
from lpot.core.calibration import ENDLESS_SAMPLES, Calibration, owned
from lpot.core.compress.training_data import TrainingData
from lpot.core.errors import ConfigError, LpotError, TrainingError, a_kind
from lpot.core.evaluation.identity import data_digest, source_hash
from lpot.core.files.store import load_observations, observations_path
from lpot.core.model import Model
from lpot.core.tune import guarded
from lpot.jobs.tune.evaluation import plain, yaml_loader
from lpot.jobs.tune.job import Job
from lpot.jobs.tune.mode import Loop, Mode
from lpot.jobs.tune.plan import Plan
from lpot.jobs.tune.request import Request
from lpot.jobs.tune.trained import FOLDER, known_stamp, trained_model
from lpot.jobs.tune.trainers import check_trainers, located

# -- The training loop of quantization-aware training: q_func, or one made from the yaml.


APPROACH = "quantization.approach"
SECTION = "quantization.train"


def training_loop(request: Request, config: Config, backend: Backend) -> Loop:
    """What can't be trained is an error before anything is evaluated."""
    if not isinstance(backend, Trainable):
        raise _wrong(
            config,
            f"backend {backend.name} can't train: give the torch module, or quantize after "
            "training (post_training_static_quant)",
        )
    given = request.q_func
    if given is None:
        return _from_section(config, backend)
    if not callable(given) or isinstance(given, type):
        raise ConfigError(
            f"given {a_kind(given)}, expected a function q_func(model) that trains the "
            "model it is given",
            "q_func",
        )
    return given


def _from_section(config: Config, backend: Trainable) -> Loop:
    section = config.quantization.train
    if section is None:
        raise _wrong(
            config,
            "quant_aware_training needs your training loop: give q_func, a function that trains "
            f"the model it is given, or `{SECTION}` with optimizer, criterion and dataloader",
        )
    needed = {
        "optimizer": section.optimizer,
        "criterion": section.criterion,
        "dataloader": section.dataloader,
        "end_epoch": section.end_epoch,
    }
    lacking = [name for name, value in needed.items() if value is None]
    if lacking:
        raise _wrong(
            config,
            f"{' and '.join(lacking)} not given: {', '.join(needed)} are all needed",
            SECTION,
        )
    check_trainers(config, section, SECTION, backend)
    place = f"{SECTION}.dataloader"
    loader = TrainingData(yaml_loader(config, section.dataloader, place), place)
    return backend.training_loop(plain(section), loader)


def _wrong(config: Config, message: str, path: str = APPROACH) -> ConfigError:
    return ConfigError(message, path, config.where(path))


MOST_SAMPLES = 1000  # kept in memory, for the calibrations before and after the training


@dataclass(frozen=True, eq=False)
class Training:
    """What a training depends on, the name of its outcome, and the outcome where it is known.

    Scores in a history hold for that very outcome and no other: its name is in the fingerprint.
    """

    loop: Loop
    origin: str
    stamp: str
    model: Model | None = None
    observed: dict[int, Observations] | None = None  # where there are no calibration data
    remark: str = ""


class QuantizationAware(Mode):
    """A training with the rounding in it comes before the search."""

    calibrates = False  # the batches that the training uses will do
    training: Training | None = None  # found once its workspace is locked

    def loop(self, request: Request, config: Config, backend: Backend) -> Loop | None:
        return training_loop(request, config, backend)

    def unused(self, request: Request, config: Config) -> list[str]:
        return []

    def question(self, plan: Plan) -> Mapping[str, str]:
        assert plan.loop is not None
        return {"loop": f"{source_hash(plan.loop)} {data_digest(plan.loop)}"}

    def facts(self, plan: Plan) -> Mapping[str, str]:
        """Scores hold for one outcome of the training and no other."""
        assert plan.loop is not None
        self.training = find_training(plan, plan.loop)
        return {**plan.question, "training": self.training.stamp}

    def trained(self, job: Job) -> Job:
        assert self.training is not None
        return train(job, self.training)


def find_training(plan: Plan, loop: Loop) -> Training:
    """With its model where an earlier run left it."""
    source = source_hash(loop)
    facts = json.dumps(plan.question, sort_keys=True)
    origin = hashlib.sha256(facts.encode()).hexdigest()[:32]
    folder = plan.workspace.folder
    stamp = known_stamp(folder, origin) if source is not None else None
    remark = ""
    if stamp is not None:
        try:
            return _earlier(plan, loop, origin, stamp)
        except LpotError as error:
            remark = f"{folder / FOLDER} can't be used ({error}): the model is trained again"
    return Training(loop, origin, secrets.token_hex(8), remark=remark)


def _earlier(plan: Plan, loop: Loop, origin: str, stamp: str) -> Training:
    """What an earlier run left, if all of it can be used."""
    folder = plan.workspace.folder
    model = trained_model(plan.backend, plan.source, folder, stamp)
    if plan.calibration is not None:
        return Training(loop, origin, stamp, model)
    observed = load_observations(observations_path(folder, {**plan.question, "training": stamp}))
    return Training(loop, origin, stamp, model, observed)


def train(job: Job, training: Training) -> Job:
    """The job with the trained model, from an earlier run or trained now."""
    folder = job.workspace.folder / FOLDER
    if training.remark:
        job.add_note(training.remark)
    if training.model is not None:
        job.add_note(
            f"the weights trained earlier are used ({folder}): delete them, or use --new-run, "
            "to train again"
        )
        return job.trained(training.model, job.calibration, training.observed)
    model, seen = _run(job, training.loop)
    # Pairs: a tuple of inputs alone could be taken for inputs and labels.
    batches = [(inputs, None) for inputs in seen]
    done = job.trained(model, Calibration(batches, model.input_names))
    done.observe(max(job.space.samples))  # and stored, for a later run
    model.card = {"training": {"origin": training.origin, "stamp": training.stamp}}
    job.backend.save(model, folder)
    return done


def _run(job: Job, loop: Loop) -> tuple[Model, list[Inputs]]:
    """The trained model, and inputs to calibrate it with."""
    backend: Any = job.backend
    assert isinstance(backend, Trainable)  # or there would be no loop
    held, before = _calibrated(job)
    samples = max(job.space.samples) or ENDLESS_SAMPLES
    trainee = backend.prepare_training(job.model, job.space.default(), before, samples)
    job.listener.phase("training")
    returned = guarded(lambda: loop(trainee.native))
    if isinstance(returned, LpotError):
        raise located(returned, job.config, "quantization.train")
    if isinstance(returned, Exception):
        said = f"{job.request.door.train} raised {raised(returned)}"
        raise TrainingError(said) from returned
    trained: Model = backend.finish_training(job.model, trainee, returned)
    seen = held or list(trainee.seen)
    if not seen:
        raise TrainingError(
            "q_func trained without ever running the whole model, so nothing is known about its "
            "inputs: give calibration data as well"
        )
    return trained, seen


def _calibrated(job: Job) -> tuple[list[Inputs], Observations | None]:
    """The calibration batches, and what FP32 makes of them; neither without a loader."""
    if job.calibration is None:
        return [], None
    job.listener.phase("calibrating before training")
    held = _held(job.calibration.batches(job.space.samples))
    return held, job.backend.observe(job.model, held, (0,))[0]


def _held(batches: Iterable[Inputs]) -> list[Inputs]:
    found: list[Inputs] = []
    seen = 0
    for inputs in batches:
        batch = owned(Batch(inputs))
        found.append(batch.inputs)
        seen += batch.size
        if seen >= MOST_SAMPLES:
            break
    return found
