"""The object behind `Distillation`: a student trained after a teacher."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

from lpot.backends import detect, get_backend
from lpot.config.availability import unavailable
from lpot.config.rules import goal as goal_of
from lpot.core.blame import raised as blame
from lpot.core.compress.prunable import Sparsifiable, Teaches
from lpot.core.compress.pruners import Pruners, PrunerSpec
from lpot.core.compress.resume import TrainingFile
from lpot.core.compress.schedule import Schedule
from lpot.core.compress.sparsity import Sparsity, count_zeros
from lpot.core.errors import ConfigError, LpotError, TrainingError, a_kind
from lpot.core.evaluation.evaluate import Evaluator
from lpot.core.model import Model
from lpot.core.progress import Listener, heard_by
from lpot.core.tune import guarded
from lpot.jobs.component.hooks import Hooked
from lpot.jobs.component.records import as_loader, as_native, terminal
from lpot.jobs.compress.returned import digest, other_model, take_over
from lpot.jobs.compress.training import training_data, training_file
from lpot.jobs.compress.weights import trained_model
from lpot.jobs.settings import Conf, read_config
from lpot.jobs.tune.evaluation import make_evaluator, plain
from lpot.jobs.tune.quantize import Request
from lpot.jobs.tune.trainers import located

# -- Distillation in a loop of the user's own: the hooks that bring the teacher into the loss.


NAME = "KnowledgeDistillationLoss"


class Teaching(Hooked):
    """Either of the original's forms:

    `loss = distiller.on_after_compute_loss(inputs, output, loss)`, or
    `distiller.on_post_forward(inputs)` and then `distiller.criterion(output, labels)`.
    """

    config: Any
    _criterion: Any = None
    _teacher: Any = None

    @property
    def criterion(self) -> Any:
        """The yaml's loss, which knows the teacher; one of your own may be set instead."""
        if self._criterion is None:
            self._criterion = self._made()
        return self._criterion

    @criterion.setter
    def criterion(self, given: Any) -> None:
        self._criterion = given

    def on_post_forward(self, input: Any, teacher_output: Any = None) -> None:
        """The teacher sees the batch, too; its output may be given where it is known."""
        self.criterion.teach(input, self._needed(teacher_output))

    def on_after_compute_loss(
        self, input: Any, student_output: Any, student_loss: Any, teacher_output: Any = None
    ) -> Any:
        """The loss to be minimized: the student's own and the distance from the teacher."""
        self.on_post_forward(input, teacher_output)
        return self.criterion.blended(student_output, student_loss)

    def _needed(self, teacher_output: Any) -> Any:
        """A teacher, or what it gives."""
        if teacher_output is None and self._teacher is None:
            raise ConfigError(
                "nothing to learn from: set `teacher_model` before the call, or pass the teacher's "
                "output",
                "teacher_model",
            )
        # Scripts pass the teacher itself as well.
        return None if as_native(teacher_output) is self._teacher else teacher_output

    def _made(self) -> Any:
        backend = get_backend(self.config.model.framework or detect(self._teacher))
        if not isinstance(backend, Teaches):
            raise ConfigError(
                f"backend {backend.name} has no loss for distillation: expected pytorch or "
                "tensorflow"
            )
        section = self.config.distillation
        told = None if section is None or section.train is None else plain(section.train)
        named: Mapping[str, Any] = (told or {}).get("criterion") or {}
        return backend.teaching_loss(named.get(NAME) or {}, self._teacher)


# -- The zeros of a model that was pruned before it is trained on: they stay.


FEW = 0.05  # of a weight: training leaves next to none that are exactly zero


def zeros_of(backend: Any, native: Any) -> Pruners | None:
    """Hooks that hold them; None where the model has none, or the backend can't tell."""
    if not isinstance(backend, Sparsifiable):
        return None
    store = backend.weight_store(native)
    found = count_zeros({name: store.read(name) for name in store.names()})
    # A weight of nothing but zeros is one that is still to be trained.
    names = tuple(layer.name for layer in found.layers if FEW <= layer.share < 1)
    if not names:
        return None
    locked = Pruners([PrunerSpec("pattern_lock", Schedule(0.0, 0.0, 0, 1), names)], store)
    locked.on_epoch_begin(0)
    return locked


CRITERION = "distillation.train.criterion"
TEACHER, STUDENT = "the teacher", "the student"


class Distiller(Teaching):
    """`accuracy` and `teacher_accuracy` are the last call's, where there is something to evaluate
    with; `met` tells whether the student came as near to its teacher as the criterion asks.
    A student that was pruned before keeps its zeros: `sparsity` has them."""

    def __init__(self, conf_fname_or_obj: Conf = None) -> None:
        super().__init__()
        self.config = read_config(conf_fname_or_obj)
        self.accuracy: float | None = None
        self.teacher_accuracy: float | None = None
        self.met: bool | None = None
        self.sparsity: Sparsity | None = None
        self._zeros: Pruners | None = None
        self._file: TrainingFile | None = None  # of the yaml's loop
        self.listener: Listener = terminal()

    def run(
        self,
        student: Any,
        teacher: Any,
        train: Any = None,
        loop: Callable[[Any], Any] | None = None,
        eval_loader: Any = None,
        eval_func: Any = None,
        metric: Any = None,
        postprocess: Any = None,
    ) -> Model:
        native, self._teacher = as_native(student), as_native(teacher)
        _check(native, self._teacher, loop)
        for told in unavailable(self.config):
            self.listener.note(told)
        backend = get_backend(self.config.model.framework or detect(native))
        self._file = None
        if loop is None:
            loop = self._loop_of_yaml(backend, native, self._teacher, train)
            who = "the training"
        else:
            who = "train_func"
        self._zeros, self.sparsity = zeros_of(backend, native), None
        self.accuracy = self.teacher_accuracy = self.met = None
        request = Request(
            self.config, native, None, eval_func, as_loader(eval_loader), None, metric, postprocess
        )
        evaluator = make_evaluator(request, backend.load(native), self.listener.note)
        try:
            with heard_by(self.listener):
                if evaluator is not None and self._teacher is not None:
                    # Before hours of training: what can't be evaluated is known now.
                    self.listener.phase("evaluating the teacher")
                    self.teacher_accuracy = self._score(evaluator, backend, self._teacher, TEACHER)
                self.listener.phase("distilling")
                made = trained_model(backend, self._trained(backend, native, loop, who))
                if evaluator is not None:
                    self.listener.phase("evaluating the student")
                    self.accuracy = self._score(evaluator, backend, made, STUDENT)
        finally:
            self.listener.close()
        if self._file is not None:
            self._file.finished()
        if self.accuracy is not None and self.teacher_accuracy is not None:
            self.met = goal_of(self.config).is_met(self.accuracy, self.teacher_accuracy)
            made.met = self.met
        return made

    def _trained(self, backend: Any, native: Any, loop: Callable[[Any], Any], who: str) -> Any:
        """The student, or another that the loop returned in its place."""
        store = backend.weight_store(native) if isinstance(backend, Sparsifiable) else None
        before = "" if store is None else digest(store)
        found = guarded(lambda: loop(native))
        if isinstance(found, LpotError):
            raise located(found, self.config, "distillation.train")
        if isinstance(found, Exception):
            raise TrainingError(f"{who} raised {blame(found)}") from found
        other = None if store is None else other_model(backend, native, found)
        if other is not None and store is not None:
            try:
                self.listener.note(take_over(backend, store, other, who))
            except TrainingError:  # another architecture is a student, too
                self.listener.note(f"{who} returned another model: that is the student")
                return other
        if self._zeros is not None:
            self._zeros.on_epoch_end()  # for loops that call no hooks
            self.sparsity = self._zeros.sparsity()
        if store is not None and digest(store) == before:
            self.listener.note(f"warning: {who} changed no weight of the student")
        return native

    def _score(self, evaluator: Evaluator, backend: Any, model: Any, who: str) -> float | None:
        """None, and told, where it can't be evaluated: what was trained is not lost by that."""
        found = guarded(lambda: evaluator(backend.load(model)).accuracy)
        if isinstance(found, Exception):
            told = found if isinstance(found, LpotError) else f"it raised {blame(found)}"
            self.listener.note(f"warning: {who} was not evaluated: {told}")
            return None
        return float(found)

    def on_batch_end(self) -> None:
        if self._zeros is not None:
            self._zeros.on_batch_end()
        super().on_batch_end()

    def _loop_of_yaml(
        self, backend: Any, native: Any, teacher: Any, train: Any
    ) -> Callable[[Any], Any]:
        section = None if self.config.distillation is None else self.config.distillation.train
        if not isinstance(backend, Teaches):
            raise ConfigError(
                f"backend {backend.name} has no training loop for distillation: give train_func",
                "distillation.train",
                self.config.where("distillation.train"),
            )
        loader = training_data(
            self.config, section, as_loader(train), "distillation.train", backend
        )
        told = plain(section)
        if "KnowledgeDistillationLoss" not in told["criterion"]:
            raise ConfigError(
                f"given {', '.join(told['criterion'])}, which has no teacher: expected "
                "KnowledgeDistillationLoss",
                CRITERION,
                self.config.where(CRITERION),
            )
        if isinstance(backend, Sparsifiable):
            stores = [backend.weight_store(native)]
            with contextlib.suppress(LpotError):  # a teacher may be in INT8
                stores.append(backend.weight_store(teacher))
            self._file = training_file(
                self.config, "distillation", stores, loader, self.listener.note
            )
        return backend.distilling_loop(told, loader, teacher, self, self._file)


def _check(student: Any, teacher: Any, loop: Any) -> None:
    lacking = [("student_model", student)] + [("teacher_model", teacher)] * (loop is None)
    for name, given in lacking:
        if given is None:
            raise ConfigError(
                "none was given: set both `student_model`, which is trained, and `teacher_model`, "
                "which it learns from",
                name,
            )
    if student is teacher:
        raise ConfigError(
            "student_model and teacher_model are the same object: give a copy of it as the teacher "
            "(copy.deepcopy, or clone_model and set_weights in Keras)",
            "teacher_model",
        )
    if loop is not None and not callable(loop):
        raise ConfigError(
            f"given {a_kind(loop)}, expected a function of the student that trains it",
            "train_func",
        )
