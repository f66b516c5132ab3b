"""The table of ops: its data once, as JSON; the first rows as HTML, for paper and no script."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from markupsafe import Markup

from lpot.core.report import OpRow

SHOWN = 200  # rows written as HTML
MOST = 15_000  # rows in the page; report.json has all of them
LONGEST_NAME, LONGEST_REASON = 160, 240  # characters


def op_table(ops: Sequence[OpRow]) -> dict[str, Any] | None:
    """Sortable and filterable by page.js, which draws as many rows as are looked at."""
    if not ops:
        return None
    columns = _columns(ops)
    kept = list(ops) if len(ops) <= SHOWN else sorted(ops, key=_badness)[:MOST]
    rows = [[cell(op) for _, _, cell in columns] for op in kept]
    kinds = [kind for _, kind, _ in columns]
    data = {"columns": [[name, kind] for name, kind, _ in columns], **_packed(columns, rows)}
    return {
        "columns": [(name, kind) for name, kind, _ in columns],
        "shown": [
            [(_shown(value), kind) for value, kind in zip(row, kinds, strict=True)]
            for row in rows[:SHOWN]
        ],
        "count": len(rows),
        "left": len(ops) - len(kept),
        "choices": [
            (name, sorted({_cut(word, LONGEST_NAME) for word in words}))
            for name, words in (
                ("kind", [op.kind for op in kept]),
                ("precision", [op.precision for op in kept]),
            )
        ],
        "data": Markup(as_script(data)),
    }


def as_script(value: Any) -> str:
    """JSON that can't end the script element it stands in."""
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    for sign in "<>&\u2028\u2029":
        text = text.replace(sign, f"\\u{ord(sign):04x}")
    return text


def _columns(ops: Sequence[OpRow]) -> list[tuple[str, str, Any]]:
    """(title, kind of value, how to get it); columns that nobody filled are left out."""
    now = sum(op.seconds or 0.0 for op in ops)
    before = sum(op.fp32_seconds or 0.0 for op in ops)
    every: list[tuple[str, str, Any]] = [
        ("op", "name", lambda op: _cut(op.name, LONGEST_NAME)),
        ("kind", "word", lambda op: _cut(op.kind, LONGEST_NAME)),
        ("precision", "word", lambda op: _cut(op.precision, LONGEST_NAME)),
        ("algorithm", "word", lambda op: _cut(op.how, LONGEST_NAME)),
        ("SQNR dB", "number", lambda op: _figures(op.sqnr, 3)),
        ("weights dB", "number", lambda op: _figures(op.weight_sqnr, 3)),
        ("sensitivity", "number", lambda op: _figures(op.sensitivity, 2)),
        ("% of time", "number", lambda op: _share(op.seconds, now)),
        ("% of FP32's", "number", lambda op: _share(op.fp32_seconds, before)),
        ("why FP32, or slow", "word", lambda op: _cut(op.reason, LONGEST_REASON)),
    ]
    always = ("op", "kind", "precision")
    return [c for c in every if c[0] in always or any(c[2](op) not in ("", None) for op in ops)]


def _packed(columns: Sequence[tuple[str, str, Any]], rows: Sequence[list[Any]]) -> dict[str, Any]:
    """Words that repeat are written once."""
    words: dict[str, int] = {}
    packed = [
        [
            words.setdefault(value, len(words)) if kind == "word" else value
            for (_, kind, _), value in zip(columns, row, strict=True)
        ]
        for row in rows
    ]
    return {"words": list(words), "rows": packed}


def _badness(op: OpRow) -> tuple[float, float]:
    return -(op.sensitivity or 0.0), 1e9 if op.sqnr is None else op.sqnr


def _figures(value: float | None, digits: int) -> float | None:
    return None if value is None else float(f"{value:.{digits}g}")


def _share(seconds: float | None, whole: float) -> float | None:
    """Shares, not times: the profiler's clock is another than the one behind the speed."""
    return None if seconds is None or not whole else _figures(100 * seconds / whole, 2)


def _cut(text: str, most: int) -> str:
    """Long names are told apart by their ends."""
    clean = text.encode("utf-8", "replace").decode()  # half a character can't be written
    half = most // 2
    return clean if len(clean) <= most else f"{clean[:half]}…{clean[-half:]}"


def _shown(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:g}" if isinstance(value, float) else str(value)
