"""The end: what was reached, said first; the figures; the tables."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from rich.console import Console, RenderableType

from lpot.core.results.benchmark import BenchmarkResult, Measured
from lpot.report.table import benchmark_table, checks, contrast
from lpot.report.terminal import verdict


def text(what: RenderableType, width: int = 200) -> str:
    page = io.StringIO()
    Console(file=page, width=width).print(what)
    return "\n".join(line.rstrip() for line in page.getvalue().splitlines())


def test_the_bar_comes_first(result: Any) -> None:
    lines = text(verdict(result())).splitlines()
    assert lines[0] == (
        "bar met: accuracy 0.895 against 0.9 in FP32, a drop of 0.56 %, where 1 % may be lost"
    )
    body = "\n".join(lines[1:])
    assert "2.00 [2.00 to 2.00] times as fast as FP32 (10.1 → 5.03 ms a batch of 4)" in body
    assert "4 → 1 kB (4.0 times smaller)" in body
    assert "3 (2 trials and FP32); stopped: the bar is met" in body
    assert "int8 1, fp32 11" in body
    assert "conv9 and 1 more" in body and "conv10" not in body  # the first ten
    assert "a note" in body and "another" in body
    assert "best_model.onnx" in body


@pytest.mark.parametrize(
    ("more", "said"),
    [
        ({"accuracy": 0.5}, "bar missed, best effort: accuracy 0.5"),
        ({"accuracy": 0.91}, "a gain of 1.11 %"),
        ({"accuracy": None}, "not evaluated: no evaluation function"),
        ({"interrupted": True}, "interrupted: bar met"),
        ({"best": None, "met": False}, "no low-precision model was found"),
        ({"times": None}, "not measured"),
        ({"times": 0.5}, "slower: 0.50 [0.50 to 0.50] times the speed of FP32"),
        ({"times": 0.5}, "stay with FP32, this is 0.50 times as fast: bar met: accuracy 0.895"),
        ({"times": 1.0}, "no significant difference: 1.00"),
        ({"path": None}, "not saved, see the notes"),
        ({"float_ops": ()}, "11 ops that would gain only between low-precision neighbours"),
        ({"float_ops": (), "precisions": {"int8": 12}}, "none that could run in low precision"),
    ],
)
def test_every_ending_is_said(result: Any, more: dict[str, Any], said: str) -> None:
    assert said in text(verdict(result(**more)))


def test_a_slow_model_is_an_answer_where_its_size_was_asked_for(result: Any) -> None:
    assert text(verdict(result(times=0.5, for_size=True))).startswith("bar met: accuracy")
    assert result(times=0.5).to_json()["slower"] == pytest.approx(0.5, abs=0.01)
    assert result(times=2.0).to_json()["slower"] is None


def test_a_busy_machine_is_said_first_and_is_no_proof_of_slowness(result: Any) -> None:
    def beside_others(times: float) -> Any:
        made = result(times=times)
        return replace(made, timed=replace(made.timed, taken=0.5))

    told = text(verdict(beside_others(2.0)))
    assert "speed by CPU time alone, for the machine was busy" in told.splitlines()[0]
    assert "as fast as FP32 by CPU time, on a busy machine" in told and "ms a batch" not in told
    assert beside_others(0.5).slower is None and beside_others(0.5).to_json()["busy"] is True


def test_the_history_is_named_where_there_is_one(result: Any) -> None:
    made = result()
    assert "history.jsonl" not in text(verdict(made))
    made.history.write_text("{}")
    assert str(made.history) in text(verdict(made))


def test_markup_in_names_is_left_alone(result: Any) -> None:
    made = result(float_ops=("[bold]layer[/bold]",), notes=("see [1]",))
    assert "[bold]layer[/bold]" in text(verdict(made)) and "see [1]" in text(verdict(made))


def test_contrast_shows_plain_int8_beside_the_best(result: Any) -> None:
    lines = text(contrast(result())).splitlines()
    assert lines[0].split() == ["FP32", "plain", "INT8", "tuned"]
    assert "0.5 (bar missed)" in lines[1] and "0.895 (bar met)" in lines[1]
    assert "10.1 ms" in lines[2] and "5.03 ms" in lines[2]
    assert "2.00 times [2.00 to 2.00]" in lines[3]
    assert "fp32 12" in lines[5] and "int8 12" in lines[5] and "int8 1, fp32 11" in lines[5]


def test_benchmark_side_by_side(measured: Callable[[float], BenchmarkResult]) -> None:
    told = text(benchmark_table(measured(2.0)))
    assert "FP32" in told.splitlines()[0] and "best" in told.splitlines()[0]
    assert "2.00 [2.00, 2.00]" in told and "baseline" in told
    assert "note: the machine was busy" in told


def test_benchmark_of_many_lists_them(measured: Callable[[float], BenchmarkResult]) -> None:
    found = measured(2.0)
    many = tuple(Measured(f"model{at}", error="broken") for at in range(5))
    listed = BenchmarkResult(
        (*found.models, *many), found.inputs, 4, found.settings, found.cpu, found.notes
    )
    told = text(benchmark_table(listed))
    assert told.splitlines()[0].startswith("model") and "failed: broken" in told


def test_checks() -> None:
    assert text(checks([("data", "ok", "fits"), ("", "fail", "[x]")])).split() == [
        *("data", "ok", "fits", "fail", "[x]")
    ]
