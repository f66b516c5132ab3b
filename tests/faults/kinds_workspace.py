"""What a workspace holds, as files to mutate: each maker gives the file and how it is opened."""

from __future__ import annotations

import contextlib
import fcntl
import json
import shutil
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import lpot
from lpot.core.errors import LpotError, WorkspaceBusy

Opener = Callable[[], Any]


def yaml(root: Path) -> tuple[Path, Opener]:
    from lpot.config.load import load

    path = root / "conf.yaml"
    path.write_text(
        "model: {name: net, framework: onnxrt_qlinearops}\n"
        "quantization:\n  calibration: {sampling_size: 4}\n  op_wise:\n"
        "    'conv.*': {weight: {dtype: [int8]}}\n"
        "tuning:\n  accuracy_criterion: {relative: 0.01}\n  exit_policy: {timeout: 3}\n"
        "evaluation:\n  accuracy:\n    metric: {topk: 1}\n    dataloader:\n      batch_size: 2\n"
        "      dataset: {dummy: {shape: [4, 8], low: 0, high: 1}}\n"
    )
    return path, lambda: load(path)


def _tuned(root: Path) -> lpot.Result:
    import onnx_models

    model = onnx_models.mlp(layers=2)
    scores = iter([1.0, 0.5, 0.6, 0.7])
    return lpot.tune(
        model,
        onnx_models.feeds(model),
        lambda given: next(scores),
        strategy="random",
        max_trials=3,
        workspace=root / "ws",
        measure_speed=False,
    )


def _rows(root: Path) -> Any:
    from lpot.config.schema_matrix import load_matrix
    from lpot.jobs.many.plan import rows

    made = root / "matrix.yaml"
    made.write_text(
        f"workspace: {root}/runs\ngoals: [1%, 2%]\nmodels: [{{name: a, model: a.onnx}}]\n"
    )
    return rows(load_matrix(made))


def matrix(root: Path) -> tuple[Path, Opener]:
    from lpot.jobs.many.board import Board, Outcome
    from lpot.report.matrix import matrix_page, matrix_table

    every = _rows(root)
    board = Board(str(root / "runs"), every)
    result = _tuned(root).to_json()
    for cell in board.cells:
        board.put(cell, Outcome(json.loads(json.dumps(result, default=str)), seconds=1.5))

    def show() -> None:
        table = Board(str(root / "runs"), every).table()
        matrix_page(table)
        matrix_table(table)

    return root / "runs" / "matrix.json", show


def card(root: Path) -> tuple[Path, Opener]:
    result = _tuned(root)
    assert result.path is not None
    path = result.path
    return path.with_name(f"{path.name}.card.json"), lambda: lpot.load(path)


def report(root: Path) -> tuple[Path, Opener]:
    from lpot.jobs.report.read import read_report
    from lpot.report.html import page
    from lpot.report.summary import summary

    result = _tuned(root)
    assert result.workspace is not None
    path = result.workspace / "report.json"

    def show() -> None:
        found = read_report(path)
        page(found)
        summary(found, 10)

    return path, show


def result(root: Path) -> tuple[Path, Opener]:
    found = _tuned(root)
    assert found.workspace is not None
    workspace = found.workspace
    return workspace / "result.json", lambda: lpot.load(workspace)


def history(root: Path) -> tuple[Path, Opener]:
    from lpot.core.files.history import History
    from lpot.jobs.report.read import read_report
    from lpot.report.html import page

    found = _tuned(root)
    assert found.history is not None
    path = found.history
    fingerprint = History.read(path).fingerprint

    def show() -> None:
        for aside in path.parent.glob("history-*.jsonl"):
            aside.unlink()
        with contextlib.suppress(LpotError):
            page(read_report(path))
        History.open(path, fingerprint)
        assert History.read(path).notes == []

    return path, show


def observations(root: Path) -> tuple[Path, Opener]:
    from lpot.core.files.store import load_observations

    found = _tuned(root)
    assert found.workspace is not None
    (path,) = found.workspace.glob("observations-*.npz")
    return path, lambda: load_observations(path)


def recipe(root: Path) -> tuple[Path, Opener]:
    """The recipe of a trial, as `recover` takes it from a file."""
    from lpot.core.files.card import recipe_of
    from lpot.core.files.untrusted import read_json

    found = _tuned(root)
    path = root / "recipe.json"
    path.write_text(json.dumps(found.recipe.to_json()))
    return path, lambda: recipe_of({"recipe": read_json(path, "")}, path)


def advice(root: Path) -> tuple[Path, Opener]:
    """The settings that statistics suggested, kept for a rerun."""
    from lpot.core.files.timetable import recall
    from lpot.core.recipe import Recipe

    found = _tuned(root)
    assert found.workspace is not None
    (path,) = found.workspace.glob("advice-*")
    return path, lambda: recall(path, Recipe.from_json)


def findings(root: Path) -> tuple[Path, Opener]:
    """What was found out about each op, kept for a rerun."""
    from lpot.core.recipe import FP32, OpKey, Recipe
    from lpot.core.strategy import Tradeoff
    from lpot.jobs.tune.job import Findings

    key = OpKey("conv", "Conv")
    path, made = root / "findings.json", Recipe({key: FP32})

    def show() -> None:
        read = Findings(path)
        read.numbers("gains", made, lambda: {key: 1.0})
        read.tradeoffs(made, lambda: {key: (Tradeoff(FP32, 0.1, 0.2, 3, (0.4,)),)})

    show()
    return path, show


def now(root: Path) -> tuple[Path, Opener]:
    """What a run says of itself while it works, as the dashboard reads it."""
    from lpot.jobs.report.beacon import NAME, Now, read_now

    path = root / NAME
    moment = Now("evaluating", 1.0, 2.0, 3.0, 4, 5, 6.0, 7.0)
    path.write_text(json.dumps(asdict(moment)))

    def show() -> None:
        if (found := read_now(root)) is not None:
            found.sentence()

    return path, show


def deploy(root: Path) -> tuple[Path, Opener]:
    from lpot.jobs.settings import read_config

    found = _tuned(root)
    assert found.workspace is not None
    path = found.workspace / "deploy.yaml"
    return path, lambda: (lpot.load(path), read_config(path))


def lock(root: Path) -> tuple[Path, Opener]:
    """Held by another, whom it names: in vain, here."""
    from lpot.core.files import workspace
    from lpot.jobs.report.read import read_report

    # Nobody is about to write who he is: that need not be waited for.
    workspace.time = SimpleNamespace(sleep=lambda seconds: None)  # type: ignore[assignment]

    found = _tuned(root)
    assert found.workspace is not None
    folder = found.workspace
    held = (folder / "lock").open("rb")
    fcntl.flock(held, fcntl.LOCK_EX)

    def show() -> None:
        assert not held.closed
        read_report(folder)
        with contextlib.suppress(WorkspaceBusy), workspace.Workspace(folder).lock():
            raise AssertionError("somebody else holds it")

    return folder / "lock", show


def times(root: Path) -> tuple[Path, Opener]:
    from lpot.core.files.timetable import Timetable

    path = root / "times.json"
    path.write_text(json.dumps({"Conv 3x3": 1e-4, "MatMul": 2e-5}))
    return path, lambda: Timetable(path).seconds("Conv 3x3", lambda: 1.0)


def row(root: Path) -> tuple[Path, Opener]:
    """Lines that the processes of tune-all write, with the user's own words among them."""
    from lpot.jobs.many.board import Board
    from lpot.jobs.many.run import _words, read_outcome
    from lpot.report.matrix import matrix_page

    every = _rows(root)
    board = Board(str(root / "runs"), every)
    result = _tuned(root).to_json()
    path = root / "row.jsonl"
    path.write_text(json.dumps({"lpot_cell": {"result": result, "seconds": 1.5}}, default=str))

    def read() -> None:
        for line in path.read_bytes().decode("utf-8", "replace").splitlines():
            if (outcome := read_outcome(line)) is not None:
                _words(outcome)
                board.put(board.cells[0], outcome)
                matrix_page(board.table())

    return path, read


# -- a workspace at a URL --------------------------------------------------------------------------


def _store(root: Path, name: str, raw: bytes) -> Any:
    from lpot.jobs.storage.store import ObjectStore

    store = ObjectStore("memory://lpot-fuzz")
    store.write(name, raw)
    return store


def lease(root: Path) -> tuple[Path, Opener]:
    from lpot.jobs.storage import lease as leases

    here = leases.Lease(_store(root, "x", b""))._identity()
    path = root / "lease.json"
    path.write_text(json.dumps({**here, "pid": 2**22 + 5}))

    def take() -> None:
        store = _store(root, "lease/00000003.json", path.read_bytes())
        store.write("lease/00000003.beat", leases.RELEASED)
        one = leases.Lease(store)
        one._holder_died(3)
        one._owner(3)
        one.hold()
        one.release()
        store.delete(*store.listing())

    return path, take


def remote_card(root: Path) -> tuple[Path, Opener]:
    """The card of a best model that lies in a store, where another one is put."""
    from lpot.jobs.storage.mirror import Mirror

    found = _tuned(root)
    assert found.workspace is not None and found.path is not None
    folder = found.workspace
    path = root / "there.json"
    path.write_bytes(found.path.with_name(f"{found.path.name}.card.json").read_bytes())

    def push() -> None:
        store = _store(root, "best_model.onnx.card.json", path.read_bytes())
        Mirror(store, folder).push()
        here = root / "pulled"
        shutil.rmtree(here, ignore_errors=True)
        here.mkdir()
        Mirror(store, here).pull()
        store.delete(*store.listing())

    return path, push
