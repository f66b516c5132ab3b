"""Running a command where its framework lives: that it works, and what is said if it can not."""

from __future__ import annotations

import importlib.util
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from lpot import backends
from lpot.backends import remote
from lpot.core.errors import BackendUnavailable, ConfigError

VARIABLE = remote.HOMES["mxnet"].variable


@pytest.fixture
def absent(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """As if MXNet were not installed here."""

    def refuse(name: str) -> None:
        raise BackendUnavailable(name, "mxnet")

    monkeypatch.setattr(remote, "get_backend", refuse)
    monkeypatch.delenv(VARIABLE, raising=False)
    return monkeypatch


def script(path: Path, text: str) -> str:
    path.write_text(f"#!{sys.executable}\n{text}")
    path.chmod(0o755)
    return str(path)


def test_what_can_be_used_here_is_not_run_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(remote, "get_backend", lambda name: object())
    assert remote.elsewhere("mxnet", ["tune"]) is None
    assert remote.elsewhere("onnx", ["tune"]) is None


def test_without_an_interpreter_the_way_out_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    if importlib.util.find_spec("mxnet") is not None:
        pytest.skip("MXNet is installed here")
    monkeypatch.delenv(VARIABLE, raising=False)
    with pytest.raises(BackendUnavailable, match=rf'"numpy<1.24".*{VARIABLE}'):
        remote.elsewhere("mxnet", ["tune"])


@pytest.mark.parametrize("given", ["/no/such/python", "/bin/false", "/bin/echo"])
def test_what_is_no_interpreter_is_refused(absent: pytest.MonkeyPatch, given: str) -> None:
    absent.setenv(VARIABLE, given)
    with pytest.raises(ConfigError, match=rf"{VARIABLE}: given '{given}'"):
        remote.elsewhere("mxnet", ["tune"])


def test_an_old_python_is_refused(absent: pytest.MonkeyPatch, tmp_path: Path) -> None:
    absent.setenv(VARIABLE, script(tmp_path / "python", "print('[[3, 8], []]')"))
    with pytest.raises(ConfigError, match=r"a Python 3\.8: at least 3\.11"):
        remote.elsewhere("mxnet", ["tune"])


def test_missing_packages_are_named(absent: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = script(tmp_path / "python", "print('[[3, 11], [\"ruamel.yaml\"]]')")
    absent.setenv(VARIABLE, given)
    with pytest.raises(ConfigError, match=r"lacks ruamel\.yaml: .* -m pip install mxnet==1\.9\.1"):
        remote.elsewhere("mxnet", ["tune"])


def test_the_child_gets_this_lpot_the_arguments_and_its_status_comes_back(
    absent: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    told = tmp_path / "told.json"
    given = script(
        tmp_path / "python",
        "import json, os, sys\n"
        "if sys.argv[1] == '-c':\n"
        "    print('[[3, 11], []]')\n"
        "    sys.exit()\n"
        "folder = os.environ['PYTHONPATH'].split(os.pathsep)[0]\n"
        "found = [sys.argv[1:], os.listdir(folder), os.path.realpath(folder + '/lpot')]\n"
        f"json.dump(found, open({str(told)!r}, 'w'))\n"
        "sys.exit(3)\n",
    )
    absent.setenv(VARIABLE, given)
    assert remote.elsewhere("mxnet", ["tune", "--model", "a b"]) == 3
    arguments, around, package = json.loads(told.read_text())
    assert arguments == ["-m", "lpot.cli", "tune", "--model", "a b"]
    assert around == ["lpot"]  # nothing else of this environment
    assert package == str(Path(backends.__file__).parents[1])


def test_a_killed_child_is_told_as_a_shell_does(absent: pytest.MonkeyPatch, tmp_path: Path) -> None:
    given = script(
        tmp_path / "python",
        "import os, sys\n"
        "if sys.argv[1] == '-c':\n"
        "    print('[[3, 11], []]')\n"
        "else:\n"
        "    os.kill(os.getpid(), 9)\n",
    )
    absent.setenv(VARIABLE, given)
    assert remote.elsewhere("mxnet", ["tune"]) == 137


@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} is not set")
def test_lpot_runs_over_there() -> None:
    code = (
        "import sys\n"
        "from lpot.backends import remote\n"
        "from lpot.core.errors import BackendUnavailable\n"
        "def refuse(name): raise BackendUnavailable(name, 'mxnet')\n"
        "remote.get_backend = refuse\n"
        "sys.exit(remote.elsewhere('mxnet', ['--version']))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("lpot ")
