"""`lpot tune-all`: many models for many goals on many targets, from one file."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lpot.cli.output import BEST_EFFORT, INTERRUPTED, OK, WRONG_CALL, Output, command
from lpot.cli.tune import make_config, make_request, tune

if TYPE_CHECKING:
    from lpot.jobs.many.board import Outcome
    from lpot.jobs.many.plan import Cell
    from lpot.jobs.many.pool import Pool

EPILOG = """\b
Example matrix.yaml:
  workspace: runs
  goals: [1%, 0.1%]
  targets: [this, avx2]
  models:
    - {name: net, model: net.onnx, calib: my_data:calib, eval: my_eval:accuracy}
    - {name: other, model: other.onnx, config: other.yaml, priority: 2}

\b
Exit status: 0 all bars are met; 3 some are not; 2 some could not be tuned; 130 interrupted.
"""


@click.command("tune-all", epilog=EPILOG)
@click.argument("matrix", type=click.Path(path_type=Path))
@command
def tune_all(out: Output, matrix: Path) -> int:
    """Tune every model of MATRIX for every goal on every target.

    Finished work is not repeated: run the same command again to resume.
    """
    from lpot.config.schema_matrix import load_matrix
    from lpot.jobs.many.run import children
    from lpot.jobs.many.run import tune_all as work
    from lpot.report.matrix import matrix_table

    board = work(load_matrix(matrix), partial(out.errors.print, markup=False, soft_wrap=True))
    outcomes = [board.outcome(cell) for cell in board.cells]
    out.show(matrix_table(board.table()))
    out.show(f"page: {board.page}")
    status = 128 + children.told if children.told else _status(outcomes)
    found = {
        cell.name: None if o is None else vars(o)
        for cell, o in zip(board.cells, outcomes, strict=True)
    }
    out.tell({"cells": found, "page": board.page, "exit": status})
    return status


def _status(outcomes: list[Outcome | None]) -> int:
    known = [outcome for outcome in outcomes if outcome is not None]
    if any(outcome.interrupted for outcome in known):
        return INTERRUPTED
    if any(outcome.error for outcome in known):
        return WRONG_CALL
    met = all(outcome.result and outcome.result.get("met") is not False for outcome in known)
    return OK if met and len(known) == len(outcomes) else BEST_EFFORT


@click.command("tune-row", hidden=True)
def tune_row() -> int:
    """The child of `tune-all`: one model's cells, a line of JSON for each."""
    from threading import Thread

    from lpot.jobs.many.plan import Row
    from lpot.jobs.many.pool import Pool

    Thread(target=_end_with, args=(os.getppid(),), daemon=True).start()
    raw = json.loads(sys.stdin.read())
    row, pool = Row.from_json(raw), Pool()
    end = time.monotonic() + raw["seconds"]
    for index, cell in enumerate(row.cells):
        share = max(1.0, (end - time.monotonic()) / (len(row.cells) - index))
        outcome = _tuned(cell, share if raw["seconds"] else 0.0, pool)
        sys.stdout.write(json.dumps({"lpot_cell": vars(outcome)}, default=str) + "\n")
        sys.stdout.flush()
        if outcome.interrupted:
            return INTERRUPTED
    return OK


def _end_with(parent: int) -> None:
    """Nobody reads what a row writes once its parent is gone, and a rerun wants its workspace."""
    while os.getppid() == parent:
        time.sleep(1.0)
    os.kill(os.getpid(), signal.SIGTERM)


def _tuned(cell: Cell, seconds: float, pool: Pool) -> Outcome:
    from dataclasses import replace

    from lpot.core.progress import Listener
    from lpot.core.tune import guarded
    from lpot.jobs.many.board import Outcome
    from lpot.jobs.tune.quantize import quantize

    start = time.monotonic()

    def work() -> Any:
        args = [*cell.options, *(["--timeout", f"{seconds:g}"] if seconds else [])]
        options = tune.make_context("tune", args).params
        config = make_config(options)
        request = make_request(config, options, Listener())
        return quantize(replace(request, pool=pool))

    made = guarded(work)
    spent = round(time.monotonic() - start, 3)
    if isinstance(made, Exception):
        return Outcome(error=str(made) or type(made).__name__, seconds=spent)
    return Outcome(made.to_json(), interrupted=made.interrupted, seconds=spent)
