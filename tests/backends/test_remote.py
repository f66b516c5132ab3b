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


WORK = """
import mxnet as mx
import numpy as np

IMAGES = np.random.default_rng(0).normal(size=(64, 4, 8, 8)).astype(np.float32)


def make():
    data = mx.sym.var("data")
    first = mx.sym.Convolution(data, name="one", num_filter=8, kernel=(3, 3))
    second = mx.sym.Activation(first, act_type="relu")
    net = mx.sym.FullyConnected(second, name="two", num_hidden=5)
    random = np.random.default_rng(1)
    shapes = dict(zip(net.list_arguments(), net.infer_shape(data=IMAGES.shape)[0]))
    del shapes["data"]
    params = {name: mx.nd.array(random.normal(0, 0.3, shape)) for name, shape in shapes.items()}
    mx.model.save_checkpoint("net", 0, net, params, {})


def run(model):
    symbol, args, auxs = model
    feeds = {**args, "data": mx.nd.array(IMAGES)}
    bound = symbol.bind(mx.cpu(), feeds, aux_states=auxs, grad_req="null")
    return bound.forward(is_train=False)[0].asnumpy()


def calib():
    return [IMAGES[:32], IMAGES[32:]]


def score(model):
    wanted = run(mx.model.load_checkpoint("net", 0)).argmax(1)
    return float((run(model).argmax(1) == wanted).mean())


if __name__ == "__main__":
    make()
"""


@pytest.mark.skipif(VARIABLE not in os.environ, reason=f"{VARIABLE} is not set")
def test_a_whole_tuning_over_there(tmp_path: Path) -> None:
    """Tuned, measured, built again: all from an environment without MXNet."""
    (tmp_path / "work.py").write_text(WORK)

    def run(*words: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(words, capture_output=True, text=True, cwd=tmp_path)

    assert run(os.environ[VARIABLE], "work.py").returncode == 0
    lpot = (sys.executable, "-m", "lpot.cli")
    tuned = run(
        *(*lpot, "tune", "--model", "net-symbol.json", "--calib", "work:calib"),
        *("--eval", "work:score", "--relative", "5%", "--workspace", "w", "--no-speed", "--json"),
    )
    assert tuned.returncode == 0, tuned.stderr
    assert json.loads(tuned.stdout)["met"] is True
    assert (tmp_path / "w" / "best_model-symbol.json").is_file()
    again = run(*lpot, "recover", "net-symbol.json", "w", "1", "--output", "again", "--json")
    assert again.returncode == 0, again.stderr
    seen = run(*lpot, "inspect", "net-symbol.json", "--json")
    assert seen.returncode == 0 and "Convolution" in seen.stdout
    timed = run(
        *(*lpot, "benchmark", "net-symbol.json", "w/best_model-symbol.json"),
        *("--shape", "data=4,4,8,8", "--seconds", "0.2", "--rounds", "8", "--json"),
    )
    assert timed.returncode == 0, timed.stderr
    assert len(json.loads(timed.stdout)["models"]) == 2
