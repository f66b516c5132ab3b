"""Prune, distill and quantize under one bar: recipes say how much was pruned."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from lpot.config.schema import Config
from lpot.config.schema_pruning import StructuredPruning
from lpot.core.backend import Backend, Observations
from lpot.core.batch import Batch
from lpot.core.compress.prunable import Prunable
from lpot.core.compress.samples import first, first_batches
from lpot.core.compress.settings import Distill, Structured
from lpot.core.compress.training_data import TrainingData
from lpot.core.errors import ConfigError, HistoryError, LpotError
from lpot.core.evaluation.identity import data_digest
from lpot.core.files.card import read_card
from lpot.core.limits import Watch
from lpot.core.loader import length_of
from lpot.core.model import Model
from lpot.core.recipe import Recipe
from lpot.core.repairs import pruned
from lpot.core.space import TuningSpace
from lpot.core.strategy import Policy, Proposals, StrategyContext
from lpot.core.trial import Trial
from lpot.jobs.compress.sensitivity import Pruned, Sensitivity, Workbench
from lpot.jobs.compress.variants import folder_of, keep_statistics, origin_of
from lpot.jobs.tune.evaluation import plain, yaml_loader
from lpot.jobs.tune.job import Job
from lpot.jobs.tune.mode import Mode
from lpot.jobs.tune.plan import Plan
from lpot.jobs.tune.request import Request
from lpot.strategy.ranges import other_ranges

# -- What a request asks of pruning under the bar, and what it must give for it.


SECTION = "pruning.approach.structured"
TRAIN = "pruning.train"


def settings(config: Config) -> Structured:
    assert config.pruning is not None and config.pruning.approach.structured is not None
    return settings_of(config.pruning.approach.structured, config.tuning.random_seed)


def check_compression(
    request: Request, config: Config, backend: Backend, model: Model, calibrates: bool
) -> None:
    """Before anything is evaluated."""
    if not isinstance(backend, Prunable):
        raise ConfigError(
            f"backend {backend.name} can't remove channels: give a torch module or a Keras model",
            SECTION,
            config.where(SECTION),
        )
    backend.check_prunable(model)
    if config.pruning is not None and config.pruning.approach.weight_compression is not None:
        raise ConfigError(
            "both `structured` and `weight_compression` are given, expected one of them: for both, "
            "chain two components with Scheduler",
            SECTION,
            config.where(SECTION),
        )
    train = None if config.pruning is None else config.pruning.train
    given = request.train is not None or (train is not None and train.dataloader is not None)
    if not given and not calibrates:
        raise ConfigError(
            "structured pruning trains what is left: give train_dataloader, or "
            "`pruning.train.dataloader` in the yaml",
            SECTION,
            config.where(SECTION),
        )


def settings_of(section: StructuredPruning, seed: int) -> Structured:
    distill = Distill(
        epochs=section.epochs,
        learning_rate=section.learning_rate,
        temperature=section.temperature,
        logits=section.logits,
        features=section.features,
        labels=section.labels,
        mixup=section.mixup,
        seed=seed,
    )
    ratios = tuple(sorted(section.ratio, reverse=True))
    return Structured(ratios, section.blocks, section.samples, section.batch_size, distill)


# -- A training that ends when its job is to end: an epoch may take an hour.


class Stopped(LpotError):
    """The user asked to stop, or the time is up."""


class Stoppable:
    """A loader that raises `Stopped` at the first batch after that.

    >>> from lpot.core.limits import Limits
    >>> watch = Watch(Limits())
    >>> list(Stoppable([1, 2], watch))
    [1, 2]
    >>> watch.request_stop("Ctrl-C")
    >>> list(Stoppable([1, 2], watch))
    Traceback (most recent call last):
    ...
    lpot.jobs.compress.job.Stopped: the training was stopped: Ctrl-C
    """

    def __init__(self, loader: Iterable[Any], watch: Watch) -> None:
        self._loader, self._watch = loader, watch

    def __iter__(self) -> Iterator[Any]:
        for raw in self._loader:
            if self._watch.requested or self._watch.time_is_up:
                why = self._watch.requested or "the time is up"
                raise Stopped(f"the training was stopped: {why}")
            yield raw

    def __len__(self) -> int:
        found = length_of(self._loader)
        return sum(1 for _ in self._loader) if found is None else found


# -- Cuts that save alike, compared by what a short training makes of each.


SHARE = 30  # the short training is a thirtieth of the long one
CLOSE = 1.25  # times the least error: what is further off is not trained
MOST = 5


def planned(
    sensitivity: Sensitivity, ratio: float, train: Callable[[Model], Model] | None = None
) -> Pruned:
    """The best cuts that save this share of the latency.

    A layer that stands for a block is fitted as well as it can be, while blocks and channels that
    are left have more to learn: equal errors after the fit are not equal after training.
    """
    found = sensitivity.cheapest(ratio)
    least = sensitivity.together(found[0][0]) if train and len(found) > 1 else 0.0
    close = [pair for pair in found if sensitivity.together(pair[0]) <= CLOSE * least]
    if train is None or len(close) < 2:
        return sensitivity.plan(*found[0])
    # Of many small cuts each was one more guess: the sets with the fewest are compared.
    few = sorted(close, key=lambda pair: len(pair[0]))[:MOST]
    errors = []
    for number, (cuts, _) in enumerate(few, start=1):
        sensitivity.bench.listener.phase(
            f"comparing cuts after a short training of each, {number} of {len(few)}"
        )
        errors.append(sensitivity.low_error(train(sensitivity.fitted(cuts))))
    return sensitivity.plan(*few[errors.index(min(errors))])


Outcome = Literal["met", "slow", "missed"]  # of a level
GOES_ON: Mapping[Outcome, str] = {
    "slow": "meets the bar only with ops in FP32: less pruning, and none, are tried, too",
    "missed": "does not meet the bar: trying a smaller share",
}
NEAR = 0.8  # of the wanted share of the latency: less than that is told
# Samples that the chosen cuts are fitted to, for each that a cut is judged by: fits to few samples
# are good for these alone.
FITTED = 4


class Pruning(Mode):
    """Channels and blocks go, what is left is trained, and then quantized: under one bar."""

    def check(
        self, request: Request, config: Config, backend: Backend, model: Model, calibrated: bool
    ) -> None:
        check_compression(request, config, backend, model, calibrated)

    def question(self, plan: Plan) -> Mapping[str, str]:
        """What a pruned model is trained with decides as much as how."""
        section = None if plan.config.pruning is None else plan.config.pruning.train
        given = plan.request.train
        if given is None and section is not None and section.dataloader is not None:
            given = yaml_loader(plan.config, section.dataloader, f"{TRAIN}.dataloader")
        data = data_digest(given)
        told = [settings(plan.config).to_json(), plain(section), data]
        text = json.dumps(told, sort_keys=True, default=str)
        return {"pruning": hashlib.sha256(text.encode()).hexdigest()[:32]}

    def ready(self, job: Job) -> Job:
        """The job whose search goes through levels of pruning."""
        levels = Levels(job)
        if job.config.tuning.executor.name != "serial":
            job.add_note("pruned models are trained and evaluated in this process only")
        return replace(job, policy=Policy(levels.propose, settles=True, check=job.policy.check))


class Levels:
    """The boldest pruning that meets the bar wins; plain INT8 is the last resort.

    Each level is pruned by sensitivity per latency gained, trained after the FP32 model, and then
    quantized by the search that the configuration names. Trained levels lie in the workspace, so
    that a rerun goes on from there.
    """

    def __init__(self, job: Job) -> None:
        self.job = job
        self.settings = settings(job.config)
        self.loader = self._training_data()
        self._inner = job.policy
        self._sensitivity: Sensitivity | None = None

    def _training_data(self) -> Iterable[Any]:
        job = self.job
        train = None if job.config.pruning is None else job.config.pruning.train
        if job.request.train is not None:
            return TrainingData(job.request.train)
        if train is not None and train.dataloader is not None:
            path = f"{TRAIN}.dataloader"
            return TrainingData(yaml_loader(job.config, train.dataloader, path), path)
        assert job.calibration is not None  # the plan was checked
        job.add_note(
            "warning: no training data was given: the pruned model is trained on the calibration "
            "samples, which are few; give train_dataloader or `pruning.train.dataloader`"
        )
        return [(batch, None) for batch in job.calibration.batches(job.space.samples)]

    # -- the search ---------------------------------------------------------------------------

    def propose(self, space: TuningSpace, context: StrategyContext) -> Proposals:
        """A level that meets the bar only with ops in FP32 may be slower than plain INT8: the
        search goes on, and the fastest counts."""
        pruned_met = False
        for ratio in self.settings.ratios:
            if not self._ready(ratio, context):
                continue
            outcome = yield from self._level(space, context, ratio)
            if outcome == "met":
                return
            pruned_met |= outcome == "slow"
            self.job.add_note(f"{pruned(ratio)} {GOES_ON[outcome]}")
        met = yield from self._search(space, context, None)
        if met and not pruned_met:
            self.job.add_note("no pruned model met the bar: the model is quantized without pruning")

    def _level(
        self, space: TuningSpace, context: StrategyContext, ratio: float
    ) -> Generator[Sequence[Recipe], Sequence[Trial], Outcome]:
        """INT8 at once; where that is not enough, is it the pruning or the rounding?"""
        default = space.default()
        (trial,) = yield [_marked(default, ratio)]
        if trial.met:
            return "met"
        (trial,) = yield [_marked(default.with_float(default.low_ops), ratio)]
        if not trial.met:
            return "missed"
        for recipe in other_ranges(space, default):
            (trial,) = yield [_marked(recipe, ratio)]
            if trial.met:
                return "met"
        yield from self._search(space, context, ratio)
        return "slow"

    def _search(
        self, space: TuningSpace, context: StrategyContext, ratio: float | None
    ) -> Generator[Sequence[Recipe], Sequence[Trial], bool]:
        """The strategy that the configuration names, on one level, up to its first success."""
        proposals = self._inner(space, context)
        batch = next(proposals, None)
        while batch:
            trials = yield [_marked(recipe, ratio) for recipe in batch]
            if any(trial.met for trial in trials):
                return True
            plain = [replace(t, recipe=r) for t, r in zip(trials, batch, strict=False)]
            try:
                batch = proposals.send(plain)
            except StopIteration:
                return False
        return False

    # -- pruned models ------------------------------------------------------------------------

    def _ready(self, ratio: float, context: StrategyContext) -> bool:
        """The pruned and trained model of this level; from an earlier run where there is one."""
        word, backend = pruned(ratio), self.job.backend
        assert isinstance(backend, Prunable)
        folder = folder_of(self.job.workspace.folder, word)
        variant, words = self._earlier(folder)
        if variant is not None:
            self._tell(word, words, variant)
        else:
            context.forget(lambda recipe: recipe.repairs.pruning == ratio)
            try:
                variant = self._made(ratio, word, folder)
            except Stopped as stopped:
                self.job.add_note(f"{word}: {stopped}; the next run starts it again")
                return False
            if variant is None:
                self.job.add_note(
                    f"{word}: nothing that can be cut saves time; this level is skipped"
                )
                return False
        observed = self._observe(variant)
        keep_statistics(folder, observed)
        backend.keep_variant(self.job.model, word, variant, observed)
        return True

    def _tell(self, word: str, words: str, variant: Model) -> None:
        sizes = " to ".join(f"{model.nbytes / 2**20:.2f} MB" for model in (self.job.model, variant))
        self.job.add_note(f"{word}: {words}; {sizes} in FP32")

    def _made(self, ratio: float, word: str, folder: Path) -> Model | None:
        """Cut, trained and saved; None where no cut saves time."""
        plan = self._planned(ratio)
        if plan.gain <= 0:
            return None
        self._tell(word, f"{plan.words}, which saves {100 * plan.gain:.0f} %", plan.model)
        if plan.gain < NEAR * ratio:
            self.job.add_note(f"{word}: there is no more to cut that saves time")
        self.job.listener.phase(f"training the model {word}")
        made = self._trained(plan.model, self.settings.distill)
        made.card = {"pruning": {"origin": self._origin, "cuts": plan.words}}
        self.job.backend.save(made, folder)
        return made

    def _trained(self, small: Model, how: Distill) -> Model:
        """Raises Stopped where the time is over before."""
        backend: Any = self.job.backend
        loader = Stoppable(self.loader, self.job.watch)
        made: Model = backend.distilled(small, self.job.model, loader, how)
        return made

    @property
    def _origin(self) -> str:
        return origin_of(self.job.fingerprint)

    def _earlier(self, folder: Path) -> tuple[Model | None, str]:
        try:
            card = read_card(folder).get("pruning")
        except HistoryError:
            return None, ""
        if not isinstance(card, dict) or card.get("origin") != self._origin:
            return None, ""
        assert isinstance(self.job.backend, Prunable)
        try:
            found = self.job.backend.reopen(self.job.model, folder)
        except LpotError as error:
            self.job.add_note(f"{folder} can't be used ({error}): the model is trained again")
            return None, ""
        self.job.add_note(f"the model trained earlier is used ({folder})")
        return found, str(card.get("cuts"))

    def _planned(self, ratio: float) -> Pruned:
        if self._sensitivity is None:
            backend, most = self.job.backend, self.settings.samples
            assert isinstance(backend, Prunable)
            self.job.listener.phase("finding what can be pruned")
            more = first_batches(self.loader, FITTED * most, self.job.model.input_names)
            few = more[: -(-most // max(1, Batch(more[0]).size))]
            parts = backend.parts(self.job.model, few, self.settings.blocks)
            recipe = replace(self.job.space.default(), samples=0)
            size = self.settings.batch_size
            timed = few[0] if size is None else first(few[0], size)
            bench = Workbench(backend, self.job.model, recipe, few, more, timed, self.job.listener)
            self._sensitivity = Sensitivity(bench, parts)
        short = replace(self.settings.distill, epochs=self.settings.distill.epochs // SHARE)
        train = (lambda small: self._trained(small, short)) if short.epochs else None
        return planned(self._sensitivity, ratio, train)

    def _observe(self, variant: Model) -> dict[int, Observations]:
        if self.job.calibration is None:
            return {}
        self.job.listener.phase("calibrating the pruned model")
        batches = self.job.calibration.batches(self.job.space.samples)
        return self.job.backend.observe(variant, batches, self.job.space.samples)


def _marked(recipe: Recipe, ratio: float | None) -> Recipe:
    return replace(recipe, repairs=replace(recipe.repairs, pruning=ratio))
