"""The object behind `Distillation`: a student trained after a teacher."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lpot.backends import detect, get_backend
from lpot.config.availability import unavailable
from lpot.config.rules import goal as goal_of
from lpot.core.blame import raised as blame
from lpot.core.compress.prunable import Teaches
from lpot.core.compress.pruners import Pruners
from lpot.core.compress.sparsity import Sparsity
from lpot.core.errors import ConfigError, LpotError, TrainingError
from lpot.core.model import Model
from lpot.core.progress import Listener, heard_by
from lpot.core.tune import guarded
from lpot.jobs.component.hooks import Hooked
from lpot.jobs.component.records import as_loader, as_native, terminal
from lpot.jobs.compress.weights import trained_model, training_data
from lpot.jobs.compress.zeros import zeros_of
from lpot.jobs.settings import Conf, read_config
from lpot.jobs.tune.evaluation import make_evaluator, plain
from lpot.jobs.tune.quantize import Request

CRITERION = "distillation.train.criterion"


class Distiller(Hooked):
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
        if student is None or (teacher is None and loop is None):
            raise ConfigError("set both `student_model` and `teacher_model`", "student_model")
        for told in unavailable(self.config):
            self.listener.note(told)
        native = as_native(student)
        backend = get_backend(self.config.model.framework or detect(native))
        who = "the training" if loop is None else "train_func"
        if loop is None:
            loop = self._loop_of_yaml(backend, as_native(teacher), train)
        self._zeros = zeros_of(backend, native)
        with heard_by(self.listener):
            self.listener.phase("distilling")
            found = guarded(lambda: loop(native))
        if self._zeros is not None:
            self._zeros.on_epoch_end()  # for loops that call no hooks
            self.sparsity = self._zeros.sparsity()
        if isinstance(found, LpotError):
            raise found
        if isinstance(found, Exception):
            raise TrainingError(f"{who} raised {blame(found)}") from found
        made = trained_model(backend, native)
        request = Request(
            self.config, native, None, eval_func, as_loader(eval_loader), None, metric, postprocess
        )
        evaluator = make_evaluator(request, made, self.listener.note)
        if evaluator is not None:
            self.accuracy = evaluator(made).accuracy
            if teacher is not None:
                self.teacher_accuracy = evaluator(backend.load(as_native(teacher))).accuracy
                self.met = goal_of(self.config).is_met(self.accuracy, self.teacher_accuracy)
                made.met = self.met
        self.listener.close()
        return made

    def on_batch_end(self) -> None:
        if self._zeros is not None:
            self._zeros.on_batch_end()
        super().on_batch_end()

    def _loop_of_yaml(self, backend: Any, teacher: Any, train: Any) -> Callable[[Any], Any]:
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
        return backend.distilling_loop(told, loader, teacher, self)
