"""Workspaces at URLs: the same guarantees as on a disk, in memory and on a real S3 server."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")
pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'lpot[remote]'")

import fsspec
from click.testing import CliRunner

from cluster import cases
from lpot.cli import cli
from lpot.core.errors import ConfigError, WorkspaceError
from lpot.core.files.card import is_whole, read_card
from lpot.core.files.history import History
from lpot.jobs.load import load
from lpot.jobs.recover import get_tuning_history, recover
from lpot.jobs.storage import segments
from lpot.jobs.storage.mirror import Mirror
from lpot.jobs.storage.store import ObjectStore
from lpot.jobs.storage.workspace import as_path, fetched, is_url
from patience import wait_until
from search import scoring

KEYS = {"AWS_ACCESS_KEY_ID": "k", "AWS_SECRET_ACCESS_KEY": "s", "AWS_DEFAULT_REGION": "us-east-1"}


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A process of its own that speaks S3 over HTTP on a loopback address."""
    pytest.importorskip("s3fs", reason="s3fs is not installed: pip install 'lpot[remote]'")
    pytest.importorskip("moto.server", reason="moto's server is not installed: 'moto[server]'")
    log = tmp_path_factory.mktemp("s3") / "log"
    call = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", "0"]
    with log.open("w") as stream:
        process = subprocess.Popen(call, stderr=stream, stdout=stream)
    try:
        found = wait_until(lambda: re.search(r"http://127\.0\.0\.1:\d+", log.read_text()))
        yield found[0]
    finally:
        process.kill()
        process.wait()


@pytest.fixture(params=["memory", pytest.param("s3", marks=pytest.mark.slow)])
def url(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    name = re.sub(r"\W", "-", request.node.name).strip("-")
    if request.param == "memory":
        return f"memory://{name}"
    address = request.getfixturevalue("server")
    for key, value in {**KEYS, "AWS_ENDPOINT_URL": address}.items():
        monkeypatch.setenv(key, value)
    fsspec.filesystem("s3").clear_instance_cache()
    bucket = fsspec.filesystem("s3")
    if not bucket.exists("models"):
        bucket.mkdir("models")
    return f"s3://models/{name}"


def test_a_run_is_kept_and_gone_on_with(url: str) -> None:
    first = cases.run(url, scoring.score, "serial")
    assert f"everything is kept at {url}" in first.notes
    names = set(ObjectStore(url).listing())
    assert {"best_model.onnx", "best_model.onnx.card.json", "report.html", "result.json"} <= names
    again = cases.run(url, scoring.score, "serial")
    assert cases.recipes(again) == cases.recipes(first)
    assert all(trial.recalled for trial in again.trials)


def test_what_lies_there_can_be_read(url: str) -> None:
    result = cases.run(url, scoring.score, "serial")
    assert len(get_tuning_history(url)) == len(result.trials)
    assert load(url).recipe == result.recipe == load(f"{url}/best_model.onnx").recipe
    assert recover(scoring.net().model, f"{url}/history.jsonl", 1).recipe is not None
    shown = CliRunner().invoke(cli, ["report", url])
    assert shown.exit_code == 0 and "INT8" in shown.output.upper()
    nothing = CliRunner().invoke(cli, ["report", f"{url}-nothing"])
    assert nothing.exit_code == 2 and "neither a workspace nor a model" in nothing.output


def test_another_run_lies_beside_and_the_first_stays(url: str) -> None:
    first = cases.run(url, scoring.score, "serial")
    torn = scoring.net()
    common = {"workspace": url, "measure_speed": False}
    other = cases.tune(torn.model, torn.batches[:-1], scoring.score, 0.2, **common)
    assert any(f"{url} holds the answer to another question" in note for note in other.notes)
    assert load(url).recipe == first.recipe
    back = cases.run(url, scoring.score, "serial")
    assert all(trial.recalled for trial in back.trials)


def test_new_run_starts_beside(url: str) -> None:
    cases.run(url, scoring.score, "serial")
    torn = scoring.net()
    options = {"workspace": url, "new_run": True, "measure_speed": False}
    result = cases.tune(torn.model, torn.batches[:-1], scoring.score, 0.2, **options)
    assert f"everything is kept at {url}-run2" in result.notes


def test_damage_costs_the_line_that_it_is_in(url: str) -> None:
    cases.run(url, scoring.score, "serial")
    store = ObjectStore(url)
    parts = sorted(name for name in store.listing("history") if name.endswith(".part"))
    trials = [name for name in parts if b'"kind": "trial"' in store.read(name)]
    store.write(trials[1], store.read(trials[1]).replace(b'"number": 2', b'"number": 9'))
    store.delete(trials[2])
    again = cases.run(url, scoring.score, "serial")
    assert sum(trial.recalled for trial in again.trials) == cases.MOST - 2
    assert any("was edited" in note for note in again.notes)
    assert any("1 object(s) of the history are gone" in note for note in again.notes)
    assert "history-damaged.jsonl" in store.listing()
    healed = cases.run(url, scoring.score, "serial")
    assert all(trial.recalled for trial in healed.trials)


def test_many_lines_become_one_object(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(segments, "MOST_PARTS", 3)
    cases.run(url, scoring.score, "serial")
    found = ObjectStore(url).listing("history")
    assert len(found) <= 4 and sum(name.endswith(".whole") for name in found) == 1
    assert len(get_tuning_history(url)) == cases.MOST


def test_a_whole_model_at_every_moment(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The network is cut after each single write of a model over an older one."""
    url = "memory://moments"
    old, new = (tmp_path / name for name in ("old", "new"))
    cases.run(old, scoring.score, "serial")
    torn = scoring.net()
    cases.tune(torn.model, torn.batches[:-1], None, workspace=new, measure_speed=False)
    hashes = {read_card(folder / "best_model.onnx")["sha256"] for folder in (old, new)}
    assert len(hashes) == 2
    for moment in range(20):
        fsspec.filesystem("memory").rm("/", recursive=True)
        Mirror(ObjectStore(url), old).push()
        left = moment

        def count(self: ObjectStore, *args: object, real: object = None) -> None:
            nonlocal left
            left -= 1
            if left < 0:
                raise WorkspaceError("the network is gone")

        with monkeypatch.context() as patch:
            for name in ("write", "upload"):
                real = getattr(ObjectStore, name)

                def cut(self: ObjectStore, *args: object, real: object = real) -> None:
                    count(self)
                    real(self, *args)  # type: ignore[operator]

                patch.setattr(ObjectStore, name, cut)
            try:
                Mirror(ObjectStore(url), new).push()
                survived = True
            except WorkspaceError:
                survived = False
        found = fetched(url) / "best_model.onnx"
        card = read_card(found)
        assert is_whole(found, card) and card["sha256"] in hashes
        load(url)
        if survived:
            break
    assert survived and moment > 3


def test_a_store_that_goes_away_leaves_the_best_here(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    real = ObjectStore.write
    seen = []

    def failing(self: ObjectStore, name: str, raw: bytes) -> None:
        seen.append(b'"kind": "trial"' in raw)
        if sum(seen) > 2:
            raise WorkspaceError("the network is gone")
        real(self, name, raw)

    monkeypatch.setattr(ObjectStore, "write", failing)
    result = cases.run("memory://away", scoring.score, "serial")
    assert "the network is gone" in result.stopped
    assert result.path is not None and result.path.is_file()
    monkeypatch.undo()
    again = cases.run("memory://away", scoring.score, "serial")
    assert sum(trial.recalled for trial in again.trials) >= 2


def test_an_output_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    torn = scoring.net()
    with pytest.raises(ConfigError, match="the URL as the workspace"):
        cases.tune(torn.model, torn.batches[:-1], scoring.score, output="s3://models/net.onnx")
    assert not (tmp_path / "s3:").exists()


def test_a_dry_run_and_processes_at_a_url() -> None:
    cases.run("memory://apart", scoring.score, {"name": "process", "workers": 2})
    assert len(get_tuning_history("memory://apart")) == cases.MOST
    assert load("memory://apart").recipe is not None


def test_a_disk_needs_no_lease(tmp_path: Path) -> None:
    assert not is_url(f"file://{tmp_path}") and as_path(f"file://{tmp_path}") == tmp_path
    cases.run(f"file://{tmp_path}/run", scoring.score, "serial")
    assert (tmp_path / "run" / "history.jsonl").is_file()
    assert not (tmp_path / "run" / "lease").exists()


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("s4://bucket/run", "s4:// is unknown to fsspec: expected one such as s3"),
        ("s3://no-such-bucket/run", "no-such-bucket"),
    ],
)
def test_places_that_are_none(url: str, place: str, told: str) -> None:
    if place.startswith("s3") and url.startswith("memory"):
        pytest.skip("asked of the S3 server")
    with pytest.raises((ConfigError, WorkspaceError), match=told):
        cases.run(place, scoring.score, "serial")


def test_fsspec_that_is_missing_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ConfigError, match=r"pip install 'lpot\[remote\]'"):
        cases.run("memory://x", scoring.score, "serial")


@pytest.mark.parametrize("url", ["s3"], indirect=True)
def test_a_killed_run_goes_on_from_elsewhere(url: str, tmp_path: Path) -> None:
    """Another process with another cache: nothing but the URL is shared."""
    log = tmp_path / "log"
    paths = os.pathsep.join(path for path in sys.path if path)
    call = [sys.executable, "-m", "cluster.cases", url, str(log)]
    environment = {**os.environ, "PYTHONPATH": paths, "XDG_CACHE_HOME": str(tmp_path / "there")}
    driver = subprocess.Popen(call, env=environment, stdout=subprocess.DEVNULL)
    wait_until(lambda: len(list(log.glob("begun-*"))) >= 3)
    driver.kill()
    driver.wait()
    finished = len(get_tuning_history(url))
    assert finished >= len(list(log.glob("ended-*"))) - 1 >= 1  # one may have been under way
    again = cases.run(url, scoring.score, "serial")
    assert len(again.trials) == cases.MOST
    assert sum(trial.recalled for trial in again.trials) == finished
    assert len(History.read(fetched(url) / "history.jsonl").trials) == cases.MOST
