"""Workers, nodes and drivers are killed in the middle: no finished trial is lost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("ray", reason="ray is not installed: pip install 'lpot[ray]'")

from cluster import cases
from cluster.conftest import Nodes
from lpot.core.files.history import History
from lpot.core.trial import State
from patience import wait_until

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    here = cases.run(tmp_path_factory.mktemp("serial"), cases.scoring.score, "serial")
    return cases.recipes(here)


def on(nodes: Nodes, workers: int = 2, **more: Any) -> dict[str, Any]:
    return {"name": "ray", "workers": workers, "address": nodes.address, **more}


def aside(work: Any) -> Thread:
    thread = Thread(target=work, daemon=True)
    thread.start()
    return thread


def test_a_killed_worker_costs_nothing(nodes: Nodes, tmp_path: Path, expected: list[str]) -> None:
    nodes.add()
    log = tmp_path / "log"
    evaluate = partial(cases.logged, folder=str(log), seconds=1.0)

    def kill_the_third() -> None:
        os.kill(wait_until(lambda: cases.begun(log)[2:3])[0], signal.SIGKILL)

    thread = aside(kill_the_third)
    result = cases.run(tmp_path / "w", evaluate, on(nodes))
    thread.join(1)
    assert cases.recipes(result) == expected
    assert all(trial.state is State.DONE for trial in result.trials)
    assert len(list(log.glob("begun-*"))) == cases.MOST + 1  # one was made twice
    assert len(list(log.glob("ended-*"))) == cases.MOST


def test_a_killed_node_costs_nothing(nodes: Nodes, tmp_path: Path, expected: list[str]) -> None:
    lost = nodes.add()
    log = tmp_path / "log"
    evaluate = partial(cases.logged, folder=str(log), seconds=1.5)

    def kill_it() -> None:
        wait_until(lambda: len(cases.begun(log)) >= 3)
        nodes.kill(lost)

    thread = aside(kill_it)
    result = cases.run(tmp_path / "w", evaluate, on(nodes))
    thread.join(1)
    assert cases.recipes(result) == expected
    assert all(trial.state is State.DONE for trial in result.trials)
    known = History.read(tmp_path / "w" / "history.jsonl")
    assert sorted(trial.number for trial in known.trials) == list(range(1, cases.MOST + 1))


def test_a_killed_driver_goes_on(nodes: Nodes, tmp_path: Path, expected: list[str]) -> None:
    log, folder = tmp_path / "log", tmp_path / "w"
    nodes.add()
    paths = os.pathsep.join(path for path in sys.path if path)
    call = [sys.executable, "-m", "cluster.cases", str(folder), str(log), nodes.address]
    environment = {**os.environ, "PYTHONPATH": paths}
    driver = subprocess.Popen(call, env=environment)
    history = folder / "history.jsonl"
    wait_until(
        lambda: (
            history.exists() and len(History.read(history).trials) >= 2
            if history.exists()
            else False
        )
    )
    driver.kill()
    driver.wait()
    finished = len(History.read(history).trials)
    done = subprocess.run(
        call, env=environment, capture_output=True, text=True, check=True, timeout=300
    )
    made, recalled = map(int, done.stdout.split()[-2:])
    assert (made, recalled) == (cases.MOST, finished)
    known = History.read(history)
    assert {trial.recipe.digest for trial in known.trials} == set(expected)
    assert len(known.trials) == cases.MOST  # none was made twice


def test_a_slow_node_does_not_hold_the_others(
    nodes: Nodes, tmp_path: Path, expected: list[str]
) -> None:
    nodes.add()
    start = time.monotonic()
    evaluate = partial(cases.slow_once, folder=str(tmp_path / "log"))
    result = cases.run(tmp_path / "w", evaluate, on(nodes))
    assert cases.recipes(result) == expected
    assert time.monotonic() - start < 200  # it would have slept 300 s


def test_nodes_that_come_late_are_waited_for(
    empty: Nodes, tmp_path: Path, expected: list[str]
) -> None:
    found: list[Any] = []
    executor = on(empty, 1, ray={"wait": 120})
    search = aside(lambda: found.append(cases.run(tmp_path, cases.scoring.score, executor)))
    time.sleep(8)
    empty.add()  # by the main thread: Ray sets signal handlers
    search.join(200)
    (result,) = found
    assert cases.recipes(result) == expected
    assert any("are waiting for room" in note and "0 CPU" in note for note in result.notes)
