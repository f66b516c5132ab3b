"""One tuning under way: the plan, and the few things that change while it is carried out."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields, replace
from functools import cached_property, partial
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from lpot.core.backend import Observations
from lpot.core.batch import Inputs
from lpot.core.calibration import Calibration
from lpot.core.errors import WorkspaceError
from lpot.core.evaluate import Evaluator
from lpot.core.journal import key_of
from lpot.core.limits import Watch
from lpot.core.model import Model
from lpot.core.progress import Listener
from lpot.core.recipe import Recipe
from lpot.core.result import Result
from lpot.core.store import observations_path
from lpot.core.strategy import Tradeoffs
from lpot.core.trial import Trial
from lpot.jobs.benchmark.quick_look import QuickLook
from lpot.jobs.many.pool import Observed
from lpot.jobs.tune.findings import Findings
from lpot.jobs.tune.plan import Plan
from lpot.jobs.tune.statistics import Statistics
from lpot.version import VERSION


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
        known = None if self.evaluator is None else self.evaluator.identity
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


def begin(
    kind: type[Job], plan: Plan, listener: Listener, notes: Notes, more: Mapping[str, str]
) -> Job:
    """The plan under way. `more` is what scores depend on besides the plan's own facts."""
    notes.listener = listener
    for text in plan.remarks:
        notes.add(text)
    fingerprint = {**plan.facts, **more}
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
    return kind(
        **{field.name: getattr(plan, field.name) for field in fields(plan)},
        listener=listener,
        watch=Watch(plan.limits),
        notes=notes,
        fingerprint=fingerprint,
        model=plan.source,
        observe=observe,
    )
