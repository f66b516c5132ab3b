"""The page in a real browser: no complaints, no requests, sorting, filtering, ten thousand ops."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from browser import Browser, chromium
from lpot.core.results.report import GraphNode, OpRow, Report, TrialRow
from lpot.report.html import page
from lpot.report.versus import versus, versus_page

EVIL = '</script><script>document.title="owned"</script><img src=x onerror=document.title="owned">'
REPORT = Report(
    name="digits",
    framework="onnx",
    result={
        "met": True,
        "baseline": {"accuracy": 0.9, "latency": 0.02},
        "accuracy": 0.895,
        "speed": 2.5,
        "faster": True,
        "evaluations": 3,
    },
    bar=0.891,
    trials=(
        TrialRow(1, "done", 0.8, False, 0, 1.0, raced_out=True, samples=40),
        TrialRow(2, "done", 0.895, True, 1, 1.2, latency=0.01),
        TrialRow(10, "failed", None, False, 2, 0.1, error="RuntimeError: no kernel"),
    ),
    ops=(
        OpRow("conv10", "Conv", "int8", "static", 0.01, sqnr=30.5),
        OpRow("conv9", "Conv", "int8", "static", 0.2, sqnr=9.5),
        OpRow("mix", "Gemm", "fp32", "", 0.5, "went back", sqnr=100.0),
        OpRow("add", "Add", "fp32"),
    ),
    graphs={
        "fp32": (GraphNode("x", "input"), GraphNode("conv9", "Conv", ("x",))),
        "best": (GraphNode("x", "input"), GraphNode("conv9", "Conv", ("x",))),
    },
    environment={"seed": 9527},
)
FIRST = "[...document.querySelectorAll('#ops tbody tr')].map(row => row.cells[0].textContent)"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as found:
        yield found


def show(browser: Browser, text: str, folder: Path) -> None:
    file = folder / "report.html"
    file.write_text(text, "utf-8")
    browser.complaints.clear()
    browser.requests.clear()
    browser.open(file.as_uri())


def press(browser: Browser, title: str) -> None:
    browser.ask(
        "[...document.querySelectorAll('#ops th button')]"
        f".find(button => button.textContent === '{title}').click()"
    )


def test_it_opens_in_peace(browser: Browser, tmp_path: Path) -> None:
    show(browser, page(REPORT), tmp_path)
    for width, scheme in ((1200, "light"), (1200, "dark"), (375, "light")):
        browser.look(width, 800, scheme, phone=width < 500)
        wide = browser.ask("document.documentElement.scrollWidth")
        assert wide <= width, f"the page scrolls sideways at {width}"
    assert browser.complaints == []
    assert [url for url in browser.requests if not url.startswith(("file:", "data:"))] == []
    assert browser.ask("getComputedStyle(document.body).backgroundColor") == "rgb(255, 255, 255)"
    browser.look(1200, 800, "dark")
    assert browser.ask("getComputedStyle(document.body).backgroundColor") != "rgb(255, 255, 255)"


def test_ops_are_sorted_by_names_and_numbers(browser: Browser, tmp_path: Path) -> None:
    show(browser, page(REPORT), tmp_path)
    press(browser, "op")
    assert browser.ask(FIRST) == ["add", "conv9", "conv10", "mix"]
    press(browser, "op")
    assert browser.ask(FIRST) == ["mix", "conv10", "conv9", "add"]
    press(browser, "SQNR dB")
    assert browser.ask(FIRST) == ["conv9", "conv10", "mix", "add"], "what is not known comes last"
    press(browser, "SQNR dB")
    assert browser.ask(FIRST) == ["mix", "conv10", "conv9", "add"]
    assert browser.ask("document.querySelector('#ops th[aria-sort]').textContent") == "SQNR dB"


def test_ops_are_filtered(browser: Browser, tmp_path: Path) -> None:
    show(browser, page(REPORT), tmp_path)
    browser.ask(
        "(() => {const box = document.getElementById('filter'); box.value = 'CONV';"
        "box.dispatchEvent(new Event('input'));})()"
    )
    assert browser.ask(FIRST) == ["conv10", "conv9"]
    browser.ask(
        "(() => {const box = document.querySelector('select[data-column=precision]');"
        "box.value = 'fp32'; box.dispatchEvent(new Event('change'));})()"
    )
    assert browser.ask(FIRST) == []
    assert browser.ask("document.getElementById('shown').textContent") == "0 of 0"


def test_trials_are_sorted_as_numbers(browser: Browser, tmp_path: Path) -> None:
    show(browser, page(REPORT), tmp_path)
    script = (
        "(() => {const table = document.querySelector('table.sortable');"
        "const button = table.querySelector('th button'); button.click(); button.click();"
        "return [...table.tBodies[0].rows].map(row => row.cells[0].textContent);})()"
    )
    assert browser.ask(script) == ["10", "2", "1"]


def test_ten_thousand_ops_stay_nimble(browser: Browser, tmp_path: Path) -> None:
    many = tuple(
        OpRow(
            f"layer.{i}/Conv", ("Conv", "Add")[i % 2], "int8", "static", (i * 7919 % 10_000) / 1e4
        )
        for i in range(10_000)
    )
    show(browser, page(replace(REPORT, ops=many)), tmp_path)
    assert browser.ask("document.querySelectorAll('#ops tbody tr').length") == 200
    press(browser, "sensitivity")
    press(browser, "sensitivity")
    first = browser.ask(FIRST)
    assert first[0] == f"layer.{next(i for i in range(10_000) if i * 7919 % 10_000 == 9999)}/Conv"
    # No more rows than are looked at are ever in the page, however many there are.
    browser.ask("document.getElementById('more').click()")
    assert browser.ask("document.querySelectorAll('#ops tbody tr').length") == 1200
    assert browser.ask("document.getElementById('shown').textContent") == "1200 of 10000"
    assert browser.complaints == []


def test_hostile_names_stay_text(browser: Browser, tmp_path: Path) -> None:
    ops = tuple(OpRow(f"{EVIL}{i}", EVIL, "int8", EVIL, i, EVIL) for i in range(300))
    hostile = replace(
        REPORT,
        name=EVIL,
        ops=ops,
        result={**REPORT.result, "notes": [EVIL]},
        environment={EVIL: EVIL},
        config=EVIL,
        trials=(TrialRow(1, "failed", None, False, 0, 0.0, error=EVIL),),
        graphs={"fp32": (GraphNode(EVIL, EVIL),), "best": (GraphNode(EVIL, EVIL),)},
    )
    show(browser, page(hostile), tmp_path)
    press(browser, "op")
    assert browser.ask("document.title").startswith("lpot: </script>")
    assert browser.ask("document.querySelectorAll('img, script').length") == 2
    assert browser.complaints == []
    assert EVIL in browser.ask(FIRST)[0]


def test_two_runs_side_by_side(browser: Browser, tmp_path: Path) -> None:
    other = replace(REPORT, ops=(replace(REPORT.ops[0], precision="fp32", how=""), *REPORT.ops[1:]))
    show(browser, versus_page(versus(REPORT, other), ("one", EVIL)), tmp_path)
    assert browser.complaints == []
    table = "document.querySelector('table.plain tbody').textContent"
    assert "conv10Convint8, staticfp32" in browser.ask(table)
    browser.look(360, 700, phone=True)
    assert browser.ask("document.documentElement.scrollWidth") <= 360


def test_it_prints_light_and_whole(browser: Browser, tmp_path: Path) -> None:
    show(browser, page(REPORT), tmp_path)
    browser.look(1200, 800, "dark")
    browser.send("Emulation.setEmulatedMedia", media="print")
    ground = browser.ask("getComputedStyle(document.body).backgroundColor")
    browser.send("Emulation.setEmulatedMedia", media="")
    assert ground == "rgb(255, 255, 255)"
