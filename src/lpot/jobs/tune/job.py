"""One tuning under way: the plan, and the few things that change while it is carried out."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, TypeVar, runtime_checkable

from lpot.core.backend import Backend, Observations
from lpot.core.batch import Inputs
from lpot.core.calibration import Calibration
from lpot.core.errors import WorkspaceError
from lpot.core.evaluation.evaluate import Evaluator
from lpot.core.files.journal import key_of
from lpot.core.files.store import observations_path, save_observations
from lpot.core.files.timetable import UNUSABLE, keep, recall
from lpot.core.limits import Watch
from lpot.core.model import Model
from lpot.core.progress import Listener, counted
from lpot.core.recipe import OpConfig, OpKey, Recipe
from lpot.core.results.result import Result
from lpot.core.strategy import Tradeoff, Tradeoffs
from lpot.core.trial import Trial
from lpot.jobs.benchmark.quick_look import QuickLook
from lpot.jobs.many.pool import Observed
from lpot.jobs.tune.plan import Plan
from lpot.version import VERSION

# -- What a run found out about its ops, kept with it.
#
# Times and sensitivities come out a little different when they are measured again, and a search
# that is replayed must propose the recipes of before. Nothing is measured twice then, either.


logger = logging.getLogger(__name__)

Answer = TypeVar("Answer")


class Findings:
    """Answers by question and recipe. A file that can't be read or written is only a slower one."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._known: dict[str, Any] = recall(place, dict) or {}

    def numbers(
        self, question: str, recipe: Recipe, ask: Callable[[], Mapping[OpKey, float]]
    ) -> dict[OpKey, float]:
        """A number for each op: those of before, or those that `ask` gives now."""
        return self._answer(question, recipe, ask, _numbers_to_json, _numbers_from_json)

    def tradeoffs(self, recipe: Recipe, ask: Callable[[], Tradeoffs]) -> Tradeoffs:
        return self._answer("tradeoffs", recipe, ask, _tradeoffs_to_json, _tradeoffs_from_json)

    def _answer(
        self,
        question: str,
        recipe: Recipe,
        ask: Callable[[], Mapping[OpKey, Any]],
        to_json: Callable[[Any], Any],
        from_json: Callable[[Any], Answer],
    ) -> Answer:
        name = f"{question} {recipe.digest}"
        if name in self._known:
            try:
                return from_json(self._known[name])
            except UNUSABLE as error:
                logger.info("%s: %s can't be used (%s)", self.place, name, error)
        found = ask()
        if found:
            self._known[name] = to_json(found)
            keep(self.place, self._known, "findings are")
        return from_json(to_json(found))


def _numbers_to_json(numbers: Mapping[OpKey, float]) -> list[Any]:
    return [[key.name, key.kind, float(value)] for key, value in numbers.items()]


def _numbers_from_json(raw: Any) -> dict[OpKey, float]:
    return {_key(name, kind): _number(value) for name, kind, value in raw}


def _tradeoffs_to_json(tradeoffs: Tradeoffs) -> list[Any]:
    return [
        [
            key.name,
            key.kind,
            [[o.config.to_json(), o.error, o.time, o.size, list(o.phases)] for o in options],
        ]
        for key, options in tradeoffs.items()
    ]


def _tradeoffs_from_json(raw: Any) -> dict[OpKey, tuple[Tradeoff, ...]]:
    return {_key(name, kind): tuple(map(_tradeoff, options)) for name, kind, options in raw}


def _tradeoff(raw: Any) -> Tradeoff:
    config, error, time, size, phases = raw
    return Tradeoff(
        OpConfig.from_json(config),
        _number(error),
        _number(time),
        int(_number(size)),
        tuple(map(_number, phases)),
    )


def _key(name: Any, kind: Any) -> OpKey:
    if type(name) is not str or type(kind) is not str:
        raise ValueError("an op's name or kind is not text")
    return OpKey(name, kind)


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise ValueError(f"{value!r} is not a number")
    return float(value)


# -- What calibration saw: the data are read once, when first asked for.


@dataclass(frozen=True, eq=False, kw_only=True)
class Statistics:
    """Observations by number of samples; None where there are no calibration data."""

    backend: Backend
    model: Model
    calibration: Calibration | None
    sizes: tuple[int, ...]
    place: Path  # where they are kept, for `recover`
    sync: Callable[[], None]  # to where the workspace really is
    listener: Listener
    note: Callable[[str], None]
    share: Callable[[Callable[[], Observed]], Observed] = lambda make: make()  # `jobs/many/pool.py`
    given: Mapping[int, Observations] | None = None  # by an earlier run

    def __call__(self, samples: int) -> Observations | None:
        known = self.given if self.given is not None else self._observed
        return None if known is None else known[samples]

    @cached_property
    def _observed(self) -> Mapping[int, Observations] | None:
        if self.calibration is None:
            return None
        calibration = self.calibration
        observed = self.share(lambda: self._calibrate(calibration))
        for text in calibration.notes:
            self.note(text)
        self._store(observed)
        return observed

    def _calibrate(self, calibration: Calibration) -> Observed:
        """One pass over the data."""
        steps = -(-max(self.sizes) // calibration.batch_size) or calibration.length
        self.listener.phase("calibrating", steps)
        batches = counted(calibration.batches(self.sizes), self.listener)
        observed = self.backend.observe(self.model, batches, self.sizes)
        self.model.close()
        return observed

    def _store(self, observed: Mapping[int, Observations]) -> None:
        try:
            save_observations(self.place, observed)
            self.sync()
        except OSError as error:
            self.note(
                f"warning: {self.place} can't be written ({error.strerror}): "
                "the tuning continues, but `recover` will not find its statistics"
            )


class Notes:
    """What the user should read in the end, each said once and when it is known."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self._texts: list[str] = []

    def add(self, text: str) -> None:
        if text not in self._texts:
            self._texts.append(text)
            self.listener.note(text)

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)


@runtime_checkable
class Keeping(Protocol):
    """A backend that rounds weights by themselves and keeps them on disk."""

    def keep_in(self, folder: Path) -> None: ...

    def find_weights(self, folder: Path, recipe: Recipe) -> bool: ...


def weights_folder(workspace: Path, fingerprint: Mapping[str, str]) -> Path:
    """Where these are kept: by model and data."""
    data = fingerprint["data"][:8] or "none"
    return workspace / f"weights-{fingerprint['model'][:8]}" / data


@dataclass(frozen=True, eq=False, kw_only=True)
class Job(Plan):
    """Frozen, too: a training gives another one. What changes are notes, watch and statistics."""

    listener: Listener
    watch: Watch
    notes: Notes
    fingerprint: dict[str, str]  # what a history must agree with to be continued
    model: Model  # that trials are built from: as given, or as trained
    observe: Statistics
    evaluator: Evaluator | None = None
    held_out: Evaluator | None = None

    def __post_init__(self) -> None:
        if isinstance(self.backend, Keeping):
            self.backend.keep_in(weights_folder(self.workspace.folder, self.fingerprint))

    def add_note(self, text: str) -> None:
        self.notes.add(text)

    @property
    def timing_inputs(self) -> Inputs | None:
        """The batch that models are timed on."""
        return None if self.calibration is None else self.calibration.first.inputs

    @cached_property
    def findings(self) -> Findings:
        """What this run, now or before, has found out about its ops."""
        return Findings(self.workspace.folder / f"findings-{key_of(self.fingerprint)}.json")

    def tradeoffs(self) -> Tradeoffs:
        """Sensitivity, time and bytes of each format of each op, where that can be known."""
        return {}

    def package(self, result: Result) -> None:
        """What some jobs put beside the model in the end."""

    @property
    def measure(self) -> QuickLook:
        """What the objectives, or time to go on, need to know of each trial."""
        words = self.objectives.words
        return QuickLook(
            self.timing_inputs,
            time=self.request.measure_speed and ("performance" in words or self.limits.timeout > 0),
            memory="footprint" in words,
        )

    @property
    def baseline_key(self) -> tuple[str, ...]:
        """What FP32's score depends on: not on the goal, and not on the target."""
        evaluation = self.config.evaluation.model_dump_json(exclude_unset=True, fallback=str)
        known = None if self.evaluator is None else self.evaluator.identity.to_json()
        return (self.fingerprint_of_model, evaluation, str(known))

    def build(self, recipe: Recipe) -> Model:
        return self.backend.build(self.model, recipe, self.observe(recipe.samples))

    def keep(self, trial: Trial, model: Model) -> None:
        """The best so far is on disk before the next trial begins."""
        model.met = trial.met
        model.card = self.card(trial)
        self.save_best(model)
        self.workspace.sync()

    def save_best(self, model: Model) -> None:
        saved = self.backend.save(model, self.best_path)
        if saved != self.best_path:  # inside of it
            raise WorkspaceError(
                f"{self.best_path}: the best model is to be written here, but it is a folder: "
                "move it away"
            )

    def card(self, trial: Trial | None) -> dict[str, Any]:
        data = None if self.calibration is None else self.calibration.fingerprint()
        return {
            "lpot": VERSION,
            "name": self.config.model.name,
            "seed": self.config.tuning.random_seed,
            "target": self.config.quantization.target,
            "source_model": self.fingerprint_of_model,
            "calibration": {"samples": list(self.space.samples), "fingerprint": data},
            "goal": str(self.goal),
            "accuracy": None if trial is None else trial.accuracy,
        }

    def trained(
        self,
        model: Model,
        calibration: Calibration | None,
        known: dict[int, Observations] | None = None,
    ) -> Job:
        """The same with another model to build trials from, in other processes, too."""
        return replace(
            self,
            request=replace(self.request, model=model.native, q_func=None),
            model=model,
            calibration=calibration,
            observe=replace(
                self.observe, model=model, calibration=calibration, given=known, share=_apart
            ),
        )


def _apart(make: Callable[[], Observed]) -> Observed:
    """A trained model's statistics are nobody else's."""
    return make()


def begin(plan: Plan, listener: Listener, notes: Notes) -> Job:
    """The plan under way."""
    notes.listener = listener
    for text in plan.remarks:
        notes.add(text)
    fingerprint = dict(plan.mode.facts(plan))
    key = (plan.fingerprint_of_model, fingerprint["data"], plan.space.samples)
    observe = Statistics(
        backend=plan.backend,
        model=plan.source,
        calibration=plan.calibration,
        sizes=plan.space.samples,
        sync=plan.workspace.sync,
        place=observations_path(plan.workspace.folder, fingerprint),
        listener=listener,
        note=notes.add,
        share=partial(plan.request.pool.observed, key),
    )
    return plan.mode.kind(
        **{field.name: getattr(plan, field.name) for field in fields(plan)},
        listener=listener,
        watch=Watch(plan.limits),
        notes=notes,
        fingerprint=fingerprint,
        model=plan.source,
        observe=observe,
    )
