"""Where progress is drawn: plain lines, a terminal with a live foot, or one cell of a notebook."""

from __future__ import annotations

import atexit
import contextlib
import importlib.util
import io
import sys
import time
from collections.abc import Callable
from typing import Any

from rich.console import Console, RenderableType
from rich.live import Live

from lpot.report.console import SafeConsole

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
