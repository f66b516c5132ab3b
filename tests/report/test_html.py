"""The page holds what the report says, and nothing from outside gets through unescaped."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path

import pytest

from lpot.core.report import OpRow, Report, TrialRow
from lpot.report.html import page

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
        OpRow("mix", "Gemm", "fp32", "", 0.5, "went back to FP32 to hold the bar"),
    ),
    environment={"seed": 9527},
    config="model:\n  name: digits\n",
)


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
    assert body.index("The bar is met.") < body.index("The search") < body.index("Every op")
    for word in ("0.895", "2.50", "26%", "went back to FP32", "no kernel", "a note", "9527"):
        assert word in body, word


def test_nothing_is_fetched() -> None:
    for tag, attributes in tags(page(REPORT)):
        assert tag not in ("link", "img", "iframe", "object")
        assert "src" not in attributes and "href" not in attributes


def test_hostile_names_are_escaped() -> None:
    evil = '<script>alert(1)</script>"><img src=x onerror=alert(1)>'
    hostile = replace(
        REPORT,
        name=evil,
        ops=(OpRow(evil, evil, "fp32", evil, 1.0, evil),),
        trials=(TrialRow(1, "failed", None, False, 0, 0.0, error=evil),),
        result={**RESULT, "notes": [evil], "goal": evil},
        config=evil,
    )
    found = tags(page(hostile))
    assert [tag for tag, _ in found].count("script") == 1
    assert not any(tag == "img" or "onerror" in attributes for tag, attributes in found)


def test_ten_thousand_ops_stay_below_five_megabytes() -> None:
    many = tuple(
        OpRow(f"layer.{i}/Conv", "Conv", "int8", "static, minmax", i / 1e4) for i in range(10_000)
    )
    assert len(page(replace(REPORT, ops=many)).encode()) < 5_000_000


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
    assert "No trial was made" in text


def test_json_round_trip() -> None:
    assert Report.from_json(json.loads(json.dumps(REPORT.to_json()))) == REPORT


def test_it_opens_in_a_browser_and_sorts(tmp_path: Path) -> None:
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if browser is None:
        pytest.skip("no chromium here")
    probe = (
        "<script>document.querySelectorAll('#ops th button')[0].click();"
        "document.querySelectorAll('#ops th button')[0].click();"
        "document.title=document.querySelector('#ops tbody td').textContent</script></body>"
    )
    file = tmp_path / "report.html"
    file.write_text(page(REPORT).replace("</body>", probe), "utf-8")
    command = [browser, "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run"]
    command += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    command += [f"--user-data-dir={tmp_path / 'profile'}", "--dump-dom", file.as_uri()]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120)
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title is not None
    assert title[1] == "mix", "sorted by name, downwards"
