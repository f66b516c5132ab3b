"""Distillation in a loop of the user's own: the hooks that bring the teacher into the loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lpot.backends import detect, get_backend
from lpot.core.compress.prunable import Teaches
from lpot.core.errors import ConfigError
from lpot.jobs.component.hooks import Hooked
from lpot.jobs.component.records import as_native
from lpot.jobs.tune.evaluation import plain

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
