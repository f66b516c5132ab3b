"""Progress for people, and the verdict at the end."""

from __future__ import annotations

import time
from typing import Literal

from rich.console import Console, Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from lpot.core import words
from lpot.core.errors import ConfigError
from lpot.core.goal import Goal
from lpot.core.progress import Chorus, Listener
from lpot.core.recipe import Recipe
from lpot.core.trial import Score, State, Trial
from lpot.report.console import SafeConsole
from lpot.report.scene import Scene
from lpot.report.surface import PlainSurface, open_surface
from lpot.report.verdict import verdict

__all__ = ["TerminalListener", "verdict"]

SIGN_OF_LIFE = 10.0  # seconds between two plain lines of one phase
LONG_TRIAL = 5.0  # seconds; a trial that takes longer is announced on plain lines
HEADER = f"{'trial':>5}  {'accuracy':>10}  {'drop':>8}  {'bar':<6}  {'FP32 ops':>8}  {'time':>8}"
BAR_WIDTH = 28


class TerminalListener(Listener):
    """Lines for what is done, on stderr; a terminal also gets a live foot for what is going on.

    Args:
        console: where to draw; stderr by default.
        live: True or False to decide about the foot; None lets the console decide.
    """

    def __init__(self, console: Console | None = None, live: bool | None = None) -> None:
        self.console = console or SafeConsole(stderr=True)
        self.scene = Scene()
        self._wanted = live
        self._surface: PlainSurface | None = None
        self._spinner = Spinner("dots")
        self._has_header = False
        self._said = 0.0

    # Components hold a listener, and are copied: a copy draws on the same terminal.
    def __deepcopy__(self, memo: object) -> TerminalListener:
        return TerminalListener(self.console, self._wanted)

    def __reduce__(self) -> tuple[type[TerminalListener], tuple[None, bool | None]]:
        return TerminalListener, (None, self._wanted)

    @property
    def surface(self) -> PlainSurface:
        # Opened when first needed: a listener that hears nothing must not touch the terminal.
        if self._surface is None:
            self._surface = open_surface(self.console, self.foot, self._wanted)
        return self._surface

    # -- what is heard -----------------------------------------------------------------------

    def phase(self, name: str, total: int | None = None) -> None:
        self.scene.enter(name, total)
        self._said = time.monotonic()
        if self.surface.is_live:
            self.surface.refresh()
        else:
            steps = f" ({words.some(total, 'step')})" if total else ""
            self.surface.line(f"{name}{steps}")

    def expect(self, total: int) -> None:
        self.scene.total = total

    def step(self, done: int) -> None:
        self.scene.step(done)
        self.surface.refresh()
        if self.surface.is_live or time.monotonic() - self._said < SIGN_OF_LIFE:
            return
        self._said = time.monotonic()
        of = f" of {self.scene.total}" if self.scene.total else ""
        left = self.scene.left
        rest = "" if left is None else f", about {words.duration(left)} left"
        self.surface.line(f"{self.scene.name}: {done}{of}{rest}")

    def note(self, text: str) -> None:
        warning = text.startswith("warning")
        said = text if warning else f"note: {text}"
        self.surface.line(Text(said, "yellow" if warning else "dim"))

    def plan(self, trials: int, timeout: float = 0.0) -> None:
        self.scene.plan(trials, timeout)
        self._has_header = False

    def baseline(self, score: Score, goal: Goal) -> None:
        self.scene.baseline, self.scene.goal = score, goal
        self.scene.best = None
        bar = words.accuracy(goal.bar(score.accuracy))
        self.surface.line(
            f"FP32: accuracy {words.accuracy(score.accuracy)}, bar {bar} ({goal}), "
            f"{words.duration(score.seconds)}"
        )

    def begin(self, number: int, recipe: Recipe) -> None:
        of = "" if self.scene.most is None else f" of at most {self.scene.most}"
        expected = self.scene.trial_seconds
        self.scene.enter(f"trial {number}{of}", expected=expected, is_trial=True)
        self._said = time.monotonic()
        self.surface.refresh()
        if not self.surface.is_live and expected is not None and expected > LONG_TRIAL:
            self.surface.line(f"trial {number}{of} started, about {words.duration(expected)}")

    def trial(self, trial: Trial, best: Trial | None) -> None:
        self.scene.hear(trial, best)
        if not self.surface.is_live:
            self.surface.line(self._sentence(trial, best))
            return
        if not self._has_header:
            self.surface.line(Text(HEADER, "bold"))
            self._has_header = True
        self.surface.line(self._row(trial, best))

    def close(self) -> None:
        if self._surface is not None:
            self._surface.close()
            self._surface = None

    # -- what is drawn -----------------------------------------------------------------------

    def _drop(self, trial: Trial) -> str:
        scene = self.scene
        if trial.score is None or scene.goal is None or scene.baseline is None:
            return ""
        return words.loss(scene.goal, trial.score, scene.baseline.accuracy)

    def _sentence(self, trial: Trial, best: Trial | None) -> str:
        if trial.state is State.FAILED:
            return f"trial {trial.number}: failed: {_one_line(trial.error)}"
        parts = [
            f"trial {trial.number}: accuracy {words.scored(trial.score, self.scene.goal)}",
            f"drop {self._drop(trial)}",
            "bar met" if trial.met else "bar missed",
            f"{words.some(_fp32_ops(trial), 'op')} in FP32",
            words.duration(trial.seconds),
            *_remarks(trial, best),
        ]
        return ", ".join(parts)

    def _row(self, trial: Trial, best: Trial | None) -> Text:
        if trial.state is State.FAILED:
            cause = f"{trial.number:>5}  failed: {_one_line(trial.error)}"
            return Text(cause, "red", no_wrap=True, overflow="ellipsis")
        row = Text(
            f"{trial.number:>5}  {words.scored(trial.score, self.scene.goal):>10}  ", no_wrap=True
        )
        row.append(f"{self._drop(trial):>8}  ")
        row.append(f"{'met' if trial.met else 'missed':<6}  ", "green" if trial.met else "yellow")
        row.append(f"{_fp32_ops(trial):>8}  {words.duration(trial.seconds):>8}")
        row.append("".join(f"  {remark}" for remark in _remarks(trial, best)), "bold")
        return row

    def foot(self) -> RenderableType:
        """The best so far, and the phase with its bar and the time left."""
        scene = self.scene
        parts: list[RenderableType] = []
        if scene.best is not None:
            best = scene.best
            state = "bar met" if best.met else "bar missed"
            parts.append(
                Text(
                    f"best so far: trial {best.number}, "
                    f"accuracy {words.scored(best.score, scene.goal)}, "
                    f"{state}; ops {words.planned(best.recipe)}",
                    "cyan",
                    no_wrap=True,
                    overflow="ellipsis",
                )
            )
        if scene.name:
            parts.append(self._phase_line())
        return Group(*parts)

    def _phase_line(self) -> RenderableType:
        scene, share = self.scene, self.scene.share
        line = Table.grid(padding=(0, 1))
        line.add_column(no_wrap=True)
        line.add_column(no_wrap=True)
        line.add_column(width=BAR_WIDTH)
        line.add_column(no_wrap=True)
        bar = ProgressBar(total=1.0, completed=share or 0.0, width=BAR_WIDTH, pulse=share is None)
        count = f"{scene.done}/{scene.total} " if scene.total else ""
        left = f"{words.clock(scene.elapsed)} so far"
        if scene.left is not None:
            left = f"{words.clock(scene.left)} left"
        if scene.is_trial and scene.search_left is not None:
            left += f", search at most {words.clock(scene.search_left)}"
        line.add_row(self._spinner, scene.name, bar, Text(count + left, "dim"))
        return line


def progress_listener(
    progress: bool | Literal["auto", "plain"], other: Listener | None = None
) -> Listener:
    """What draws, as asked for, and a listener of the user's beside it."""
    if progress not in (True, False, "auto", "plain"):
        raise ConfigError(
            f"given {progress!r}, expected 'auto', 'plain', True or False", "progress"
        )
    drawn = () if progress is False else (TerminalListener(live=_live(progress)),)
    heard = drawn if other is None else (*drawn, other)
    return heard[0] if len(heard) == 1 else Chorus(*heard)


def _live(progress: bool | str) -> bool | None:
    return False if progress == "plain" else None


def _remarks(trial: Trial, best: Trial | None) -> list[str]:
    remarks = {
        "best so far": best is trial,
        "stopped early": trial.score is not None and trial.score.raced_out,
        "recalled": trial.recalled,
    }
    return [remark for remark, applies in remarks.items() if applies]


def _fp32_ops(trial: Trial) -> int:
    """Those in 16-bit floats are not among them."""
    return trial.recipe.precisions().get("fp32", 0)


def _one_line(text: str | None) -> str:
    lines = (text or "unknown cause").strip().splitlines()
    return lines[0] if lines else "unknown cause"
