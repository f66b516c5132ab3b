"""The live view: only here, only with the token, only reading; and it follows a tuning."""

from __future__ import annotations

import http.client
import json
import signal
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from browser import chromium
from lpot.core.errors import ConfigError
from lpot.core.files.history import History
from lpot.core.files.workspace import Workspace
from lpot.core.goal import Goal
from lpot.core.recipe import FP32, OpConfig, OpKey, Recipe, TensorConfig
from lpot.core.trial import Score, State, Trial
from lpot.jobs.report.beacon import Beacon
from lpot.jobs.report.dashboard import serve
from lpot.jobs.report.runs import Run
from patience import PATIENCE

INT8 = OpConfig(TensorConfig("uint8", "asym"), TensorConfig("int8", "sym"))
KEYS = [OpKey(f"conv{index}", "Conv") for index in range(4)]


def trial(number: int, accuracy: float) -> Trial:
    recipe = Recipe({key: FP32 if at < number else INT8 for at, key in enumerate(KEYS)})
    met = accuracy >= 0.891
    return Trial(number, recipe, State.DONE, Score(accuracy, 1.0, latency=0.01), met, seconds=2.0)


def begin(folder: Path) -> History:
    folder.mkdir(parents=True, exist_ok=True)
    info = {"framework": "onnx", "name": "digits", "goal": Goal(relative=0.01).to_json()}
    return History.open(folder / "history.jsonl", {"model": "abc"}, info)


@contextmanager
def served(workspace: Path) -> Iterator[Any]:
    server = serve(workspace)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def ask(server: Any, path: str, method: str = "GET", host: str | None = None) -> tuple[int, str]:
    port = server.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{port}")
    connection.endheaders()
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, text


def test_bound_to_this_machine_and_read_only(tmp_path: Path) -> None:
    begin(tmp_path).record_baseline(Score(0.9), None)
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    with served(tmp_path) as server:
        assert server.server_address[0] == "127.0.0.1"
        base = f"/{server.token}/"
        assert ask(server, base)[0] == 200
        for method in ("POST", "PUT", "DELETE", "PATCH"):
            assert ask(server, base, method)[0] == 405
        assert ask(server, base, "HEAD") == (200, "")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_without_the_token_nothing_is_shown(tmp_path: Path) -> None:
    begin(tmp_path)
    with served(tmp_path) as server:
        for path in (
            "/",
            "/stamp",
            "/wrong/",
            f"/{server.token}x/",
            f"/{server.token[:-1]}/",
            "/%",
        ):
            status, text = ask(server, path)
            assert status == 403, path
            assert "digits" not in text
            assert server.token not in text
        assert ask(server, f"/{server.token}/", host="evil.example")[0] == 403
        assert ask(server, "/../../etc/passwd")[0] == 403
        assert len(server.token) >= 32


@pytest.mark.parametrize(
    "name",
    ["../history.jsonl", "..%2f..%2fetc/passwd", "/etc/passwd", "history.jsonl", "lock", "a" * 600],
)
def test_no_name_becomes_a_path(tmp_path: Path, name: str) -> None:
    begin(tmp_path / "inner")
    (tmp_path / "history.jsonl").write_text("secret")
    with served(tmp_path / "inner") as server:
        status, text = ask(server, f"/{server.token}/{name}")
        assert status in (403, 404)
        assert "secret" not in text and "root:" not in text


def test_a_workspace_that_comes_into_being(tmp_path: Path) -> None:
    folder = tmp_path / "later"
    with served(folder) as server:
        base = f"/{server.token}/"
        status, text = ask(server, base)
        assert status == 200 and "the folder does not exist yet" in text
        folder.mkdir()
        assert "the folder is empty so far" in ask(server, base)[1]
        stamp = ask(server, f"{base}stamp")[1]
        history = begin(folder)
        assert ask(server, f"{base}stamp")[1] != stamp
        assert "FP32 has not been scored yet" in ask(server, base)[1]
        history.record_baseline(Score(0.9), None)
        assert "no trial has finished yet" in ask(server, base)[1]
        history.append(trial(1, 0.895))
        report = json.loads(ask(server, f"{base}report.json")[1])
        assert report["state"] == "stopped", "nobody holds the workspace"
        assert report["bar"] == pytest.approx(0.891)
        assert [row["accuracy"] for row in report["trials"]] == [0.895]


def test_the_tuning_is_left_alone(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path)
    with served(tmp_path) as server:
        base = f"/{server.token}/"
        assert "Nothing to show" in ask(server, base)[1]
        with workspace.lock():  # taken while somebody looks
            history = begin(tmp_path)
            history.record_baseline(Score(0.9), None)
            assert "running" in ask(server, base)[1]
            with (tmp_path / "history.jsonl").open("ab") as stream:
                stream.write(b'{"kind": "trial", "numb')  # a line half written
            status, text = ask(server, base)
            assert status == 200 and "torn" not in text
        with workspace.lock():  # and again
            pass


def test_a_damaged_workspace_is_a_page_too(tmp_path: Path) -> None:
    (tmp_path / "history.jsonl").write_bytes(b"\x00\xff garbage")
    (tmp_path / "report.json").write_text("{")
    with served(tmp_path) as server:
        status, text = ask(server, f"/{server.token}/")
        assert status == 200 and "not a history of lpot" in text


def test_a_port_that_is_taken(tmp_path: Path) -> None:
    with (
        served(tmp_path) as server,
        pytest.raises(ConfigError, match="choose another"),
    ):
        serve(tmp_path, server.server_address[1])


def test_the_page_follows_in_the_browser(tmp_path: Path) -> None:
    history = begin(tmp_path)
    history.record_baseline(Score(0.9), None)
    with served(tmp_path) as server, chromium() as browser:
        browser.open(server.url)
        assert "no trial has finished yet" in browser.ask("document.body.textContent")
        browser.wait("performance.getEntriesByType('resource').length > 0")
        for number in range(1, 4):
            history.append(trial(number, 0.88 + 0.005 * number))
        browser.wait("document.querySelectorAll('table.sortable tbody tr').length === 3")
        assert browser.ask("document.querySelectorAll('#ops tbody tr').length") == 4
        assert browser.complaints == []
        assert all(url.startswith((server.url, "data:")) for url in browser.requests)


def test_the_command_ends_quietly(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "lpot.cli", "dashboard", str(tmp_path), "--json"]
    running = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that starts us in the background has its children ignore Ctrl-C.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    assert running.stdout is not None
    told = "".join(running.stdout.readline() for _ in range(4))
    url = json.loads(told)["url"]
    with urllib.request.urlopen(url, timeout=PATIENCE) as answer:
        assert b"the folder is empty so far" in answer.read()
    running.send_signal(signal.SIGINT)
    _, errors = running.communicate(timeout=PATIENCE)
    assert running.returncode == 0
    assert "Traceback" not in errors


def test_a_folder_lists_its_runs_and_each_has_a_page(tmp_path: Path) -> None:
    for name in ("one", "two"):
        history = begin(tmp_path / "onnx" / name)
        history.record_baseline(Score(0.9), None)
        history.append(trial(1, 0.895))
    with served(tmp_path) as server:
        start = f"/{server.token}/"
        status, text = ask(server, start)
        assert status == 200 and "onnx/one" in text and "onnx/two" in text
        key = Run(tmp_path / "onnx" / "two", "onnx/two", "").key
        assert f'href="{key}/"' in text
        before = ask(server, start + "stamp")
        status, text = ask(server, f"{start}{key}/")
        assert status == 200 and "All runs" in text and "0.895" in text
        assert ask(server, f"{start}{key}/stamp")[0] == 200
        assert json.loads(ask(server, f"{start}{key}/report.json")[1])["name"] == "digits"
        for wrong in ("0/", "../", f"{key}/{key}/", f"{key}/history.jsonl"):
            assert ask(server, start + wrong)[0] == 404
        begin(tmp_path / "third").record_baseline(Score(0.9), None)
        assert ask(server, start + "stamp") != before, "a new run is news"


def test_what_goes_on_is_told(tmp_path: Path) -> None:
    history = begin(tmp_path)
    history.record_baseline(Score(0.9), None)
    beacon = Beacon()
    with Workspace(tmp_path).lock(), served(tmp_path) as server, beacon.lit(tmp_path):
        assert ask(server, f"/{server.token}/now") == (200, "")
        beacon.plan(7)
        beacon.baseline(Score(0.9, 5.0), Goal(relative=0.01))
        beacon.begin(3, trial(1, 0.9).recipe)
        status, text = ask(server, f"/{server.token}/now")
        assert status == 200
        assert text.startswith("trial 3 of at most 7; running for 0:0")
        assert "left of this" in text and "of the search" in text
        (tmp_path / "progress.json").write_text('{"phase": 3}', "utf-8")
        assert ask(server, f"/{server.token}/now") == (200, "")
    assert not (tmp_path / "progress.json").exists()


def test_a_folder_that_is_not_there_is_said(tmp_path: Path) -> None:
    gone = tmp_path / "none"
    command = [sys.executable, "-m", "lpot.cli", "dashboard", str(gone)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        assert running.stdout is not None
        assert "does not exist yet" in running.stdout.readline()
        running.send_signal(signal.SIGINT)
    with served(gone) as server:
        assert "the folder does not exist yet" in ask(server, f"/{server.token}/")[1]
