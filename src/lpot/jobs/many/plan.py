"""The cells of a matrix: which there are, in what order, and how the time is shared out."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lpot.config.schema_matrix import Matrix, MatrixModel, place_of


@dataclass(frozen=True)
class Cell:
    """One model for one goal on one target."""

    model: str
    goal: str
    target: str
    options: tuple[str, ...]  # of `lpot tune`, without the time it has
    key: str  # changes with anything that decides the result

    @property
    def name(self) -> str:
        return f"{self.model} · {self.goal} · {self.target}"


@dataclass(frozen=True)
class Row:
    """All cells of one model, made one after the other: they share its calibration."""

    model: str
    priority: float
    cells: tuple[Cell, ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Row:
        cells = (Cell(**{**cell, "options": tuple(cell["options"])}) for cell in raw["cells"])
        return cls(raw["model"], raw["priority"], tuple(cells))


def rows(matrix: Matrix) -> list[Row]:
    """One for each model, the most wanted first."""
    made = [Row(m.name, m.priority, _cells(matrix, m)) for m in matrix.models]
    return sorted(made, key=lambda row: -row.priority)


def share(left: float, row: Row, waiting: Sequence[Row], workers: int) -> float:
    """Seconds for a row that begins now, by priority among those that wait; `left` are for all.

    >>> a, b = Row("a", 1, ()), Row("b", 3, ())
    >>> share(80.0, a, [a, b], workers=1), share(80.0, b, [a, b], workers=2)
    (20.0, 80.0)
    """
    total = sum(other.priority for other in waiting)
    return left * min(1.0, workers * row.priority / total)


def _cells(matrix: Matrix, model: MatrixModel) -> tuple[Cell, ...]:
    goals, targets = model.goals or matrix.goals, model.targets or matrix.targets
    return tuple(_cell(matrix, model, goal, target) for goal in goals for target in targets)


def _cell(matrix: Matrix, model: MatrixModel, goal: str, target: str) -> Cell:
    options = [] if model.config is None else [model.config]
    options += ["--model", model.model, "--name", model.name]
    options += ["--relative", goal, "--target", target]
    for word, value in (("--calib", model.calib), ("--eval", model.eval)):
        options += [] if value is None else [word, value]
    options += [] if matrix.measure_speed else ["--no-speed"]
    place = place_of(model.name, goal, target)
    told = [options, [_stamp(text) for text in (model.model, model.config)]]
    key = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:16]
    options += ["--workspace", f"{matrix.workspace.rstrip('/')}/{place}"]
    return Cell(model.name, goal, target, tuple(options), key)


def _stamp(text: str | None) -> list[int]:
    """Of a file that may have been replaced since; functions have histories to notice that."""
    try:
        state = Path(text or "").stat()
    except OSError:
        return []
    return [state.st_size, state.st_mtime_ns] if text else []
