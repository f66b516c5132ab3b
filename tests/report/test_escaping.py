"""Pages about several runs: no text of any of them becomes a tag."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from lpot.core.results.report import Report
from lpot.report.matrix import CellRow, matrix_page
from lpot.report.runs import runs_page
from lpot.report.tensors import tensor_page
from lpot.report.versus import versus, versus_page
from report.test_html import CONTRAST, HOSTILE, PROOF, REPORT, RESULT, _put, _texts, tags

WHOLE: dict[str, Any] = {**REPORT.to_json(), "result": {**RESULT, **PROOF}}
Show = Callable[[dict[str, Any]], str]


def runs(raw: dict[str, Any]) -> str:
    found = Report.from_json(raw)
    return runs_page(raw["name"], [(raw["name"], "key/", found), ("b", "c/", raw["name"])], True)


def against(raw: dict[str, Any]) -> str:
    other = versus(Report.from_json(raw), REPORT)
    return versus_page(other, (raw["name"], "b"))


def matrix(raw: dict[str, Any]) -> str:
    told = raw["name"]
    result = {name: raw["result"].get(name) for name in ("accuracy", "speed", "met", "baseline")}
    done = CellRow(told, told, told, "done", "", result, 1.0)
    return matrix_page([done, CellRow("m", "1%", "this", "failed", error=told)])


def tensors(raw: dict[str, Any]) -> str:
    assert CONTRAST is not None
    return tensor_page(raw["name"], [CONTRAST])


@pytest.mark.parametrize("show", [runs, against, matrix, tensors])
def test_no_text_becomes_a_tag(show: Show) -> None:
    def shape(text: str) -> list[tuple[str, list[str]]]:
        return [(tag, sorted(names)) for tag, names in tags(text)]

    plain = json.loads(json.dumps(WHOLE))
    usual = shape(show(plain))
    tried = 0
    for path in _texts(plain):
        for text in HOSTILE:
            raw = json.loads(json.dumps(plain))
            _put(raw, path, text)
            try:
                found = shape(show(raw))
            except (ValueError, KeyError):  # refused: it is none of the words that belong there
                continue
            tried += 1
            assert [item for item in found if item not in usual] == [], (path, text)
            for word in ("script", "meta", "style", "base"):
                count = [tag for tag, _ in found].count(word)
                assert count == [tag for tag, _ in usual].count(word), (path, text)
    assert tried > 100
