"""What a progress view knows of the work going on, and how much time is left of it."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import io
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live

from lpot.core.goal import Goal
from lpot.core.trial import Score, Trial
from lpot.report.terminal import SafeConsole


@dataclass
class Scene:
    """The phase under way, and the search around it. Changed by a listener as it hears."""

    clock: Callable[[], float] = time.monotonic
    name: str = ""
    total: int | None = None
    done: int = 0
    since: float = 0.0
    first: tuple[int, float] | None = None  # the first step seen, and when it was done
    is_trial: bool = False
    expected: float | None = None  # seconds, where earlier work of the same kind tells
    most: int | None = None  # trials
    deadline: float | None = None
    finished: int = 0
    goal: Goal | None = None
    baseline: Score | None = None
    best: Trial | None = None
    spent: list[float] = field(default_factory=list)  # seconds of each trial done in this run

    def enter(
        self,
        name: str,
        total: int | None = None,
        expected: float | None = None,
        is_trial: bool = False,
    ) -> None:
        self.name, self.total, self.done = name, total, 0
        self.since, self.expected, self.is_trial = self.clock(), expected, is_trial
        self.first = None

    def step(self, done: int) -> None:
        self.done = done
        if self.first is None and done:
            self.first = (done, self.clock())

    def plan(self, trials: int, timeout: float) -> None:
        self.most, self.finished = trials, 0
        self.deadline = self.clock() + timeout if timeout > 0 else None

    def hear(self, trial: Trial, best: Trial | None) -> None:
        self.finished += 1
        self.best = best
        if not trial.recalled:
            self.spent.append(trial.seconds)

    @property
    def elapsed(self) -> float:
        return self.clock() - self.since

    @property
    def trial_seconds(self) -> float | None:
        """How long a trial takes: as the earlier ones, or as the baseline took."""
        if self.spent:
            return sum(self.spent) / len(self.spent)
        return None if self.baseline is None else self.baseline.seconds

    @property
    def share(self) -> float | None:
        """The part of the phase that is done, from 0 to 1; None where nobody can tell."""
        if self.total:
            return min(1.0, self.done / self.total)
        if self.expected:
            # An estimate that has run out says "nearly", not "done".
            return min(0.99, self.elapsed / self.expected)
        return None

    @property
    def left(self) -> float | None:
        """Seconds left of the phase."""
        # The first step has the start of processes and the warming up in it: it tells nothing.
        if self.total and self.first is not None and self.done > self.first[0]:
            each = (self.clock() - self.first[1]) / (self.done - self.first[0])
            return each * max(0, self.total - self.done)
        return None if self.expected is None else max(0.0, self.expected - self.elapsed)

    @property
    def search_left(self) -> float | None:
        """Seconds left of the search at most; None outside of one."""
        each = self.trial_seconds
        if self.most is None or each is None:
            return None
        most = each * max(0, self.most - self.finished)
        return most if self.deadline is None else min(most, max(0.0, self.deadline - self.clock()))


# -- Where progress is drawn: plain lines, a terminal with a live foot, or one cell of a notebook.


Foot = Callable[[], RenderableType]

NOTEBOOK_WIDTH = 100
NOTEBOOK_PAUSE = 0.2  # seconds between two redraws of a cell at least


class PlainSurface:
    """Lines and nothing else: no control characters, nothing written twice."""

    is_live = False

    def __init__(self, console: Console) -> None:
        self.console = console

    def line(self, text: RenderableType) -> None:
        self._print(text, soft_wrap=True)

    def _print(self, text: RenderableType, **options: Any) -> None:
        """A terminal that is closed, or a full disk behind it, must not cost the tuning."""
        try:
            self.console.print(text, markup=False, highlight=False, **options)
        except (OSError, ValueError):
            self.console.quiet = True

    def refresh(self) -> None:
        """The foot has changed."""

    def close(self) -> None:
        """Take the foot away; the lines stay."""


class LiveSurface(PlainSurface):
    """Lines scroll by above a foot, which is redrawn a few times a second by a thread."""

    is_live = True

    def __init__(self, console: Console, foot: Foot) -> None:
        super().__init__(console)
        self._live = Live(
            console=console,
            get_renderable=foot,
            transient=True,
            refresh_per_second=5,
            # What the user's code prints must not tear the foot; what is piped must stay piped.
            redirect_stdout=sys.stdout is not None and sys.stdout.isatty(),
        )
        self._live.start()
        atexit.register(self.close)  # a hidden cursor must not outlive us

    def line(self, text: RenderableType) -> None:
        self._print(text)

    def close(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            self._live.stop()
        atexit.unregister(self.close)


class NotebookSurface(PlainSurface):
    """One output that is written anew with all lines and the foot: needs no widgets."""

    is_live = True

    def __init__(self, console: Console, foot: Foot) -> None:
        from IPython.display import display  # type: ignore[import-not-found, unused-ignore]

        super().__init__(console)
        self._foot: Foot | None = foot
        self._lines = ""
        self._drawn = 0.0
        self._handle: Any = display({"text/plain": ""}, raw=True, display_id=True)

    def line(self, text: RenderableType) -> None:
        self._lines += _as_text(text)
        self._draw()

    def refresh(self) -> None:
        if time.monotonic() - self._drawn >= NOTEBOOK_PAUSE:
            self._draw()

    def close(self) -> None:
        self._foot = None
        self._draw()

    def _draw(self) -> None:
        self._drawn = time.monotonic()
        foot = "" if self._foot is None else _as_text(self._foot())
        self._handle.update({"text/plain": self._lines + foot}, raw=True)


def open_surface(console: Console, foot: Foot, live: bool | None) -> PlainSurface:
    """The best that can be had here; `live` False asks for plain lines."""
    if live is False:
        return PlainSurface(console)
    if console.is_jupyter:
        known = importlib.util.find_spec("IPython") is not None
        return NotebookSurface(console, foot) if known else PlainSurface(console)
    if live or (console.is_terminal and not console.is_dumb_terminal):
        return LiveSurface(console, foot)
    return PlainSurface(console)


def _as_text(renderable: RenderableType) -> str:
    page = io.StringIO()
    drawn = SafeConsole(
        file=page,
        width=NOTEBOOK_WIDTH,
        force_jupyter=False,
        force_terminal=False,
        color_system=None,
    )
    drawn.print(renderable, markup=False, highlight=False)
    return page.getvalue()
