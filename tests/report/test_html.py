"""The page holds what the report says, and nothing from outside gets through unescaped."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from html.parser import HTMLParser
from typing import Any

import numpy as np

from lpot.core.recipe import FP32, OpConfig, OpKey, Recipe, TensorConfig
from lpot.core.results.report import GraphNode, OpRow, Report, TimeRow, TrialRow, op_rows
from lpot.core.results.tensors import Glimpse, contrast
from lpot.core.space import Capability, OpInfo
from lpot.report.html import page
from lpot.report.trials import front, speeds

VALUES = np.linspace(-1, 1, 60).reshape(4, 15)
CONTRAST = contrast(
    OpKey("conv", "Conv"), "output", Glimpse.of(VALUES), Glimpse.of(np.round(VALUES, 1))
)
assert CONTRAST is not None
RESULT = {
    "met": True,
    "goal": "at most 0.01 relative loss",
    "baseline": {"accuracy": 0.9},
    "accuracy": 0.895,
    "speed": 2.5,
    "faster": True,
    "bytes": {"fp32": 1000, "best": 260},
    "evaluations": 3,
    "fp32_ops": ["mix"],
    "notes": ["a note"],
}
REPORT = Report(
    name="digits",
    framework="onnx",
    result=RESULT,
    bar=0.891,
    trials=(
        TrialRow(1, "done", 0.8, False, 0, 1.0, raced_out=True, samples=40),
        TrialRow(2, "done", 0.895, True, 1, 1.2),
        TrialRow(3, "failed", None, False, 2, 0.1, error="RuntimeError: no kernel"),
    ),
    ops=(
        OpRow("conv", "Conv", "int8", "static, minmax", 0.01),
        OpRow("mix", "Gemm", "fp32", "", 0.5, "kept in FP32 by the search"),
    ),
    environment={"seed": 9527},
    config="model:\n  name: digits\n",
)


PROOF = {
    "best": 2,
    "speed_range": (2.1, 3.2),
    "drop": "0.56 %",
    "allowed": "1 %",
    "drop_range": "0.10 to 0.90 %",
    "path": "/runs/digits/best_model.onnx",
    "usage": 'import onnxruntime\nsession = onnxruntime.InferenceSession("best_model.onnx")',
    "measured": {
        "fp32": 0.104,
        "best": 0.0416,
        "memory": [200_000_000, 150_000_000],
        "batch": 50,
        "threads": 2,
        "cpu": "a CPU",
        "date": "2026-01-02 03:04 UTC",
    },
}


class Tags(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[tuple[str, dict[str, str | None]]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.found.append((tag, dict(attrs)))


def tags(text: str) -> list[tuple[str, dict[str, str | None]]]:
    parser = Tags()
    parser.feed(text)
    return parser.found


def test_verdict_first_and_all_of_it_there() -> None:
    text = page(REPORT)
    body = text[text.index("<body>") :]
    assert body.index("Bar met.") < body.index("The search") < body.index("Every op")
    for word in (
        "0.895",
        "2.50 ×",
        "26%",
        "kept in FP32 by the search",
        "no kernel",
        "a note",
        "9527",
    ):
        assert word in body, word


def test_before_and_after_are_told_with_their_circumstances() -> None:
    text = page(replace(REPORT, result={**RESULT, **PROOF}))
    for word in (
        "between 2.10 and 3.20",
        "104 ms",
        "41.6 ms",
        "a batch of 50",
        "2 threads, a CPU, 2026-01-02 03:04 UTC",
        "drop of 0.56 % [0.10 to 0.90 %]",
        "200 MB",
        "150 MB",
        "/runs/digits/best_model.onnx",
        "import onnxruntime",
    ):
        assert word in text, word


def test_one_page_has_one_figure_for_the_speed() -> None:
    """The brief looks of the search and the profiler's clock never give a second one."""
    rows = (
        TrialRow(1, "done", 0.80, False, 0, 1.0, latency=0.010),
        TrialRow(2, "done", 0.895, True, 1, 1.0, latency=0.020),
    )
    result = {**RESULT, **PROOF, "baseline": {"accuracy": 0.9, "latency": 0.031}}
    whole = replace(REPORT, trials=rows, result=result, times=(TimeRow("Conv", 9e-3, 1e-3),))
    assert speeds(whole) == {1: 5.0, 2: 2.5}
    text = page(whole)
    assert "1.55" not in text and "9.00" not in text
    waterfall = text[text.index("Where the time goes") : text.index("The search")]
    assert "104 ms" in waterfall and "41.6 ms" in waterfall


def test_a_search_of_one_trial_is_a_sentence() -> None:
    text = page(replace(REPORT, trials=(TrialRow(1, "done", 0.895, True, 0, 1.25),)))
    assert "One trial was enough: every op that can be in low precision" in text
    assert "by trial" not in text and "Accuracy against speed" not in text


def test_bars_say_their_scale_and_what_they_are() -> None:
    assert "The scale is linear, from 0." in page(REPORT)
    steep = (OpRow("a", "Conv", "int8", "", 1.0), OpRow("b", "Conv", "int8", "", 1e-6))
    assert "The scale is logarithmic." in page(replace(REPORT, ops=steep))
    summed = (OpRow("a", "Conv", "int8", sqnr=20.0), OpRow("b", "Conv", "int8", sqnr=30.0))
    assert "including errors of the ops before it" in page(replace(REPORT, ops=summed))


def test_nothing_is_fetched() -> None:
    for tag, attributes in tags(page(REPORT)):
        assert tag not in ("img", "iframe", "object")
        assert "src" not in attributes
        assert attributes.get("href", "data:,") == "data:,"


def test_hostile_names_are_escaped() -> None:
    evil = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'
    hostile = replace(
        REPORT,
        name=evil,
        ops=(OpRow(evil, evil, "fp32", evil, 1.0, evil),),
        trials=(TrialRow(1, "failed", None, False, 0, 0.0, error=evil),),
        result={**RESULT, "notes": [evil], "goal": evil},
        config=evil,
        environment={evil: evil},
        graphs={"fp32": (GraphNode(evil, evil),), "best": (GraphNode(evil, evil, (evil,)),)},
        tensors=(replace(CONTRAST, op=OpKey(evil, evil)),),
    )
    found = tags(page(hostile))
    assert [tag for tag, _ in found].count("script") == 2, "the data of the ops, and the code"
    assert not any(tag == "img" or "onerror" in attributes for tag, attributes in found)


def test_ten_thousand_ops_stay_below_five_megabytes() -> None:
    many = tuple(
        OpRow(f"{'block/' * 40}layer.{i}/Conv", "Conv", "int8", "static", i / 1e4, "", 30.0 + i)
        for i in range(10_000)
    )
    assert len(page(replace(REPORT, ops=many)).encode()) < 5_000_000


def test_more_ops_than_a_page_holds_are_counted() -> None:
    many = tuple(OpRow(f"op{i}", "Add", "fp32") for i in range(20_000))
    text = page(replace(REPORT, ops=many))
    assert "5000 more ops are in report.json" in text
    assert len(text.encode()) < 5_000_000


def test_an_empty_report_is_a_page_too() -> None:
    empty = {
        **RESULT,
        "met": None,
        "baseline": None,
        "accuracy": None,
        "speed": None,
        "bytes": None,
    }
    text = page(replace(REPORT, result=empty, trials=(), ops=(), bar=None))
    assert "Not evaluated" in text
    assert "No trials were run" in text


def test_json_round_trip() -> None:
    whole = replace(
        REPORT,
        tensors=(CONTRAST,),
        graphs={"fp32": (GraphNode("a", "input"), GraphNode("b", "Conv", ("a",)))},
    )
    assert Report.from_json(json.loads(json.dumps(whole.to_json()))) == whole


def test_reports_of_other_versions_are_read() -> None:
    raw = json.loads(json.dumps(REPORT.to_json()))
    old = {key: raw[key] for key in ("name", "framework", "result", "bar", "trials", "ops")}
    del old["result"]["notes"]
    old["ops"] = [{key: op[key] for key in ("name", "kind", "precision")} for op in old["ops"]]
    assert "Bar met" in page(Report.from_json({**old, "format": 1}))
    raw["ops"][0]["colour"] = "blue"
    newer = Report.from_json({**raw, "format": 99, "smell": "roses"})
    assert newer.ops == REPORT.ops


def test_json_has_no_infinity() -> None:
    wild = replace(
        REPORT, ops=(OpRow("a", "Add", "int8", sensitivity=float("inf"), sqnr=float("nan")),)
    )
    text = json.dumps(wild.to_json(), allow_nan=False)
    assert json.loads(text)["ops"][0]["sensitivity"] is None
    assert "a" in page(wild)


def test_what_to_do_next_follows_from_the_verdict() -> None:
    missed = replace(REPORT, result={**RESULT, "met": False, "faster": None, "speed": None})
    assert "the most sensitive ops (mix, conv)" in page(missed)
    slower = replace(REPORT, result={**RESULT, "faster": False})
    assert "Stay with FP32 on this machine" in page(slower)
    blind = replace(REPORT, result={**RESULT, "met": None, "accuracy": None})
    assert "Provide an eval function or a metric" in page(blind)
    cut_off = replace(REPORT, state="stopped")
    assert "to resume from the finished trials" in page(cut_off)


def test_the_search_draws_bar_latency_and_front() -> None:
    rows = (
        TrialRow(1, "done", 0.80, False, 0, 1.0, latency=0.010),
        TrialRow(2, "done", 0.89, True, 1, 1.0, latency=0.012),
        TrialRow(3, "done", 0.88, False, 1, 1.0, latency=0.013),
        TrialRow(4, "done", 0.90, True, 2, 1.0, latency=0.020),
    )
    assert front(rows, higher_is_better=True) == [1, 2, 4]
    assert front(rows, higher_is_better=False) == [1]
    text = page(replace(REPORT, trials=rows))
    assert 'aria-label="accuracy by trial"' in text
    assert "by trial" not in text.replace('aria-label="accuracy by trial"', ""), (
        "FP32 was not timed"
    )
    timed = {**RESULT, "baseline": {"accuracy": 0.9, "latency": 0.02}}
    text = page(replace(REPORT, trials=rows, result=timed))
    assert "speed (× FP32) by trial" in text
    assert 'aria-label="accuracy against speed"' in text
    assert text.count("bar 0.891") == 2


def test_all_trials_failed() -> None:
    rows = tuple(TrialRow(i, "failed", None, False, 0, 0.1, error="no") for i in range(1, 4))
    result = {**RESULT, "met": False, "accuracy": None, "baseline": None}
    text = page(replace(REPORT, trials=rows, result=result, bar=None))
    assert "No low-precision model was found" in text


def test_numbers_that_are_all_the_same_are_drawn() -> None:
    rows = tuple(TrialRow(i, "done", 0.0, True, 0, 0.0, latency=0.0) for i in range(1, 700))
    result = {**RESULT, "baseline": {"accuracy": 0.0, "latency": 0.0}, "accuracy": 0.0}
    text = page(replace(REPORT, trials=rows, result=result, bar=0.0))
    assert "199 earlier trials are in report.json" in text
    assert "nan" not in text.lower().replace("dominan", "")


def test_rows_say_why_an_op_is_fp32_or_slow() -> None:
    int8 = OpConfig(TensorConfig("uint8"), TensorConfig("int8", granularity="per_channel"))
    one, other = OpKey("conv", "Conv"), OpKey("mix", "Gemm")
    capability = Capability({key: OpInfo(key, (int8, FP32)) for key in (one, other)})
    rows = op_rows(
        capability,
        Recipe({one: int8, other: FP32}),
        {one: "int8", other: "fp32"},
        {other: float("inf")},
        seconds={one: (1e-6, 3e-6)},
        remarks={one: "too small"},
    )
    assert [row.reason for row in rows] == ["too small", "kept in FP32 by the search"]
    assert (rows[0].fp32_seconds, rows[0].seconds, rows[0].how) == (
        1e-6,
        3e-6,
        "static, per channel",
    )
    assert rows[1].sensitivity == 1e9
    text = page(replace(REPORT, ops=rows, profile="ops take less"))
    assert "% of time" in text and "Slower in low precision than in FP32: conv." in text


HOSTILE = (
    "<script>alert(1)</script>",
    "</script><script>alert(1)</script>",
    '"><meta http-equiv="refresh" content="0;url=http://a">',
    "' onload='alert(1)' x='",
    "</style><base href=//a>",
    "{{ 7 * 7 }}{% raw %}",
)


def test_no_text_of_a_foreign_report_becomes_a_tag() -> None:
    """Each text in report.json, one after the other, turned into something hostile."""
    nodes = (GraphNode("a", "Conv"), GraphNode("b", "Relu", ("a",)))
    row = TrialRow(1, "failed", None, False, 1, 0.1, error="it failed")
    whole = replace(
        REPORT,
        trials=(*REPORT.trials, row),
        tensors=(CONTRAST,),
        graphs={"fp32": nodes, "best": nodes},
        profile="half of the time",
        config="a: 1",
        environment={"CPU": "x"},
        result={**RESULT, **PROOF},
        times=(TimeRow("Conv", 1e-3, 4e-4),),
    ).to_json()
    usual = [(tag, sorted(names)) for tag, names in tags(page(Report.from_json(whole)))]
    places = list(_texts(whole))
    assert len(places) > 30
    for path in places:
        for text in HOSTILE:
            raw = json.loads(json.dumps(whole))
            _put(raw, path, text)
            try:
                shown = page(Report.from_json(raw))
            except (ValueError, KeyError):
                continue
            found = [(tag, sorted(names)) for tag, names in tags(shown)]
            extra = [item for item in found if item not in usual]
            assert extra == [], (path, text, extra)
            assert [t for t, _ in found].count("script") == [t for t, _ in usual].count("script")
            assert [t for t, _ in found].count("meta") == [t for t, _ in usual].count("meta")


def _texts(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    if isinstance(value, str):
        yield path
    pairs = (
        value.items()
        if isinstance(value, dict)
        else enumerate(value)
        if isinstance(value, list)
        else ()
    )
    for key, item in pairs:
        yield from _texts(item, (*path, key))


def _put(value: Any, path: tuple[Any, ...], text: str) -> None:
    for key in path[:-1]:
        value = value[key]
    value[path[-1]] = text
