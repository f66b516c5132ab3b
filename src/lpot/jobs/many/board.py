"""What is known of each cell, kept where the results are: a rerun goes on from it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lpot.core.draft import write_text
from lpot.core.errors import WorkspaceError
from lpot.jobs.many.plan import Cell, Row
from lpot.jobs.storage.store import Absent, ObjectStore
from lpot.jobs.storage.workspace import as_path, is_url
from lpot.report.matrix import CellRow, matrix_page

STATE, PAGE = "matrix.json", "matrix.html"


@dataclass(frozen=True)
class Outcome:
    """What came of a cell: the result as JSON, or why there is none."""

    result: Mapping[str, Any] | None = None
    error: str = ""
    interrupted: bool = False
    seconds: float = 0.0

    @property
    def is_final(self) -> bool:
        """A rerun leaves it alone; one whose time was over before the bar held goes on."""
        if self.error or self.interrupted or self.result is None:
            return False
        cut_short = str(self.result.get("stopped", "")).startswith("timeout")
        return self.result.get("met") is True or not cut_short


class Board:
    """All cells and their outcomes. Written after each."""

    def __init__(self, workspace: str, rows: Sequence[Row]) -> None:
        self._workspace = workspace.rstrip("/")
        self._store = ObjectStore(self._workspace) if is_url(workspace) else None
        self.cells = [cell for row in rows for cell in row.cells]
        self._found: dict[str, Outcome] = {}
        known = self._read()
        for cell in self.cells:
            raw = known.get(cell.name, {})
            if raw.get("key") == cell.key:
                outcome = Outcome(**{k: v for k, v in raw.items() if k != "key"})
                if outcome.is_final:
                    self._found[cell.name] = outcome

    def outcome(self, cell: Cell) -> Outcome | None:
        return self._found.get(cell.name)

    def put(self, cell: Cell, outcome: Outcome) -> None:
        self._found[cell.name] = outcome
        self.save()

    @property
    def finished(self) -> int:
        return sum(outcome.is_final for outcome in self._found.values())

    def left_of(self, row: Row) -> Row:
        """A row without the cells that are done."""
        open_cells = [c for c in row.cells if not (o := self.outcome(c)) or not o.is_final]
        return Row(row.model, row.priority, tuple(open_cells))

    def table(self) -> list[CellRow]:
        return [_row(cell, self.outcome(cell)) for cell in self.cells]

    def save(self) -> None:
        state = {
            cell.name: {"key": cell.key, **vars(outcome)}
            for cell in self.cells
            if (outcome := self.outcome(cell)) is not None
        }
        self._write(STATE, json.dumps(state, indent=1, ensure_ascii=False) + "\n")
        self._write(PAGE, matrix_page(self.table()))

    @property
    def page(self) -> str:
        return f"{self._workspace}/{PAGE}"

    def _write(self, name: str, text: str) -> None:
        if self._store is not None:
            self._store.write(name, text.encode())
            return
        folder = as_path(self._workspace)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            write_text(folder / name, text)
        except OSError as error:
            raise WorkspaceError(f"{folder}: can't be written ({error.strerror})") from error

    def _read(self) -> dict[str, Any]:
        try:
            if self._store is not None:
                raw = self._store.read(STATE)
            else:
                raw = (as_path(self._workspace) / STATE).read_bytes()
            found = json.loads(raw)
        except (Absent, OSError, ValueError):
            return {}
        return found if isinstance(found, dict) else {}


def _row(cell: Cell, outcome: Outcome | None) -> CellRow:
    made = CellRow(cell.model, cell.goal, cell.target)
    if outcome is None:
        return made
    return CellRow(
        cell.model,
        cell.goal,
        cell.target,
        state="failed" if outcome.error else "interrupted" if outcome.interrupted else "done",
        error=outcome.error,
        result=outcome.result or {},
        seconds=outcome.seconds,
    )
