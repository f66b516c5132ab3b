"""What is known of each cell, kept where the results are: a rerun goes on from it."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lpot.core.errors import WorkspaceError
from lpot.core.files.draft import write_text
from lpot.core.files.untrusted import checked, damaged_fields, read_regular
from lpot.jobs.many.plan import Cell, Row
from lpot.jobs.storage.store import Absent, ObjectStore
from lpot.jobs.storage.workspace import as_path, is_url
from lpot.report.matrix import CellRow, matrix_page

logger = logging.getLogger(__name__)

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


@dataclass(frozen=True)
class _Score:
    accuracy: float | None = None


@dataclass(frozen=True)
class _Sizes:
    fp32: int
    best: int


@dataclass(frozen=True)
class _Result:
    """What the table and the page read of a result."""

    baseline: _Score | None = None
    accuracy: float | None = None
    met: bool | None = None
    speed: float | None = None
    slower: float | None = None
    busy: bool = False
    bytes: _Sizes | None = None
    stopped: str = ""


class Board:
    """All cells and their outcomes. Written after each."""

    def __init__(self, workspace: str, rows: Sequence[Row]) -> None:
        self._workspace = workspace.rstrip("/")
        self._store = ObjectStore(self._workspace) if is_url(workspace) else None
        self.cells = [cell for row in rows for cell in row.cells]
        self._found: dict[str, Outcome] = {}
        known = self._read()
        for cell in self.cells:
            outcome = _known(known.get(cell.name), cell)
            if outcome is not None and outcome.is_final:
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
                raw = read_regular(as_path(self._workspace) / STATE)
            found = json.loads(raw)
        except (Absent, FileNotFoundError):
            return {}
        except (OSError, ValueError, RecursionError) as error:
            logger.warning(
                "%s/%s can't be read (%s): finished tunings are found from their workspaces",
                self._workspace,
                STATE,
                error,
            )
            return {}
        return found if isinstance(found, dict) else {}


def _known(raw: Any, cell: Cell) -> Outcome | None:
    """What a file tells of a cell; None where it is of another one, or damaged."""
    if not isinstance(raw, dict) or raw.get("key") != cell.key:
        return None
    return sound_outcome({name: value for name, value in raw.items() if name != "key"})


def sound_outcome(raw: Any) -> Outcome | None:
    """What a file, or a process, tells of a cell; None where it is damaged."""
    if not isinstance(raw, dict) or damaged_fields(Outcome, raw):
        return None
    if damaged_fields(_Result, raw.get("result") or {}):
        return None
    return checked(Outcome, raw, STATE, "it is rebuilt")


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
