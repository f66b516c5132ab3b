"""Weights set to zero while a model is trained: the object behind the `Pruning` doors."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from lpot.backends import detect, get_backend
from lpot.config.availability import unavailable
from lpot.config.rules import goal as goal_of
from lpot.config.schema import Config
from lpot.core.blame import raised as blame
from lpot.core.compress.prunable import Fits, Sparsifiable
from lpot.core.compress.pruners import Pruners
from lpot.core.compress.resume import Kept, TrainingFile
from lpot.core.compress.samples import first_batches
from lpot.core.compress.sparsity import NO_GAIN, LayerSparsity, Sparsity
from lpot.core.compress.training_data import TrainingData
from lpot.core.compress.weight_store import COMPUTED, WeightStore
from lpot.core.errors import ConfigError, EvaluationError, LpotError, TrainingError, a_kind
from lpot.core.evaluation.evaluate import Evaluator
from lpot.core.goal import Goal
from lpot.core.model import Model
from lpot.core.progress import Listener, heard_by
from lpot.core.tune import guarded
from lpot.jobs.compress.returned import other_model, take_over
from lpot.jobs.compress.specs import PLACE, idle, specs
from lpot.jobs.compress.training import training_data, training_file
from lpot.jobs.tune.evaluation import make_evaluator, plain
from lpot.jobs.tune.quantize import Request
from lpot.jobs.tune.trainers import located

# -- After more weights became zero: those that are left, fitted to what the full model gives.


SAMPLES, EACH = 256, 32  # of the training data, and of a batch: its columns are held at once


class Fitting:
    """Remembers the model as it came. Where it can't be fitted, that is told, once."""

    def __init__(
        self, backend: Fits, native: Any, loader: TrainingData, tell: Callable[[str], None]
    ) -> None:
        self._fit = backend.fitter(native)
        self._tell = tell
        # Now, before anything is trained: a run that goes on later sees the same.
        self._batches = guarded(lambda: first_batches(loader, SAMPLES, each=EACH))
        loader.set_epoch(0)

    def __call__(self, pruners: Pruners) -> None:
        batches = self._batches
        if isinstance(batches, Exception):  # the training will tell what is wrong with its data
            return
        found = guarded(lambda: self._fit(pruners.masks, batches))
        pruners.hold()
        if isinstance(found, Exception):
            self._batches = found
            self._tell(f"the weights that are left are not fitted before training: {blame(found)}")


# -- The sparsest state of a model in training that met the bar.


class Best:
    """Empty until something is remembered; it goes into a training's file."""

    def __init__(self, store: WeightStore) -> None:
        self._store = store
        self.snapshot: Any = None
        self.sparsity = Sparsity(())
        self.accuracy = 0.0

    def remember(self, sparsity: Sparsity, accuracy: float) -> None:
        """The model as it is now."""
        self.snapshot = self._store.snapshot()
        self.sparsity, self.accuracy = sparsity, accuracy

    def kept(self) -> Kept:
        if self.snapshot is None:
            return Kept({}, {})
        layers = [asdict(layer) for layer in self.sparsity.layers]
        facts = {"accuracy": self.accuracy, "layers": layers}
        return Kept(self._store.packed(self.snapshot), facts)

    def take(self, kept: Kept) -> None:
        if not kept.arrays:
            return
        layers = [{**layer, "shape": tuple(layer["shape"])} for layer in kept.facts["layers"]]
        self.sparsity = Sparsity(tuple(LayerSparsity(**layer) for layer in layers))
        self.accuracy = float(kept.facts["accuracy"])
        self.snapshot = self._store.unpacked(kept.arrays)


logger = logging.getLogger(__name__)

HALVINGS = 5  # of the way between the sparsest state that met the bar and the target


@dataclass(frozen=True, eq=False)
class PruneResult:
    """The trained model, how sparse it is, and whether it meets the bar."""

    model: Model | None  # None while it is still being trained by somebody else
    sparsity: Sparsity
    goal: Goal
    baseline: float | None = None
    accuracy: float | None = None
    met: bool | None = None  # None when nothing was evaluated
    reached: bool = True  # is it as sparse as was asked for?
    notes: tuple[str, ...] = ()

    def save(self, path: str | Path) -> Path:
        assert self.model is not None
        return self.model.save(path)


@dataclass(eq=False)
class WeightPruning:
    """One run: the user's loop, or that of the yaml, trains the model in place."""

    config: Config
    native: Any
    loop: Callable[[Any], Any] | None = None
    train: Any = None
    eval_func: Callable[[Any], Any] | None = None
    eval_loader: Any = None
    metric: Any = None
    postprocess: Any = None
    listener: Listener = field(default_factory=Listener)
    hooks: Any = None  # what the yaml's loop calls
    evaluates: bool = True

    def __post_init__(self) -> None:
        self.backend = get_backend(self.config.model.framework or detect(self.native))
        if not isinstance(self.backend, Sparsifiable):
            raise ConfigError(
                f"backend {self.backend.name} can't train: give a torch module or a Keras model",
                "pruning",
                self.config.where("pruning"),
            )
        if self.loop is not None and not callable(self.loop):
            raise ConfigError(
                f"given {a_kind(self.loop)}, expected a function of the model that trains "
                "it and calls the hooks",
                "pruning_func",
            )
        self.goal = goal_of(self.config)
        chosen = specs(self.config)
        self.pruners = Pruners(chosen, self.backend.weight_store(self.native))
        self.notes: list[str] = unavailable(self.config)
        self.notes += [
            f"{PLACE}: the parameters {', '.join(pruner.spec.idle)} of {pruner.spec.kind} have no "
            "effect: weights are ranked by size, with gradient_sensitivity by weight times gradient"
            for pruner in self.pruners.pruners
            if pruner.spec.idle
        ]
        self.notes += idle(self.config, chosen)
        if not all(spec.names for spec in chosen):
            left = self.pruners.store.computed()
            self.notes += [f"warning: {name} is not pruned: {COMPUTED}" for name in left]
        self.baseline: float | None = None
        self._evaluator = self._make_evaluator()
        self._best = Best(self.pruners.store)
        self._file: TrainingFile | None = None  # of the yaml's loop
        self._fitting: Fitting | None = None

    # -- hooks --------------------------------------------------------------------------------

    def on_epoch_begin(self, epoch: int) -> None:
        self._thin(partial(self.pruners.on_epoch_begin, epoch))

    def on_batch_begin(self, batch: int = 0) -> None:
        self.pruners.on_batch_begin(batch)

    def on_post_grad(self) -> None:
        self.pruners.on_post_grad()

    def on_batch_end(self) -> None:
        self.pruners.on_batch_end()

    def on_epoch_end(self) -> None:
        """The sparsest state that meets the bar is remembered."""
        self.pruners.on_epoch_end()
        self._remember()

    # -- the run ------------------------------------------------------------------------------

    def __call__(self) -> PruneResult:
        loop = self.loop or self._loop_of_yaml()
        with heard_by(self.listener):
            if self._evaluator is not None:
                self.listener.phase("evaluating FP32")
                self.baseline = self._score()
                self.goal.check_baseline(self.baseline)
                self._best.remember(self.pruners.sparsity(), self.baseline)
            self.listener.phase("training with pruning")
            self._train(loop)
            if self.pruners.too_early:
                self.notes.append(f"warning: {self.pruners.too_early}")
            self._thin(self.pruners.finish)
            result = self._result()
        if self._file is not None:
            self._file.finished()
        return result

    def _train(self, loop: Callable[[Any], Any]) -> None:
        try:
            found = guarded(lambda: loop(self.native))
        finally:
            self.pruners.store.release()
        if isinstance(found, LpotError):
            raise located(found, self.config, "pruning.train")
        if isinstance(found, Exception):
            who = "the training" if self.loop is None else "pruning_func"
            raise TrainingError(f"{who} raised {blame(found)}") from found
        other = other_model(self.backend, self.native, found)
        if other is not None:
            told = take_over(self.backend, self.pruners.store, other, "pruning_func")
            self.notes.append(
                f"warning: {told}; its zeros were set after the training, since pruners hold those "
                "of the given model: train that in place"
            )
        if not self.pruners.called:
            raise TrainingError(
                "pruning_func ended without calling on_epoch_begin or any other hook: call "
                "on_epoch_begin, on_batch_end and on_epoch_end of this object in your loop"
            )

    def _result(self) -> PruneResult:
        sparsity = self.pruners.sparsity()
        accuracy = self._score_or_nan() if self._evaluator else None
        short = self.pruners.shortfalls()
        self.notes += [f"warning: {told}" for told in short]
        met, reached = None, not short
        if accuracy is not None and self.baseline is not None:
            met = self.goal.is_met(accuracy, self.baseline)
            if not met:
                sparsity, accuracy, met, reached = self._fall_back(sparsity, accuracy)
        self.notes.append(NO_GAIN)
        logger.info("%s", sparsity.table())
        for note in self.notes:
            self.listener.note(note)
        return PruneResult(
            trained_model(self.backend, self.native) if self.evaluates else None,
            sparsity,
            self.goal,
            self.baseline,
            accuracy,
            met,
            reached,
            tuple(self.notes),
        )

    def _fall_back(self, sparsity: Sparsity, accuracy: float) -> tuple[Sparsity, float, bool, bool]:
        """At the least the model as it came, which meets the bar."""
        assert self.baseline is not None
        bar = self.goal.bar(self.baseline)
        missed = f"{100 * sparsity.share:.1f} % zeros gives {accuracy:.4f}, below {bar:.4f}"
        snapshot, sparse, best = self._best.snapshot, self._best.sparsity, self._best.accuracy
        self.pruners.store.restore(snapshot)
        if sparse.share >= sparsity.share:
            self.notes.append(f"the last epoch gave {accuracy:.4f}: an earlier one is returned")
            return sparse, best, True, True
        sparse, best = self._between(snapshot, sparse, best)
        self.notes.append(
            f"warning: {missed}: the sparsest state that met it is returned, "
            f"{100 * sparse.share:.1f} % zeros with {best:.4f}"
        )
        return sparse, best, True, False

    def _between(self, snapshot: Any, sparse: Sparsity, best: float) -> tuple[Sparsity, float]:
        """Epochs may be far apart: the sparsest between the best of them and the target, without
        training. The model is left in that state."""
        assert self.baseline is not None
        store, low, high = self.pruners.store, 0.0, 1.0
        for _ in range(HALVINGS):
            part = (low + high) / 2
            store.restore(snapshot)
            self._thin(partial(self.pruners.thin, part))
            accuracy = self._score_or_nan()
            if self.goal.is_met(accuracy, self.baseline):
                low, sparse, best = part, self.pruners.sparsity(), accuracy
            else:
                high = part
        store.restore(snapshot)
        if low:
            self._thin(partial(self.pruners.thin, low))
        return sparse, best

    def _thin(self, prune: Callable[[], None]) -> None:
        """Set weights to zero; those that are left make up for more of them, where they can."""
        before = self.pruners.zeros() if self._fitting is not None else 0
        prune()
        if self._fitting is not None and self.pruners.zeros() > before:
            self._fitting(self.pruners)

    def _remember(self) -> None:
        if self._evaluator is None or self.baseline is None:
            return
        sparse = self.pruners.sparsity()
        if sparse.share < self._best.sparsity.share:
            return
        accuracy = self._score_or_nan()
        if self.goal.is_met(accuracy, self.baseline):
            self._best.remember(sparse, accuracy)

    # -- parts --------------------------------------------------------------------------------

    def _make_evaluator(self) -> Evaluator | None:
        if not self.evaluates:
            return None
        request = Request(
            config=self.config,
            model=self.native,
            eval_func=self.eval_func,
            eval_loader=self.eval_loader,
            metric=self.metric,
            postprocess=self.postprocess,
        )
        return make_evaluator(request, self.backend.load(self.native), self.notes.append)

    def _score(self) -> float:
        evaluator = self._evaluator
        assert evaluator is not None
        found = guarded(lambda: evaluator(self.backend.load(self.native)).accuracy)
        if isinstance(found, LpotError):
            raise found
        if isinstance(found, Exception):
            raise EvaluationError(f"the evaluation raised {blame(found)}") from found
        return float(found)

    def _score_or_nan(self) -> float:
        """A model that can't be evaluated holds no bar; what was trained so far is not lost."""
        try:
            return self._score()
        except EvaluationError as error:
            told = f"warning: {error}; such a state does not count"
            if told not in self.notes:
                self.notes.append(told)
            return math.nan

    def _loop_of_yaml(self) -> Callable[[Any], Any]:
        section = None if self.config.pruning is None else self.config.pruning.train
        loader = training_data(self.config, section, self.train, "pruning.train", self.backend)
        assert isinstance(self.backend, Sparsifiable)
        if self.evaluates:  # one inside of another training can't go on by itself
            store = self.pruners.store
            others = (self.pruners, self._best)
            self._file = training_file(
                self.config, "pruning", [store], loader, self.listener.note, others
            )
            readable = not loader.keeps_its_place
            if isinstance(self.backend, Fits) and readable and _refits(self.config):
                self._fitting = Fitting(self.backend, self.native, loader, self.notes.append)
        return self.backend.hooked_loop(plain(section), loader, self.hooks, self._file)


def _refits(config: Config) -> bool:
    section = None if config.pruning is None else config.pruning.approach.weight_compression
    return section is not None and section.refit


def trained_model(backend: Any, native: Any) -> Model:
    """The handle of what was trained, from which it can be trained on."""
    made: Model = backend.load(native)
    if type(made.native) is not type(native):  # Keras: a graph
        made.trainable = native
    return made
