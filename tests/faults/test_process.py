"""What lpot does to its process: nothing; and what it says when a framework is missing."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import lpot
from lpot.core.errors import EvaluationError
from lpot.core.measure import compare
from lpot.jobs.finish import speed

IMPORT = """
import logging, random, signal, sys, warnings
import numpy, yaml_stub, ruamel.yaml
from ruamel.yaml import YAML
handler = logging.StreamHandler()
logging.getLogger().addHandler(handler)
logging.getLogger().setLevel(logging.ERROR)
numpy.random.seed(5); random.seed(5)
before = {
    "random": random.getstate(), "numpy": numpy.random.get_state()[1].tobytes(),
    "handlers": list(logging.getLogger().handlers), "level": logging.getLogger().level,
    "signals": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)],
    "filters": list(warnings.filters), "hook": sys.excepthook, "errors": numpy.geterr(),
    "yaml": YAML(typ="safe").load("a: null\\nb: 1e-2\\nc: NO"), "stdout": sys.stdout,
}
import lpot
import lpot.quantization, lpot.experimental, lpot.jobs.tune.api
import lpot.config, lpot.strategy, lpot.cli
for name in lpot.__all__:
    getattr(lpot, name)
after = {
    "random": random.getstate(), "numpy": numpy.random.get_state()[1].tobytes(),
    "handlers": list(logging.getLogger().handlers), "level": logging.getLogger().level,
    "signals": [signal.getsignal(s) for s in (signal.SIGINT, signal.SIGTERM)],
    "filters": list(warnings.filters), "hook": sys.excepthook, "errors": numpy.geterr(),
    "yaml": YAML(typ="safe").load("a: null\\nb: 1e-2\\nc: NO"), "stdout": sys.stdout,
}
for key in before:
    assert before[key] == after[key], key
assert not logging.getLogger("lpot").handlers
heavy = {"onnx", "onnxruntime", "torch", "tensorflow", "mxnet", "sklearn", "scipy", "optuna",
         "transformers", "PIL", "pycocotools"}
assert not heavy & set(sys.modules), heavy & set(sys.modules)
import os
assert not os.path.exists("lpot_workspace")
""".replace("yaml_stub, ", "")

MISSING = """
import sys
sys.modules[sys.argv[1]] = None
import lpot
for call in (lambda: lpot.tune("model.onnx", []), lambda: lpot.load("model.onnx")):
    try:
        call()
    except lpot.LpotError as error:
        print(type(error).__name__, getattr(error, "package", ""), "|", error)
"""

TUNED = """
import logging, random, signal, sys, threading, warnings
import numpy, ruamel.yaml  # which sets filters for its own warnings
import lpot, onnx_models
numpy.random.seed(5); random.seed(5)
model = onnx_models.cnn(); data = onnx_models.feeds(model)
judge = onnx_models.fidelity(model, data)
state = random.getstate(), numpy.random.get_state()[1].tobytes()
before = signal.getsignal(signal.SIGINT), list(logging.getLogger().handlers), list(warnings.filters)
result = lpot.tune(model, data, judge, workspace="ws", measure_speed=False, progress=False)
assert (random.getstate(), numpy.random.get_state()[1].tobytes()) == state
after = signal.getsignal(signal.SIGINT), list(logging.getLogger().handlers), list(warnings.filters)
assert before == after
assert threading.active_count() == 1, threading.enumerate()
"""


def test_importing_changes_nothing(script: Any) -> None:
    script(IMPORT)


def test_tuning_leaves_the_process_as_it_was_and_prints_nothing(script: Any) -> None:
    done = script(TUNED)
    assert done.stdout == ""
    assert done.stderr == ""


@pytest.mark.parametrize("package", ["onnx", "onnxruntime"])
def test_a_missing_framework_is_named_with_its_package(script: Any, package: str) -> None:
    lines = script(MISSING, package).stdout.splitlines()
    assert len(lines) == 2
    for line in lines:
        assert line.startswith(f"BackendUnavailable {package} |"), line
        assert f"pip install {package}" in line
        assert "lpot[" not in line


def timed(seconds: float) -> list[tuple[float, ...]]:
    return [tuple(seconds * (1 + step / 100) for step in range(8)) for _ in range(8)]


@pytest.fixture
def clocked(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The measurement itself is tested elsewhere: here it is what is made of it."""

    def set_to(seconds: float, taken: float = 0.0) -> None:
        comparison = replace(compare(timed(0.001), timed(seconds)), taken=taken)
        first = SimpleNamespace(comparison=None, timing=None, error=None)
        other = SimpleNamespace(comparison=comparison, timing=None, error=None)
        measured = SimpleNamespace(models=(first, other), profile=None, settings=speed.SETTINGS)
        monkeypatch.setattr(speed, "benchmark", lambda *args, **options: measured)
        monkeypatch.setattr(speed, "LONG_ENOUGH", 0.0)

    return set_to


@pytest.mark.parametrize(
    ("seconds", "faster", "word"),
    [(0.001, None, "no significant difference"), (0.0005, True, "")],
)
def test_what_is_not_slower_is_the_answer(
    tune: Any, clocked: Any, seconds: float, faster: bool | None, word: str
) -> None:
    clocked(seconds)
    result = tune(evaluate=lambda model: 1.0, measure_speed=True)
    assert result.met is True
    assert result.faster is faster
    assert result.speed == pytest.approx(0.001 / seconds, rel=0.05)
    assert result.recipe.low_ops and result.declined is None
    assert any(re.search(word, note) for note in ("", *result.notes))


@pytest.mark.parametrize(("searched", "seconds"), [(0.1, 0.4), (4.0, 1.0), (900.0, 1.5)])
def test_a_short_search_is_followed_by_a_short_measurement(
    monkeypatch: pytest.MonkeyPatch, searched: float, seconds: float
) -> None:
    monkeypatch.setattr(speed, "SETTINGS", replace(speed.SETTINGS, seconds=1.5))
    trials = tuple(SimpleNamespace(seconds=searched / 2) for _ in range(2))
    assert speed.settings_after(SimpleNamespace(trials=trials)).seconds == seconds  # type: ignore[arg-type]


@pytest.mark.parametrize("evaluated", [True, False])
def test_what_is_surely_slower_is_no_answer_but_is_kept(
    tune: Any, clocked: Any, evaluated: bool, tmp_path: Path
) -> None:
    clocked(0.002)
    options = {"evaluate": lambda model: 1.0} if evaluated else {}
    output = tmp_path / "out.onnx"
    result = tune(measure_speed=True, output=output, **options)
    assert result.met is (True if evaluated else None)
    assert not result.recipe.low_ops and set(result.precisions) == {"fp32"}
    assert result.slower == pytest.approx(0.5, rel=0.05) and result.speed is None
    assert result.verdict.text.startswith("FP32 is returned, low precision is 0.5")
    assert "slower than FP32 here" in (told := " ".join(result.notes))
    kept = result.workspace / "slower_best_model.onnx"
    assert str(kept) in told and "modelsize" in told
    # On disk it is what is said: FP32 as the answer, in both places, and INT8 beside it.
    for place in (result.path, result.workspace / "best_model.onnx", output):
        assert not lpot.load(place).recipe.low_ops
    assert lpot.load(kept).recipe.low_ops
    stored = json.loads((result.workspace / "result.json").read_text())
    assert stored["declined"]["model"] == kept.name and stored["recipe"]["ops"] == []
    assert stored["verdict"]["text"] == result.verdict.text


def test_a_rerun_declines_it_again(tune: Any, clocked: Any) -> None:
    clocked(0.002)
    first, again = (tune(evaluate=lambda model: 1.0, measure_speed=True) for _ in range(2))
    assert all(trial.recalled for trial in again.trials)
    assert again.verdict.text == first.verdict.text and not again.recipe.low_ops


def test_a_small_model_that_was_asked_for_may_be_slow(tune: Any, clocked: Any) -> None:
    clocked(0.002)
    config = {"tuning": {"objective": "modelsize"}}
    result = tune(evaluate=lambda model: 1.0, measure_speed=True, config=config)
    assert result.recipe.low_ops and result.faster is False and result.declined is None


def test_a_busy_machine_proves_no_slowness(tune: Any, clocked: Any) -> None:
    clocked(0.002, taken=0.5)
    result = tune(evaluate=lambda model: 1.0, measure_speed=True)
    assert result.recipe.low_ops and result.busy and result.slower is None


def test_a_measurement_that_fails_costs_nothing_but_itself(
    tune: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*args: Any, **options: Any) -> None:
        raise EvaluationError("the child died")

    monkeypatch.setattr(speed, "benchmark", broken)
    result = tune(evaluate=lambda model: 1.0, measure_speed=True)
    assert result.met is True
    assert (result.speed, result.faster) == (None, None)
    assert any("speed was not measured: the child died" in note for note in result.notes)


def test_without_anything_to_evaluate_it_is_said(tune: Any) -> None:
    result = tune()
    assert result.met is None
    assert result.stopped == "not evaluated"
    assert any(note.startswith("not evaluated") for note in result.notes)
    assert result.model is not None and result.path.is_file()
    assert replace(result).to_json()["met"] is None
