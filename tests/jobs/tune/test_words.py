"""`lpot.tune` speaks in its own words, and says the line of the user's code that failed."""

from __future__ import annotations

import inspect
import io
import re
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lpot
from lpot.core.blame import raised
from lpot.core.errors import ConfigError, EvaluationError, LpotError, UnsupportedModel
from lpot.demo import demo_data, demo_model_path

pytest.importorskip("onnxruntime")
OTHERS = ("q_dataloader", "eval_dataloader", "quantizer.", "eval_func", "q_func", "--new-run")


def broken(model: Any) -> float:
    return [0.9][3]  # the line that is to be named


@pytest.fixture
def tuned(tmp_path: Path) -> Any:
    images = demo_data().calib_images[:50]

    def run(**given: Any) -> Any:
        given = {"calib": [images], "workspace": tmp_path, "progress": False, **given}
        return lpot.tune(demo_model_path(), measure_speed=False, max_trials=1, **given)

    return run


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"calib": None}, 'give a loader (calib).*approach="dynamic" needs none'),
        ({"metric": {"topk": 1}}, "metric: .* give eval_loader"),
        ({"eval_loader": [1]}, "eval_loader: .* give metric"),
        ({"evaluate": 0.9}, "evaluate must be a function of one model, got a float"),
        ({"evaluate": lambda model: None}, "evaluate <lambda> returned None"),
        ({"metric": {"topkk": 1}}, "did you mean 'topk'"),
        ({"framework": "onnxruntime"}, "framework: .*did you mean 'onnx'"),
        ({"approach": "statik"}, "approach: .*did you mean 'static'"),
        ({"strategy": "bayesan"}, "strategy: .*did you mean 'bayesian'"),
        ({"goal": "1 procent"}, "goal: given '1 procent'"),
        ({"timeout": "soon"}, "timeout: given 'soon'"),
        ({"keep_fp32": "conv99"}, "'conv99' matches no op"),
        ({"keep_fp32": [1]}, "keep_fp32: given 1"),
        ({"progress": "loud"}, "progress: given 'loud'"),
    ],
)
def test_mistakes_are_told_by_the_arguments_name(
    tuned: Any, given: dict[str, Any], said: str
) -> None:
    with pytest.raises(LpotError, match=said.replace("(calib)", r"\(calib\)")) as error:
        tuned(**given)
    assert not any(word in str(error.value) for word in OTHERS), error.value


def test_an_evaluation_that_fails_shows_its_line(tuned: Any) -> None:
    line = broken.__code__.co_firstlineno + 1
    with pytest.raises(EvaluationError, match=rf"test_words\.py:{line}: return \[0\.9\]\[3\]"):
        tuned(evaluate=broken)


def test_a_cell_of_a_notebook_has_a_line_too() -> None:
    import linecache

    name = "/tmp/ipykernel_1/123.py"
    linecache.cache[name] = (9, None, ["1 / 0\n"], name)
    try:
        exec(compile("1 / 0", name, "exec"))
    except ZeroDivisionError as error:
        assert raised(error).endswith("(line 1 of a cell: 1 / 0)")
    finally:
        del linecache.cache[name]


def test_weights_alone_are_no_model() -> None:
    with pytest.raises(UnsupportedModel, match=r"Give the nn\.Module"):
        lpot.tune({"conv1.weight": np.zeros(3)}, progress=False)


def test_several_mistakes_of_a_config_are_told_at_once() -> None:
    config = {"model": {"framework": "onnxruntime"}, "tuning": {"exit_polcy": {}}}
    with pytest.raises(ConfigError, match=r"did you mean 'onnx'(.|\n)*did you mean 'exit_policy'"):
        lpot.tune("net.onnx", config=config, progress=False)


def test_it_talks_unless_told_not_to(tuned: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def spoken(**given: Any) -> str:
        page = io.StringIO()
        monkeypatch.setattr(sys, "stderr", page)
        tuned(evaluate=lambda model: 0.5, new_run=True, **given)
        return page.getvalue()

    lines = spoken(progress="auto").splitlines()
    assert "loading the model" in lines
    assert any(line.startswith("trial 1: accuracy 0.5") for line in lines)
    assert spoken(progress=False) == ""


def test_one_name_is_not_read_letter_by_letter(tuned: Any) -> None:
    result = tuned(keep_fp32="conv1")
    assert {op.name: op.precision for op in result.ops}["conv1"] == "fp32"
    assert any(op.reason for op in result.ops if op.precision == "fp32")


@pytest.mark.parametrize("function", [lpot.tune, lpot.load, lpot.compare_tensors])
def test_every_argument_is_explained(function: Any) -> None:
    text = inspect.getdoc(function) or ""
    for name in inspect.signature(function).parameters:
        assert re.search(rf"^ +{name}: ", text, re.MULTILINE), name
