"""What a tuning is doing right now, in a small file of its workspace, for whoever watches it."""

from __future__ import annotations

import contextlib
import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from lpot.core import words
from lpot.core.errors import HistoryError
from lpot.core.files.untrusted import checked, read_json
from lpot.core.goal import Goal
from lpot.core.progress import Listener
from lpot.core.recipe import Recipe
from lpot.core.results.report import finite
from lpot.core.trial import Score, Trial
from lpot.report.scene import Scene

NAME = "progress.json"
PAUSE = 1.0  # seconds between two writes for mere steps


@dataclass(frozen=True)
class Now:
    """A moment of a tuning; times are those of the wall clock."""

    phase: str
    began: float  # the tuning
    since: float  # the phase
    at: float
    done: int = 0
    total: int | None = None
    left: float | None = None  # seconds of the phase
    search_left: float | None = None  # seconds of the search, at most

    def sentence(self, clock: float | None = None) -> str:
        """
        >>> Now("trial 3", 100.0, 160.0, 165.0, 2, 4, 9.0, 60.0).sentence(170.0)
        'trial 3: 2 of 4; running for 1:10, about 0:04 left of this, 0:55 of the search'
        """
        now = time.time() if clock is None else clock
        late = max(0.0, now - self.at)
        steps = f": {self.done} of {self.total}" if self.total else ""
        parts = [f"running for {words.clock(now - self.began)}"]
        if self.left is not None:
            parts.append(f"about {words.clock(max(0.0, self.left - late))} left of this")
        if self.search_left is not None:
            most = words.clock(max(0.0, self.search_left - late))
            parts.append(f"{most} of the search" if self.left is not None else f"{most} left")
        return f"{self.phase}{steps}; {', '.join(parts)}"


class Beacon(Listener):
    """Keeps the file while it is lit. A disk that is full must not end a tuning."""

    def __init__(self) -> None:
        self.scene = Scene()
        self._path: Path | None = None
        self._began = time.time()
        self._said = 0.0

    @contextlib.contextmanager
    def lit(self, folder: Path) -> Iterator[None]:
        self._path = folder / NAME
        with contextlib.suppress(OSError):  # a link would be followed, a pipe waited for
            self._path.unlink(missing_ok=True)
        try:
            yield
        finally:
            with contextlib.suppress(OSError):
                self._path.unlink(missing_ok=True)
            self._path = None

    def phase(self, name: str, total: int | None = None) -> None:
        self.scene.enter(name, total)
        self._say()

    def expect(self, total: int) -> None:
        self.scene.total = total

    def step(self, done: int) -> None:
        self.scene.step(done)
        if time.monotonic() - self._said >= PAUSE:
            self._say()

    def plan(self, trials: int, timeout: float = 0.0) -> None:
        self.scene.plan(trials, timeout)

    def baseline(self, score: Score, goal: Goal) -> None:
        self.scene.baseline, self.scene.goal = score, goal

    def begin(self, number: int, recipe: Recipe) -> None:
        of = "" if self.scene.most is None else f" of at most {self.scene.most}"
        self.scene.enter(f"trial {number}{of}", expected=self.scene.trial_seconds, is_trial=True)
        self._say()

    def trial(self, trial: Trial, best: Trial | None) -> None:
        self.scene.hear(trial, best)

    def _say(self) -> None:
        self._said = time.monotonic()
        if self._path is None:
            return
        scene, now = self.scene, time.time()
        search = scene.search_left if scene.is_trial else None
        moment = Now(
            scene.name,
            self._began,
            now - scene.elapsed,
            now,
            scene.done,
            scene.total,
            scene.left,
            search,
        )
        with contextlib.suppress(OSError):
            # Torn, it is read as nothing: a second later there is another.
            self._path.write_text(json.dumps(finite(asdict(moment))), "utf-8")


def read_now(workspace: Path) -> Now | None:
    """What is going on there; None where nobody says, or nothing sensible."""
    path = workspace / NAME
    try:
        raw: Any = read_json(path, "")
        return checked(Now, raw, path, "")
    except (HistoryError, OSError):
        return None
