"""The command line without a tuning: names, help, tables, and the statuses of wrong calls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result

import lpot
import onnx_models
from lpot.cli import cli
from lpot.cli.resolve import calibration_source, model_name, model_source, resolve
from lpot.core.errors import CalibrationError, ConfigError, LpotError, UnsupportedModel

MODULE = """
numbers = [[1.0], [2.0]]
nothing = None
empty = []
def loader(): return numbers
def images():
    import onnx_models
    return onnx_models.feeds(onnx_models.cnn())
def broken(): return 1 / 0
class Loader:
    def __iter__(self): return iter(numbers)
class Holder:
    @staticmethod
    def score(model): return 1.0
"""


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of the user's own, with a module and a model."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    for name in ("mine", "spoilt"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    (tmp_path / "mine.py").write_text(MODULE)
    (tmp_path / "spoilt.py").write_text("import no_such_package")
    onnx.save(onnx_models.cnn(), "net.onnx")
    return tmp_path


def test_version_and_help() -> None:
    assert run("--version").output == "lpot 2.0.0\n"
    told = run("--help").output
    places = [told.index(f"\n  {name}") for name in ("demo", "tune", "benchmark", "doctor")]
    assert places == sorted(places)
    assert run("tune", "-h").exit_code == 0


def test_version_is_quick_and_loads_nothing_heavy() -> None:
    script = (
        "import sys\nfrom lpot.cli import cli\n"
        "try:\n    cli.main(['--version'])\nexcept SystemExit: pass\n"
        "heavy = {'numpy', 'rich', 'pydantic', 'onnx', 'onnxruntime', 'torch'} & set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["tnue"], "did you mean 'tune'?"),
        (["zzz"], "there are: demo, tune"),
        (["tune", "--modle", "x"], "--model"),
        (["tune"], "--model"),
        (["tune", "--model", "nowhere.onnx"], "does not exist"),
        (["tune", "nowhere.yaml", "--model", "net.onnx"], "nowhere.yaml"),
        (["tune", "--model", "net.onnxx"], "did you mean 'net.onnx'?"),
        (["tune", "--model", "net.onnx", "--strategy", "basik"], "--strategy: given 'basik'"),
        (["tune", "--model", "net.onnx", "--max-trials", "0"], "--max-trials: given '0'"),
        (["tune", "--model", "net.onnx", "--relative", "1", "--absolute", "2"], "--absolute"),
        (["tune", "--model", "net.onnx", "--target", "vni"], "did you mean 'vnni'?"),
        (["tune", "--model", "net.onnx", "--framework", "onyx"], "did you mean 'onnx'?"),
        (["tune", "--model", "net.onnx", "--eval", "mine:scor"], "--eval: 'mine' has no 'scor'"),
        (["tune", "--model", "net.onnx", "--eval", "mine:loader"], "one model"),
        (["tune", "--model", "net.onnx", "--calib", "mine:broken"], "ZeroDivisionError"),
        (["tune", "--model", "net.onnx", "--output", "net.onnx"], "is the FP32 model itself"),
        (["inspect", "nowhere.onnx"], "does not exist"),
        (["inspect", "mine.py"], "can't tell the framework"),
        (["benchmark", "net.onnx", "--shape", "image=1,a"], "--shape: given 'image=1,a'"),
        (["benchmark", "net.onnx", "net.onnx", "--rounds", "2"], "rounds: given 2"),
        (["benchmark"], "MODEL"),
        (["recover", "net.onnx", "nowhere", "1", "--output", "x.onnx"], "no such history"),
        (["recover", "net.onnx", "nowhere", "0", "--output", "x.onnx"], "N"),
    ],
)
def test_wrong_calls_say_what_is_wrong(here: Path, words: list[str], said: str) -> None:
    done = run(*words)
    assert done.exit_code == 2
    assert said in done.stderr and "Traceback" not in done.stderr
    assert done.stdout == ""


def test_verbose_shows_where_an_error_came_from(here: Path) -> None:
    assert "Traceback" in run("-v", "inspect", "nowhere.onnx").stderr
    assert "Traceback" in run("inspect", "-v", "nowhere.onnx").stderr


def test_json_tells_errors_too(here: Path) -> None:
    done = run("inspect", "nowhere.onnx", "--json")
    told = json.loads(done.stdout)
    assert told["exit"] == done.exit_code == 2
    assert told["error"]["kind"] == "ConfigError" and "nowhere" in told["error"]["message"]


def test_inspect(here: Path) -> None:
    done = run("inspect", "net.onnx", "-q")
    assert done.exit_code == 0 and done.stderr == ""
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["op", "kind", "supports", "reason"]
    assert any(line.split()[:4] == ["head", "Gemm", "static", "int8"] for line in lines)
    assert any("int8 next to int8" in line for line in lines)
    (summary,) = (line for line in lines if "of 12 ops can run in low precision" in line)
    assert all(line.startswith("note: ") for line in lines[lines.index(summary) + 1 :])
    assert all(line == line.rstrip() for line in lines)
    told = json.loads(run("inspect", "net.onnx", "--approach", "dynamic", "--json").stdout)
    assert told["approach"] == "dynamic" and len(told["ops"]) == 12
    conv = next(op for op in told["ops"] if op["name"] == "stem_conv")
    assert conv["can_be_low"] is False and conv["reason"]


@pytest.mark.parametrize(("target", "bits"), [("avx2", 7), ("vnni", 8), ("amx", 8)])
def test_inspect_tells_what_the_target_takes(here: Path, target: str, bits: int) -> None:
    done = run("inspect", "net.onnx", "-q", "--target", target)
    notes = [line for line in done.stdout.splitlines() if line.startswith("note: ")]
    reduced = f"note: reduced range: target {target}'s"
    assert [line.startswith(reduced) for line in notes] == [True] * (bits == 7)
    told = json.loads(run("inspect", "net.onnx", "--target", target, "--json").stdout)
    assert told["target"] == target


def test_an_unknown_target_names_those_there_are(here: Path) -> None:
    done = run("inspect", "net.onnx", "--target", "avx9")
    assert done.exit_code == 2
    assert all(f"'{word}'" in done.stderr for word in ("avx9", "this", "avx2", "vnni", "amx"))


def test_schema_and_template_can_be_used() -> None:
    from ruamel.yaml import YAML

    schema = json.loads(run("schema").stdout)
    assert "tuning" in schema["properties"]
    assert set(YAML(typ="safe").load(run("template").stdout)) <= set(schema["properties"])


def test_doctor() -> None:
    done = run("doctor", "-q")
    assert done.exit_code == 0 and "self-test" in done.stdout
    assert "pip install lpot" not in done.stdout
    assert json.loads(run("doctor", "--json").stdout)["lpot"] == "2.0.0"


def test_benchmark_of_two(here: Path) -> None:
    done = run(
        *("benchmark", "net.onnx", "net.onnx", "--batch-size", "2", "--iteration", "8"),
        *("--rounds", "8", "--threads", "1", "--json"),
    )
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert [model["label"] for model in told["models"]] == ["net.onnx", "net.onnx #2"]
    assert told["batch_size"] == 2 and told["models"][1]["comparison"]["ratio"] > 0
    assert "measuring in turns (16 steps)" in done.stderr


def test_benchmark_of_a_factory_in_the_current_folder(here: Path) -> None:
    (here / "making.py").write_text(
        "from lpot.core.batch import InputSpec\n"
        "def make(): return (lambda feed: feed['x'] * 2, [InputSpec('x', 'float32', (1, 4))])\n"
    )
    done = run("benchmark", "making:make", "--iteration", "2", "--rounds", "2", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout)["models"][0]["framework"] == "callable"


def test_a_model_that_cant_be_measured_is_status_2(here: Path) -> None:
    (here / "torn.onnx").write_bytes((here / "net.onnx").read_bytes()[:200])
    done = run("benchmark", "net.onnx", "torn.onnx", "--iteration", "8", "--rounds", "8", "-q")
    assert done.exit_code == 2
    assert "failed: " in done.stdout and "baseline" in done.stdout


def test_export(here: Path) -> None:
    model = onnx_models.cnn()
    options = {"workspace": here / "ws", "measure_speed": False}
    tuned = lpot.tune(model, onnx_models.feeds(model), lambda given: 1.0, **options)
    done = run("export", "ws", "out.onnx", "--calib", "mine:images", "--json")
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    assert told["bytes"] == (here / "out.onnx").stat().st_size
    feed = onnx_models.feeds(model)[0]
    for one, other in zip(lpot.load("out.onnx")(**feed), tuned.model(**feed), strict=True):
        np.testing.assert_array_equal(one, other)
    empty = run("export", "ws", "other.onnx", "--calib", "mine:empty")
    assert empty.exit_code == 2 and "--calib yielded no batch" in empty.stderr
    assert not (here / "other.onnx").exists()


@pytest.mark.parametrize("name", ["out.tflite", "out.onn", "out", "out.pt2"])
def test_an_export_takes_endings_that_fit(here: Path, name: str) -> None:
    done = run("export", "net.onnx", name)
    assert done.exit_code == 2 and ".onnx (ONNX Runtime, OpenVINO" in done.stderr, done.output
    assert (".pt2" in done.stderr.partition("can be written")[2]) == (name != "out.pt2")
    assert not (here / name).exists()


def test_an_export_to_openvino_s_own_format(here: Path) -> None:
    openvino = pytest.importorskip("openvino")
    done = run("export", "net.onnx", "ir/out.xml", "--json")
    assert done.exit_code == 0, done.output
    assert sorted(path.name for path in (here / "ir").iterdir()) == ["out.bin", "out.xml"]
    model = onnx_models.cnn()
    feed = onnx_models.feeds(model)[0]
    found = openvino.Core().compile_model("ir/out.xml", "CPU")(feed)
    for one, other in zip(lpot.load("net.onnx")(**feed), found.values(), strict=True):
        np.testing.assert_allclose(one, other, atol=0.1)


def test_what_can_not_be_opened_is_not_left_behind(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lpot.backends.onnx.model import OnnxModel

    def torn(self: OnnxModel, path: Path, inputs: object = None) -> Path:
        path.write_bytes(b"torn")
        return path

    monkeypatch.setattr(OnnxModel, "export_onnx", torn)
    done = run("export", "net.onnx", "out.onnx")
    assert done.exit_code == 2 and "could not be opened again" in done.stderr
    assert not (here / "out.onnx").exists()


@pytest.mark.parametrize("name", ["net.xml", "net.engine", "net.ort", "net.tflite"])
def test_what_was_made_for_one_runtime_is_no_model_to_tune(here: Path, name: str) -> None:
    start = b"\0\0\0\0ORTM" if name.endswith("ort") else b"<net>"
    (here / name).write_bytes(start * 20)
    done = run("inspect", name)
    assert done.exit_code == 2 and "that it was made from" in done.stderr, done.output


def test_references_are_found_in_the_current_folder(here: Path) -> None:
    assert resolve("mine:numbers", "--x") == [[1.0], [2.0]]
    assert resolve("mine:Holder.score", "--x")(None) == 1.0
    assert resolve("json:dumps", "--x") is json.dumps


@pytest.mark.parametrize(
    ("reference", "said"),
    [
        ("mine", "expected pkg.mod:name, such as my_module:my_function"),
        ("./mine.py:loader", "such as mine:loader"),
        ("mine.py:loader", "such as mine:loader"),
        ("mind:loader", "did you mean 'mine'"),
        ("mine.sub:loader", "mine"),
        ("mine:numbesr", "did you mean 'numbers'"),
        ("spoilt:x", "importing 'spoilt' raised ModuleNotFoundError: No module named 'no_such"),
        ("a b:c", "expected pkg.mod:name"),
    ],
)
def test_references_that_lead_nowhere(here: Path, reference: str, said: str) -> None:
    with pytest.raises(ConfigError) as raised:
        resolve(reference, "--eval")
    assert said in str(raised.value) and "--eval" in str(raised.value)


@pytest.mark.parametrize("name", ["numbers", "loader", "Loader"])
def test_loaders_and_what_makes_them(here: Path, name: str) -> None:
    assert list(calibration_source(f"mine:{name}")) == [[1.0], [2.0]]


@pytest.mark.parametrize(("name", "kind"), [("nothing", ConfigError), ("broken", CalibrationError)])
def test_what_is_no_loader(here: Path, name: str, kind: type[LpotError]) -> None:
    with pytest.raises(kind, match=name):
        calibration_source(f"mine:{name}")


def test_models_and_what_makes_them(here: Path) -> None:
    assert model_source("net.onnx") == "net.onnx"
    assert model_source("mine:loader") == [[1.0], [2.0]]
    assert model_source("mine:numbers") == [[1.0], [2.0]]
    with pytest.raises(UnsupportedModel, match="division by zero"):
        model_source("mine:broken")
    assert model_name("net.onnx") == "net" and model_name("pkg.mod:make.net") == "net"


def test_python_runs_the_package_and_a_config_from_stdin() -> None:
    import subprocess
    import sys

    command = [sys.executable, "-m", "lpot", "tune", "-", "--model", "none.onnx"]
    done = subprocess.run(command, input="model: {nam: a}", capture_output=True, text=True)
    assert done.returncode == 2
    assert "<stdin>:1: model.nam: unknown key" in done.stderr


def test_help_tells_how_to_complete() -> None:
    from click.testing import CliRunner

    from lpot.cli import cli

    assert "_LPOT_COMPLETE=bash_source lpot" in CliRunner().invoke(cli, ["--help"]).output


LONG = "a" * 300


@pytest.mark.parametrize(
    "words",
    [
        ("tune", "--model", f"{LONG}/net.onnx"),
        ("tune", "--model", "net.onnx", "--approach", "dynamic", "--workspace", LONG),
        ("tune", "--model", "net.onnx", "--approach", "dynamic", "--output", f"{LONG}.onnx"),
        ("tune", f"{LONG}.yaml", "--model", "net.onnx"),
        ("tune-all", f"{LONG}.yaml"),
        ("inspect", f"{LONG}.onnx"),
        ("benchmark", f"{LONG}.onnx"),
        ("report", LONG),
        ("recover", "net.onnx", LONG, "1"),
        ("export", LONG, "out.onnx"),
        ("export", "net.onnx", f"{LONG}.onnx"),
        ("generate", LONG, "text"),
    ],
)
def test_names_that_no_file_can_have_are_told(here: Path, words: tuple[str, ...]) -> None:
    done = run(*words)
    assert done.exit_code == 2, done.stderr
    assert "internal" not in done.stderr and len(done.stderr) < 1000


@pytest.mark.parametrize("command", ["inspect", "tune"])
def test_a_folder_is_no_model(here: Path, command: str) -> None:
    done = run(command, *(("--model",) if command == "tune" else ()), ".")
    assert done.exit_code == 2 and "give the .onnx file itself" in done.stderr


def test_names_are_shown_as_they_are(here: Path) -> None:
    assert "'a:key:c.onnx' does not exist" in run("inspect", "a:key:c.onnx").stderr


@pytest.mark.parametrize("words", [("benchmark", "net.onnx", "--roundz", "3"), ("nonsense",)])
def test_json_tells_of_a_wrong_call_too(here: Path, words: tuple[str, ...]) -> None:
    done = run(*words, "--json")
    told = json.loads(done.stdout)
    assert done.exit_code == told["exit"] == 2 and told["error"]["message"]
