"""`distillation`: a student trained after a teacher."""

from __future__ import annotations

from pydantic import Field

from lpot.config.schema_data import Train
from lpot.config.section import Section


class Distillation(Section):
    """Train a small model after a large one."""

    train: Train | None = Field(default=None, description="Training of the small model.")
