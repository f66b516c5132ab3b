"""`lpot tune`, `demo` and `recover` in this process: options, verdicts, statuses, JSON."""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path
from typing import Any

import onnx
import pytest
from click.testing import CliRunner, Result

import lpot
import onnx_models
from lpot.cli import cli
from lpot.cli.tune import make_config, tune

MODULE = """
import lpot
import onnx_models
model = onnx_models.mlp(layers=4)
data = onnx_models.feeds(model)
good = onnx_models.fidelity(model, data)
calls = []
def bad(given):
    calls.append(given)
    print("a word from the user's function")
    return 1.0 if len(calls) == 1 else 0.1 * len(calls)
def error(given):
    calls.append(given)
    return 2.0 if len(calls) == 1 else 2.01
def torn():
    yield data[0]
    raise ValueError("the disk is gone")
def make():
    return model
"""
COMMON = ("--model", "net.onnx", "--calib", "judge:data", "--no-speed")


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "judge", raising=False)
    (tmp_path / "judge.py").write_text(MODULE)
    onnx.save(onnx_models.mlp(layers=4), "net.onnx")
    return tmp_path


def run(*words: str) -> Result:
    return CliRunner().invoke(cli, list(words))


def test_the_bar_is_met(here: Path) -> None:
    done = run("tune", *COMMON, "--eval", "judge:good", "--relative", "5%", "--output", "best.onnx")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.startswith("bar met: accuracy 0.9")
    assert "best.onnx" in done.stdout and (here / "best.onnx").is_file()
    assert (here / "lpot_workspace" / "onnx" / "net" / "history.jsonl").is_file()
    assert "trial 1: accuracy" in done.stderr and "trial 1" not in done.stdout


def test_best_effort_is_status_3_saved_and_said(here: Path) -> None:
    done = run("tune", *COMMON, "--eval", "judge:bad", "--workspace", "ws")
    assert done.exit_code == 3, done.stderr
    assert "bar missed, best effort" in done.stdout
    assert (here / "ws" / "best_model.onnx").is_file()


def test_nothing_to_evaluate_is_status_0() -> None:
    done = run("tune", *COMMON)
    assert done.exit_code == 0 and done.stdout.startswith("not evaluated")


def test_json_is_the_only_thing_on_stdout() -> None:
    done = run("tune", *COMMON, "--eval", "judge:bad", "--json", "--progress", "json")
    told = json.loads(done.stdout)
    assert told["exit"] == done.exit_code == 3 and told["met"] is False
    assert Path(told["paths"]["model"]).is_file() and told["interrupted"] is False
    lines = done.stderr.splitlines()
    assert lines.count("a word from the user's function") == told["evaluations"]
    events = [json.loads(line)["event"] for line in lines if line.startswith("{")]
    assert events[0] == "phase" and {"plan", "baseline", "begin", "trial", "step"} <= set(events)


def test_quiet_says_the_verdict_alone() -> None:
    done = run("tune", *COMMON, "--eval", "judge:good", "--relative", "0.05", "-q")
    assert done.exit_code == 0 and done.stderr == ""
    assert len(done.stdout.splitlines()) == 1


def test_running_again_goes_on() -> None:
    words = ("tune", *COMMON, "--eval", "judge:bad", "--really", "--strategy", "random", "--json")
    first = json.loads(run(*words, "--max-trials", "3").stdout)
    again = run(*words, "--max-trials", "5", "--trust-history")
    assert (first["trials"], json.loads(again.stdout)["trials"]) == (3, 5)
    assert "recalled" in again.stderr
    fresh = json.loads(run(*words, "--max-trials", "2", "--new-run").stdout)
    assert fresh["paths"]["workspace"] != first["paths"]["workspace"]


def test_a_yaml_file_and_options_over_it(here: Path) -> None:
    (here / "conf.yaml").write_text(
        "model: {name: mine, framework: onnx}\n"
        "tuning:\n  accuracy_criterion: {absolute: 0.5, higher_is_better: false}\n"
    )
    done = run("tune", "conf.yaml", *COMMON, "--eval", "judge:error", "--relative", "0.01")
    assert done.exit_code == 0, done.stderr
    assert "at most 0.01 relative loss, lower is better" in done.stderr
    assert (here / "lpot_workspace" / "onnx" / "mine").is_dir()


def test_a_factory_makes_the_model(here: Path) -> None:
    done = run("tune", "--model", "judge:make", "--calib", "judge:data", "--no-speed", "-q")
    assert done.exit_code == 0, done.stderr
    assert (here / "lpot_workspace" / "onnx" / "make" / "best_model.onnx").is_file()


def test_keep_fp32_and_lenient() -> None:
    words = ("tune", *COMMON, "--eval", "judge:good", "--relative", "0.05", "--json")
    done = run(*words, "--keep-fp32", "dense[01]", "--keep-fp32", "dense3")
    assert {"dense0", "dense1", "dense3"} <= set(json.loads(done.stdout)["fp32_ops"])
    wrong = run(*words, "--keep-fp32", "dens9")
    assert wrong.exit_code == 2 and "--keep-fp32" in wrong.stderr
    assert run(*words, "--keep-fp32", "dens9", "--lenient").exit_code == 0


def test_dry_run_spends_nothing(here: Path) -> None:
    done = run("tune", *COMMON, "--eval", "judge:bad", "--dry-run")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines()[-1] == "ready" and "at most" in done.stdout
    assert "a word" not in done.output and not (here / "lpot_workspace").exists()
    wrong = run("tune", "--model", "net.onnx", "--dry-run", "--json")
    assert wrong.exit_code == 2 and json.loads(wrong.stdout)["ok"] is False


def test_the_users_own_code_is_named_when_it_raises() -> None:
    done = run("tune", "--model", "net.onnx", "--calib", "judge:torn", "--no-speed")
    assert done.exit_code == 2
    assert "the disk is gone" in done.stderr and "Traceback" not in done.stderr


def test_an_internal_error_is_status_1(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lpot.jobs.tune.quantize.chosen_executor", None)  # our own code fails
    words = ("tune", *COMMON, "--eval", "judge:bad")
    done = run(*words)
    assert done.exit_code == 1
    assert re.search(r"internal error: TypeError: .* \(quantize.py:\d+\)", done.stderr)
    assert "run with -v" in done.stderr and "Traceback" not in done.stderr
    assert "Traceback" in run(*words, "-v").stderr


def test_every_option_of_a_short_yaml_reaches_the_config() -> None:
    names = [parameter.name for parameter in tune.params]
    options: dict[str, Any] = dict.fromkeys(names)
    options |= {
        "model": "net.onnx",
        "name": "mine",
        "framework": "onnxrt_integerops",
        "approach": "dynamic",
        "absolute": "0.5",
        "lower_is_better": True,
        "objective": "modelsize",
        "strategy": "random",
        "max_trials": "7",
        "timeout": "60",
        "sampling_size": "10, 20",
        "seed": "3",
        "target": "avx2",
    }
    config = make_config(options)
    assert config.model.name == "mine" and config.model.framework == "onnxrt_integerops"
    assert config.quantization.approach == "post_training_dynamic_quant"
    assert config.quantization.calibration.sampling_size == (10, 20)
    assert config.quantization.target == "avx2"
    tuning = config.tuning
    criterion = tuning.accuracy_criterion
    assert (criterion.absolute, criterion.relative) == (0.5, None)
    assert criterion.higher_is_better is False
    assert tuning.objective == "modelsize" and tuning.strategy.name == "random"
    assert (tuning.exit_policy.max_trials, tuning.exit_policy.timeout) == (7, 60)
    assert tuning.random_seed == 3


def test_recover_builds_a_trial_again(here: Path) -> None:
    run("tune", *COMMON, "--eval", "judge:bad", "--workspace", "ws")
    done = run("recover", "net.onnx", "ws", "2", "--output", "two.onnx", "--json")
    assert done.exit_code == 0, done.stderr
    assert json.loads(done.stdout) == {
        **json.loads(done.stdout),
        "trial": 2,
        "met": False,
        "model": "two.onnx",
    }
    assert (here / "two.onnx").is_file()
    wrong = run("recover", "net.onnx", "ws", "99", "--output", "x.onnx")
    assert wrong.exit_code == 2 and "there is no trial 99; there are: 1" in wrong.stderr


def test_an_odd_bar_is_asked_about_in_the_words_of_the_command(here: Path) -> None:
    judged = ("tune", *COMMON, "--eval", "judge:good", "--workspace", "ws")
    done = run(*judged, "--relative", "0.99")
    assert done.exit_code == 2 and "--relative: 0.99" in done.stderr
    assert "--bar 99%" in done.stderr and "--really" in done.stderr
    assert not (here / "ws" / "history.jsonl").exists()
    assert run(*judged, "--relative", "0.99", "--really", "--no-speed").exit_code == 0


def test_demo(here: Path) -> None:
    done = run("demo")
    assert done.exit_code == 0, done.stderr
    first = (here / "lpot_workspace" / "demo").resolve()
    assert (first / "best_model.onnx").is_file() and (first / "result.json").is_file()
    assert "bar missed" in done.stdout and "bar met: accuracy" in done.stdout
    table = {line.split()[0]: line for line in done.stdout.splitlines() if line.strip()}
    assert {
        "accuracy",
        "latency",
        "speed",
        "size",
        "ops",
        "kept",
        "model",
        "history",
        "report",
    } <= {*table}
    assert table["kept"].startswith("kept in FP32  mix,")
    assert json.loads((first / "result.json").read_text())["evaluations"] > 2
    again = run("report", str(first), "--output", "page.html")
    assert again.exit_code == 0, again.stderr
    assert "Bar met." in again.stdout and "1 op stays in FP32" in again.stdout
    assert "<!doctype html>" in (here / "page.html").read_text("utf-8")
    (here / "empty").mkdir()
    empty = run("report", str(here / "empty"))
    assert empty.exit_code == 2 and "no report here" in empty.stderr


def test_demo_starts_afresh_or_resumes(here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from lpot.jobs.demo import demo_folder

    root = Path("lpot_workspace")
    assert demo_folder(resume=False) == root / "demo" == demo_folder(resume=True)
    for name in ("demo", "demo-run2", "demo-run10"):
        (root / name).mkdir(parents=True)
    assert demo_folder(resume=False) == root / "demo-run3"
    assert demo_folder(resume=True) == root / "demo-run10"


def test_a_tuned_model_is_evaluated_by_the_function_it_was_tuned_with() -> None:
    assert run("tune", *COMMON, "--eval", "judge:good", "--workspace", "ws").exit_code == 0
    words = ("benchmark", "ws/deploy.yaml", "--mode", "accuracy")
    done = run(*words)
    assert done.exit_code == 2 and "--eval my_eval:accuracy" in done.stderr
    scores = json.loads(run(*words, "--eval", "judge:good", "--json").stdout)["models"]
    assert scores["best_model.onnx"]["accuracy"] > 0.9
    assert run("benchmark", "ws", "--eval", "judge:good").exit_code == 2


def test_an_export_takes_the_loader_of_the_calibration() -> None:
    run("tune", *COMMON, "--workspace", "ws")
    assert run("export", "ws", "out.onnx", "--calib", "judge:data").exit_code == 0
    Path("text.txt").write_text("text")
    told = run("export", "ws", "out.onnx", "--calib", "text.txt")
    assert told.exit_code == 2 and "takes the loader of the calibration" in told.stderr
    untuned = run("export", "net.onnx", "out.onnx")
    assert untuned.exit_code == 0 and "net.onnx was not tuned" in untuned.stderr


def test_a_home_folder_is_found_wherever_it_is_named(
    here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(here / "home"))
    (here / "home").mkdir()
    (here / "net.onnx").rename(here / "home" / "net.onnx")
    done = run("tune", *COMMON[2:], "--model=~/net.onnx", "--workspace=~/ws")
    assert done.exit_code == 0 and (here / "home" / "ws" / "result.json").is_file()
    data = onnx_models.feeds(onnx_models.mlp(layers=4))
    result = lpot.tune("~/net.onnx", data, workspace="~/other", output="~/low.onnx",
                       measure_speed=False)  # fmt: skip
    assert result.path == here / "home" / "low.onnx" and lpot.load("~/other").recipe is not None
