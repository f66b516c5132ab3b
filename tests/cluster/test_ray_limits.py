"""Limits of a trial hold on Ray; what the cluster can't give is told, with what it has."""

from __future__ import annotations

import contextlib
import re
import socket
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
from cluster.test_ray_faults import on
from lpot.core.errors import LpotError
from lpot.core.trial import State
from lpot.jobs.execute import ray_cluster
from search import scoring


@pytest.mark.slow
def test_limits_of_a_trial_hold(nodes: Nodes, tmp_path: Path) -> None:
    result = cases.run(tmp_path / "a", scoring.hanging, on(nodes, 1, timeout=4))
    assert "4 s" in (result.trials[0].error or "")
    assert all(trial.state is State.DONE for trial in result.trials[1:])
    result = cases.run(tmp_path / "b", scoring.greedy, on(nodes, 1, memory=700))
    assert "700 MiB" in (result.trials[0].error or "")
    assert all(trial.state is State.DONE for trial in result.trials[1:])


@pytest.mark.slow
def test_more_workers_than_there_is_room_for(nodes: Nodes, tmp_path: Path) -> None:
    evaluate = partial(cases.logged, folder=str(tmp_path / "log"), seconds=1.5)
    result = cases.run(tmp_path / "w", evaluate, on(nodes, 4))
    assert len(result.trials) == cases.MOST
    # On a busy machine the one that has room may not have started by then.
    told = re.compile(
        r"[34] of 4 worker\(s\), each with 1 CPU, wait for room .* 1 node\(s\): 1 CPU"
    )
    assert any(told.search(note) for note in result.notes), result.notes


@pytest.mark.slow
@pytest.mark.parametrize(
    ("asked", "told"),
    [
        ({"ray": {"num_cpus": 64, "wait": 4}}, "64 CPU"),
        ({"ray": {"resources": {"tpu": 1}, "wait": 4}}, "1 tpu"),
        ({"ray": {"labels": {"cpu": "amx"}, "wait": 4}}, "label cpu=amx"),
        ({"memory": 1e9, "ray": {"wait": 4}}, "1000000000 MiB"),
    ],
    ids=["cpus", "resources", "labels", "memory"],
)
def test_what_the_cluster_does_not_have(
    nodes: Nodes, tmp_path: Path, asked: dict[str, Any], told: str
) -> None:
    start = time.monotonic()
    with pytest.raises(LpotError, match="no room for a worker") as caught:
        cases.run(tmp_path, scoring.score, on(nodes, 1, **asked))
    assert told in str(caught.value) and "1 node(s): 1 CPU" in str(caught.value)
    assert time.monotonic() - start < 60


@pytest.mark.slow
def test_labels_resources_and_environments_are_used(nodes: Nodes, tmp_path: Path) -> None:
    import sys

    nodes.add(labels={"cpu": "vnni"}, resources={"big": 1})
    paths = ":".join(path for path in sys.path if path)
    asked = {
        "num_cpus": 1,
        "labels": {"cpu": "vnni"},
        "resources": {"big": 1},
        "runtime_env": {"env_vars": {"PYTHONPATH": paths}},
    }
    result = cases.run(tmp_path, scoring.score, on(nodes, 1, ray=asked))
    assert len(result.trials) == cases.MOST


@pytest.mark.parametrize("what", ["nobody", "silence", "chatter", "http"])
def test_an_address_where_no_cluster_is(
    tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Told before FP32 is evaluated, and without Ray, which would ask for five minutes."""
    monkeypatch.setattr(ray_cluster, "PATIENCE", 0.5)
    monkeypatch.setattr("ray.init", never)
    words = {"chatter": b"SSH-2.0-OpenSSH_9.2\r\n", "http": b"HTTP/1.1 400 Bad Request\r\n\r\n"}
    with socket.socket() as taken:
        taken.bind(("127.0.0.2", 0))
        if what != "nobody":
            taken.listen()
            Thread(target=answer, args=(taken, words.get(what, b"")), daemon=True).start()
        executor = {"name": "ray", "address": f"127.0.0.2:{taken.getsockname()[1]}"}
        told = "nothing answers" if what == "nobody" else "something else uses that port"
        with pytest.raises(LpotError, match=told):
            cases.run(tmp_path, never, executor)


def answer(taken: socket.socket, words: bytes) -> None:
    with contextlib.suppress(OSError), contextlib.ExitStack() as held:
        while True:
            line = held.enter_context(taken.accept()[0])
            line.sendall(words)


def never(*given: Any, **options: Any) -> float:
    raise AssertionError("FP32 is evaluated, or Ray asked, although there is no cluster")
