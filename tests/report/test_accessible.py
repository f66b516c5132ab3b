"""No violations that axe-core knows of: contrast, names, landmarks, focus. `npm pack axe-core`."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from browser import Browser, chromium
from lpot.core.results.report import GraphNode, OpRow, Report, TimeRow, TrialRow
from lpot.report.html import page
from lpot.report.runs import runs_page
from lpot.report.versus import versus, versus_page

REPORT = Report(
    name="digits",
    framework="onnx",
    result={
        "met": True,
        "baseline": {"accuracy": 0.9, "latency": 0.02},
        "accuracy": 0.895,
        "drop": "0.56 %",
        "allowed": "1 %",
        "speed": 2.5,
        "speed_range": (2.1, 2.9),
        "faster": True,
        "best": 2,
        "bytes": {"fp32": 4000, "best": 1000},
        "precisions": {"int8": 2, "fp32": 2},
        "fp32_ops": ["mix"],
        "notes": ["a note"],
        "path": "best_model.onnx",
        "usage": "import onnxruntime",
        "measured": {
            "fp32": 0.02,
            "best": 0.008,
            "memory": [2000, 1000],
            "batch": 50,
            "threads": 2,
            "cpu": "a CPU",
            "date": "2026-01-02",
        },
    },
    bar=0.891,
    trials=(
        TrialRow(1, "done", 0.8, False, 0, 1.0, latency=0.009, raced_out=True, samples=40),
        TrialRow(2, "done", 0.895, True, 1, 1.2, latency=0.01),
        TrialRow(3, "failed", None, False, 2, 0.1, error="RuntimeError: no kernel"),
    ),
    ops=(
        OpRow("conv9", "Conv", "int8", "static", 0.2, sqnr=9.5),
        OpRow("mix", "Gemm", "fp32", "", 0.5, "went back", sqnr=100.0),
    ),
    times=(TimeRow("Conv", 1e-3, 4e-4),),
    graphs={
        "fp32": (GraphNode("x", "input"), GraphNode("conv9", "Conv", ("x",))),
        "best": (GraphNode("x", "input"), GraphNode("conv9", "Conv", ("x",))),
    },
    environment={"seed": 9527},
    config="model: {name: digits}",
)
PAGES = {
    "report": page(REPORT),
    "missed": page(replace(REPORT, result={**REPORT.result, "met": False, "faster": None})),
    "live": page(replace(REPORT, state="running"), live=True, now="trial 3", back="digits"),
    "runs": runs_page(
        "runs", [("one", "a/", REPORT), ("two", "b/", REPORT), ("bad", "c/", "torn")]
    ),
    "versus": versus_page(versus(REPORT, replace(REPORT, ops=REPORT.ops[:1])), ("one", "two")),
}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


@pytest.fixture(scope="module")
def axe() -> str:
    place = os.environ.get("LPOT_AXE")
    if not place:
        pytest.skip("LPOT_AXE is not set: the path of axe.min.js, from `npm pack axe-core`")
    return Path(place).read_text("utf-8")


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1200, 375])
@pytest.mark.parametrize("name", PAGES)
def test_no_violations(
    browser: Browser, axe: str, name: str, width: int, scheme: str, tmp_path: Path
) -> None:
    file = tmp_path / "page.html"
    file.write_text(PAGES[name], "utf-8")
    browser.look(width, 800, scheme, phone=width < 500)
    browser.open(file.as_uri())
    browser.ask(axe)
    run = "axe.run(document, {resultTypes: ['violations']}).then(r => window.found = r.violations)"
    browser.ask(f"{run}; 0")
    browser.wait("window.found !== undefined")
    found = json.loads(browser.ask("JSON.stringify(window.found)"))
    told = [(v["id"], [node["html"][:120] for node in v["nodes"]][:3]) for v in found]
    assert told == []


@pytest.mark.parametrize("name", PAGES)
def test_what_scrolls_can_be_focused(browser: Browser, name: str, tmp_path: Path) -> None:
    file = tmp_path / "page.html"
    file.write_text(PAGES[name], "utf-8")
    browser.look(375, 800, phone=True)
    browser.open(file.as_uri())
    assert browser.ask("document.documentElement.scrollWidth") <= 375
    stuck = (
        "[...document.querySelectorAll('body *')].filter(e => e.scrollWidth > e.clientWidth + 1"
        " && ['auto', 'scroll'].includes(getComputedStyle(e).overflowX) && e.tabIndex < 0)"
        ".map(e => e.outerHTML.slice(0, 100))"
    )
    assert browser.ask(stuck) == []
