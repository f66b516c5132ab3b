"""Progress for programs."""

from __future__ import annotations

import io
import json
from typing import Any

from lpot.core.goal import Goal
from lpot.core.trial import Score
from lpot.report.jsonlines import JsonLinesListener


def test_each_event_is_one_object(trial: Any) -> None:
    page = io.StringIO()
    listener = JsonLinesListener(page)
    first = trial(1, 0.895, floats=2)
    listener.phase("calibrating", 5)
    listener.expect(6)
    listener.step(1)
    listener.note("two\nlines")
    listener.plan(7, 60.0)
    listener.baseline(Score(0.9, 1.0), Goal(relative=0.01))
    listener.begin(1, first.recipe)
    listener.trial(first, first)
    listener.trial(trial(2, None), first)
    listener.close()
    events = [json.loads(line) for line in page.getvalue().splitlines()]
    assert [event["event"] for event in events] == [
        *("phase", "expect", "step", "note", "plan", "baseline", "begin", "trial", "trial")
    ]
    assert events[5]["bar"] == 0.891
    done, failed = events[-2:]
    assert done["met"] is True and done["fp32_ops"] == 2 and done["best"] == 1
    assert "recipe" not in done
    assert failed["state"] == "failed" and failed["error"].startswith("ValueError")
    assert all(event["at"] >= 0 for event in events)
