"""Progress for programs: one JSON object a line."""

from __future__ import annotations

import json
import sys
import time
from typing import Any, TextIO

from lpot.core.goal import Goal
from lpot.core.progress import Listener
from lpot.core.recipe import Recipe
from lpot.core.trial import Score, Trial

PAUSE = 0.5  # seconds between two steps told, the last one excepted


class JsonLinesListener(Listener):
    """Each event with its name and the seconds since the first one."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream
        self._start = time.monotonic()
        self._total: int | None = None
        self._stepped = 0.0

    def phase(self, name: str, total: int | None = None) -> None:
        self._total, self._stepped = total, 0.0
        self._say("phase", name=name, total=total)

    def expect(self, total: int) -> None:
        self._total = total
        self._say("expect", total=total)

    def step(self, done: int) -> None:
        # A thousand batches need no thousand lines.
        now = time.monotonic()
        if done == self._total or now - self._stepped >= PAUSE:
            self._stepped = now
            self._say("step", done=done)

    def note(self, text: str) -> None:
        self._say("note", text=text)

    def plan(self, trials: int, timeout: float = 0.0) -> None:
        self._say("plan", trials=trials, timeout=timeout)

    def baseline(self, score: Score, goal: Goal) -> None:
        bar = goal.bar(score.accuracy)
        self._say("baseline", score=score.to_json(), goal=str(goal), bar=bar)

    def begin(self, number: int, recipe: Recipe) -> None:
        self._say("begin", number=number, digest=recipe.digest)

    def trial(self, trial: Trial, best: Trial | None) -> None:
        raw = {key: value for key, value in trial.to_json().items() if key != "recipe"}
        self._say(
            "trial",
            **raw,
            recalled=trial.recalled,
            fp32_ops=len(trial.recipe.float_ops),
            precisions=trial.recipe.precisions(),
            best=None if best is None else best.number,
        )

    def _say(self, event: str, **facts: Any) -> None:
        stream = self._stream or sys.stderr
        seconds = round(time.monotonic() - self._start, 3)
        stream.write(json.dumps({"event": event, "at": seconds, **facts}) + "\n")
        stream.flush()
