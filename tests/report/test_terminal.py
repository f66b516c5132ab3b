"""What people see while it works: plain lines, a live foot, a notebook's cell."""

from __future__ import annotations

import io
import sys
from dataclasses import replace
from types import ModuleType
from typing import Any

import pytest
from rich.console import Console

from lpot.core.goal import Goal
from lpot.core.progress import Listener
from lpot.core.recipe import FP32, TensorConfig
from lpot.core.trial import Score
from lpot.report import terminal
from lpot.report.terminal import TerminalListener


def play(listener: Listener, trial: Any) -> None:
    """A short tuning, as the loop tells it."""
    listener.phase("loading the model")
    listener.note("reduced range is used")
    listener.plan(4)
    listener.phase("evaluating FP32")
    listener.baseline(Score(0.9, 1.0), Goal(relative=0.01))
    listener.phase("calibrating", 5)
    for done in range(1, 6):
        listener.step(done)
    first, second = trial(1, 0.5), trial(2, 0.895, floats=1)
    listener.begin(1, first.recipe)
    listener.trial(first, first)
    listener.begin(2, second.recipe)
    listener.expect(3)
    listener.step(1)
    listener.trial(second, second)
    listener.trial(trial(3, None), second)
    listener.trial(trial(4, 0.2, recalled=True), second)
    listener.note("warning: something is odd")


def test_ops_in_16_bit_floats_are_not_in_fp32(page: io.StringIO, trial: Any) -> None:
    listener = TerminalListener(Console(file=page, width=80))
    one = trial(1, 0.9, floats=3)
    half = replace(FP32, activation=TensorConfig("bf16"))
    ops = {key: half if config == FP32 else config for key, config in one.recipe.ops.items()}
    listener.baseline(Score(0.9, 1.0), Goal(relative=0.01))
    listener.trial(replace(one, recipe=replace(one.recipe, ops=ops)), None)
    listener.close()
    assert "0 ops in FP32" in page.getvalue()


@pytest.fixture
def page() -> io.StringIO:
    return io.StringIO()


def test_plain_lines(page: io.StringIO, trial: Any) -> None:
    listener = TerminalListener(Console(file=page, width=80))
    play(listener, trial)
    listener.close()
    assert page.getvalue().splitlines() == [
        "loading the model",
        "note: reduced range is used",
        "evaluating FP32",
        "FP32: accuracy 0.9, bar 0.891 (at most 0.01 relative loss), 1 s",
        "calibrating (5 steps)",
        "trial 1: accuracy 0.5, drop 44.44 %, bar missed, 0 ops in FP32, 2 s, best so far",
        "trial 2: accuracy 0.895, drop 0.56 %, bar met, 1 op in FP32, 2 s, best so far",
        "trial 3: failed: ValueError: no",
        "trial 4: accuracy 0.2, drop 77.78 %, bar missed, 0 ops in FP32, 2 s, recalled",
        "warning: something is odd",
    ]


def test_plain_lines_have_no_control_characters(page: io.StringIO, trial: Any) -> None:
    play(TerminalListener(Console(file=page)), trial)
    assert all(char.isprintable() or char == "\n" for char in page.getvalue())


def test_a_long_phase_gives_signs_of_life(
    page: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [0.0]
    monkeypatch.setattr(terminal.time, "monotonic", lambda: now[0])
    listener = TerminalListener(Console(file=page))
    listener.scene.clock = lambda: now[0]
    listener.phase("calibrating", 100)
    for done in range(1, 41):
        now[0] += 1
        listener.step(done)
    lines = page.getvalue().splitlines()
    assert lines[0] == "calibrating (100 steps)"
    assert lines[1] == "calibrating: 10 of 100, about 1 min 30 s left"
    assert len(lines) == 5  # one in ten seconds, not one a step


def test_a_long_trial_is_announced(page: io.StringIO, trial: Any) -> None:
    listener = TerminalListener(Console(file=page))
    listener.plan(3)
    listener.baseline(Score(0.9, 90.0), Goal(relative=0.01))
    listener.begin(1, trial(1, 0.5).recipe)
    assert "trial 1 of at most 3 started, about 1 min 30 s" in page.getvalue()


def drawn(listener: TerminalListener, width: int = 100) -> str:
    page = io.StringIO()
    Console(file=page, width=width).print(listener.foot())
    return page.getvalue()


def test_the_foot_tells_best_bar_and_time_left(page: io.StringIO, trial: Any) -> None:
    listener = TerminalListener(Console(file=page))
    now = [0.0]
    listener.scene.clock = lambda: now[0]
    listener.phase("evaluating FP32")
    now[0] += 7
    assert "evaluating FP32" in drawn(listener) and "0:07 so far" in drawn(listener)
    listener.plan(5)
    listener.baseline(Score(0.9, 60.0), Goal(relative=0.01))
    second = trial(1, 0.895, floats=1)
    listener.trial(second, second)
    listener.begin(2, second.recipe)
    now[0] += 1
    foot = drawn(listener)
    assert "best so far: trial 1, accuracy 0.895, bar met; ops int8 11, fp32 1" in foot
    assert "trial 2 of at most 5" in foot
    assert "0:01 left, search at most 0:08" in foot
    listener.expect(10)
    listener.step(5)
    assert "5/10 0:01 left" in drawn(listener)
    assert len(drawn(listener, width=60).splitlines()[0]) <= 60


def test_live_view_leaves_the_table_and_gives_the_cursor_back(
    page: io.StringIO, trial: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    console = Console(file=page, force_terminal=True, width=100, color_system="standard")
    listener = TerminalListener(console)
    play(listener, trial)
    listener.close()
    text = page.getvalue()
    assert "\x1b[?25l" in text and text.rindex("\x1b[?25h") > text.rindex("\x1b[?25l")
    assert "FP32 ops" in text and "missed" in text and "best so far" in text
    assert not isinstance(sys.stdout, type(None)) and "FileProxy" not in type(sys.stdout).__name__
    assert capsys.readouterr().out == ""
    listener.phase("again")  # a listener may be used for the next job
    listener.close()


def test_a_listener_that_hears_nothing_touches_nothing(page: io.StringIO) -> None:
    TerminalListener(Console(file=page, force_terminal=True)).close()
    assert page.getvalue() == ""


def test_notebook_cell_is_written_anew(
    page: io.StringIO, trial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []

    class Handle:
        def update(self, data: dict[str, str], raw: bool) -> None:
            shown.append(data["text/plain"])

    def display(data: dict[str, str], raw: bool, display_id: bool) -> Handle:
        shown.append(data["text/plain"])
        return Handle()

    package, module = ModuleType("IPython"), ModuleType("IPython.display")
    module.display = display  # type: ignore[attr-defined]
    package.__spec__ = __spec__
    monkeypatch.setitem(sys.modules, "IPython", package)
    monkeypatch.setitem(sys.modules, "IPython.display", module)
    listener = TerminalListener(Console(file=page, force_jupyter=True))
    play(listener, trial)
    assert "best so far: trial 2" in shown[-1]
    listener.close()
    lines = shown[-1].splitlines()
    assert lines[1].startswith("FP32: accuracy 0.9")
    assert sum(line.lstrip().startswith("trial  ") for line in lines) == 1
    assert lines[-1] == "warning: something is odd"
    assert "best so far: trial" not in shown[-1]  # the foot is gone
    assert page.getvalue() == "" and "\x1b" not in shown[-1]


def test_notebook_without_ipython_falls_back_to_lines(
    page: io.StringIO, trial: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lpot.report.surface.importlib.util.find_spec", lambda name: None)
    listener = TerminalListener(Console(file=page, force_jupyter=True))
    play(listener, trial)
    listener.close()
    assert not listener.surface.is_live


def test_a_trial_that_was_given_up_early_says_so(page: io.StringIO, trial: Any) -> None:
    listener = TerminalListener(Console(file=page))
    listener.baseline(Score(0.9, 1.0), Goal(relative=0.01))
    full = trial(1, 0.5)
    listener.trial(replace(full, score=replace(full.score, bounds=(0.4, 0.6))), None)
    assert page.getvalue().splitlines()[-1].endswith("2 s, stopped early")


def test_lower_is_better_counts_a_rise_as_a_drop(page: io.StringIO, trial: Any) -> None:
    listener = TerminalListener(Console(file=page))
    listener.baseline(Score(2.0, 1.0), Goal(absolute=0.5, higher_is_better=False))
    listener.trial(trial(1, 2.25), None)
    assert "accuracy 2.25, drop 0.25" in page.getvalue()
