"""Training with quantization in mind, before the search: the user's own loop on a rounded model."""

from __future__ import annotations

import hashlib
import json
import secrets
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lpot.config.rules import trains
from lpot.core.backend import Observations, Trainable
from lpot.core.batch import Batch, Inputs
from lpot.core.blame import raised
from lpot.core.calibration import ENDLESS_SAMPLES, Calibration, owned
from lpot.core.errors import ConfigError, LpotError, TrainingError
from lpot.core.eval_func import source_hash
from lpot.core.evaluate import Evaluator
from lpot.core.history import History
from lpot.core.model import Model
from lpot.core.result import Result
from lpot.core.store import load_observations, observations_path
from lpot.core.tune import guarded, score_baseline, serial
from lpot.jobs.tune.evaluation import plain, yaml_loader
from lpot.jobs.tune.quantize import Job, Request
from lpot.jobs.tune.trained import FOLDER, known_stamp, trained_model

APPROACH = "quantization.approach"
SECTION = "quantization.train"
MOST_SAMPLES = 1000  # kept in memory, for the calibrations before and after the training

Loop = Callable[[Any], Any]


def wants_training(request: Request) -> bool:
    return trains(request.config, request.q_func is not None)


@dataclass(frozen=True, eq=False)
class Training:
    """What a training depends on, the name of its outcome, and the outcome where it is known.

    Scores in a history hold for that very outcome and no other: its name is in the fingerprint.
    """

    origin: str
    stamp: str
    model: Model | None = None
    observed: dict[int, Observations] | None = None  # where there are no calibration data


class TrainJob(Job):
    """A job that trains first. Its trials are built from the trained model; FP32 is the bar."""

    def __init__(self, request: Request) -> None:
        super().__init__(request)
        self.loop = _loop(self)

    def _check_calibration(self) -> None:
        """None is needed: the batches that the loop trains with will do."""
        if self.calibration is not None:
            super()._check_calibration()

    @cached_property
    def training(self) -> Training:
        source = source_hash(self.loop)
        facts = json.dumps([super()._facts(), source], sort_keys=True)
        origin = hashlib.sha256(facts.encode()).hexdigest()[:32]
        stamp = known_stamp(self.workspace.folder, origin) if source is not None else None
        found = None if stamp is None else self._earlier(origin, stamp)
        return found or Training(origin, secrets.token_hex(8))

    def _earlier(self, origin: str, stamp: str) -> Training | None:
        """What an earlier run left, if all of it can be used."""
        folder = self.workspace.folder
        try:
            model = trained_model(self.backend, self.model, folder, stamp)
            if self.calibration is not None:
                return Training(origin, stamp, model)
            fingerprint = {**super()._facts(), "training": stamp}
            observed = load_observations(observations_path(folder, fingerprint))
        except LpotError as error:
            self.add_note(f"{folder / FOLDER} can't be used ({error}): the model is trained again")
            return None
        return Training(origin, stamp, model, observed)

    def _facts(self) -> dict[str, str]:
        return {**super()._facts(), "training": self.training.stamp}

    def prepare(self, evaluator: Evaluator, history: History) -> None:
        if history.baseline is None:  # before hours of training: eval_func may be wrong
            score_baseline(self.task(evaluator, history, serial))
        self._train()

    def build_once(self) -> Result:
        self._train()
        return super().build_once()

    def observe(self, samples: int) -> Observations | None:
        known = self._observed
        return known[samples] if known is not None else super().observe(samples)

    def _train(self) -> None:
        training, folder = self.training, self.workspace.folder / FOLDER
        stamp = self.fingerprint["training"]  # asked now: the calibration will be another one
        if training.model is not None:
            self.model, self._observed = training.model, training.observed
            self.add_note(
                f"the weights trained earlier are used ({folder}): delete them, or use --new-run, "
                "to train again"
            )
        else:
            self.model = self._trained()
            self.observe(max(self.space.samples))  # and stored, for a later run
            self.model.card = {"training": {"origin": training.origin, "stamp": stamp}}
            self.backend.save(self.model, folder)
        # Other processes make their trials from the trained model, too.
        self.request = replace(self.request, model=self.model.native, q_func=None)

    def _trained(self) -> Model:
        backend = self.backend
        assert isinstance(backend, Trainable)  # or there would be no loop
        held, before = self._calibrated()
        samples = max(self.space.samples) or ENDLESS_SAMPLES
        trainee = backend.prepare_training(self.model, self.space.default(), before, samples)
        self.listener.phase("training")
        returned = guarded(lambda: self.loop(trainee.native))
        if isinstance(returned, LpotError):
            raise returned
        if isinstance(returned, Exception):
            said = f"{self.request.door.train} raised {raised(returned)}"
            raise TrainingError(said) from returned
        trained: Model = backend.finish_training(self.model, trainee, returned)
        seen = held or trainee.seen
        if not seen:
            raise TrainingError(
                "q_func trained without ever running the whole model, so nothing is known of its "
                "inputs: give calibration data as well"
            )
        # Pairs: a tuple of inputs alone could be taken for inputs and labels.
        batches = [(inputs, None) for inputs in seen]
        self.calibration = Calibration(batches, trained.input_names)
        return trained

    def _calibrated(self) -> tuple[list[Inputs], Observations | None]:
        """The calibration batches, and what FP32 makes of them; neither without a loader."""
        if self.calibration is None:
            return [], None
        self.listener.phase("calibrating before training")
        held = _held(self.calibration.batches(self.space.samples))
        return held, self.backend.observe(self.model, held, (0,))[0]


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


def _loop(job: Job) -> Loop:
    """q_func, or one made from the yaml; what can't be is said before anything is evaluated."""
    backend = job.backend
    if not isinstance(backend, Trainable):
        raise _wrong(
            job,
            f"backend {backend.name} can't train: give the torch module, or quantize after "
            "training (post_training_static_quant)",
        )
    given = job.request.q_func
    if given is None:
        return _from_section(job, backend)
    if not callable(given) or isinstance(given, type):
        raise ConfigError(
            f"given a {type(given).__name__}, expected a function q_func(model) that trains the "
            "model it is given",
            "q_func",
        )
    return given


def _from_section(job: Job, backend: Trainable) -> Loop:
    section = job.config.quantization.train
    if section is None:
        raise _wrong(
            job,
            "quant_aware_training needs your training loop: give q_func, a function that trains "
            f"the model it is given, or `{SECTION}` with optimizer, criterion and dataloader",
        )
    needed = ("optimizer", "criterion", "dataloader", "end_epoch")
    lacking = [name for name in needed if getattr(section, name) is None]
    if lacking:
        raise _wrong(
            job, f"{' and '.join(lacking)} not given: all of {', '.join(needed)} are", SECTION
        )
    loader = yaml_loader(job.config, section.dataloader, f"{SECTION}.dataloader")
    return backend.training_loop(plain(section), loader)


def _wrong(job: Job, message: str, path: str = APPROACH) -> ConfigError:
    return ConfigError(message, path, job.config.where(path))
