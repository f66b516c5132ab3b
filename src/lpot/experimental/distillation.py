"""Door: `lpot.experimental.Distillation`, set up by attributes."""

from __future__ import annotations

from typing import Any

from lpot.core.model import Model
from lpot.jobs.component.attributes import SetByAttributes
from lpot.jobs.component.distiller import Distiller


class Distillation(SetByAttributes, Distiller):
    """Set `student_model`, `teacher_model`, `train_dataloader` (or `train_func`), then call it."""

    student_model: Any = None
    teacher_model: Any = None
    train_dataloader: Any = None
    train_func: Any = None
    eval_dataloader: Any = None
    eval_func: Any = None
    metric: Any = None
    postprocess: Any = None

    @property
    def model(self) -> Any:
        """The student, under the name that a Scheduler sets."""
        return self.student_model

    @model.setter
    def model(self, given: Any) -> None:
        self.student_model = given

    def __call__(self) -> Model:
        return self.run(
            self.student_model,
            self.teacher_model,
            self.train_dataloader,
            self.train_func,
            self.eval_dataloader,
            self.eval_func,
            self.metric,
            self.postprocess,
        )


__all__ = ["Distillation"]
