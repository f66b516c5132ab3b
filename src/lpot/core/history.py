"""The journal of a tuning: append-only JSON lines, each synced to disk, so that a rerun goes on.

The first line is a header with the fingerprint of model, config, data and versions; then the
baseline; then a line when a trial begins and one when it ends. Every line carries a checksum: a
line torn by a crash, or edited, ends what is believed. No samples, no secrets, no pickle.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lpot.core.card import sync_folder, write_text
from lpot.core.errors import HistoryError, WorkspaceError
from lpot.core.recipe import Recipe
from lpot.core.trial import Score, State, Trial

logger = logging.getLogger(__name__)

FORMAT = 1
NAME = "history.jsonl"
KINDS = ("header", "baseline", "begin", "leave", "trial")
DEATHS = 2  # of the process within one trial, after which it is not tried again
Fingerprint = Mapping[str, str]


class ProcessDied(Exception):
    """The process that made a trial died in it. Becomes the trial's cause."""


class History:
    """One run's journal. Open it with `History.open`; it is a list of facts, never edited."""

    def __init__(self, path: Path, fingerprint: Fingerprint, info: Mapping[str, Any]) -> None:
        self.path = path
        self.fingerprint = dict(fingerprint)
        self.info = dict(info)  # framework, name and goal, for those who read it later
        self.baseline: Score | None = None
        self.evaluator: str | None = None  # hash of eval_func's source at the baseline
        self.memory: Any = None  # what the baseline taught the evaluator
        self.trials: list[Trial] = []
        self.notes: list[str] = []
        self._known: dict[str, Trial] = {}
        self._begun: dict[str, int] = {}  # recipe → how often it was begun and not ended

    @classmethod
    def open(
        cls, path: Path, fingerprint: Fingerprint, info: Mapping[str, Any] = MappingProxyType({})
    ) -> History:
        """Go on with the journal at `path`, or begin one; an unfit one is kept aside, and said."""
        history = cls(path, fingerprint, info)
        lines, damage = _read_lines(path)
        header = lines[0] if lines else {}
        if header.get("kind") == "header" and header.get("format") == FORMAT:
            differing = _differences(header.get("fingerprint", {}), fingerprint)
            if not differing:
                history._go_on(lines, damage)
                return history
            aside = _keep_aside(path, key_of(header.get("fingerprint", {})))
            history.notes.append(
                f"the history here is of another run ({'; '.join(differing)}): kept as {aside.name}"
            )
        elif lines or damage:
            reason = damage or "written by another version of lpot"
            aside = _keep_aside(path, "unreadable")
            history.notes.append(f"the history can't be used ({reason}): kept as {aside.name}")
        history._begin_or_return()
        return history

    @classmethod
    def read(cls, path: Path) -> History:
        """A journal as it is, whatever run it belongs to; nothing is written."""
        if not path.is_file():
            raise HistoryError(f"{path}: no such history; a workspace holds it as {NAME}")
        lines, damage = _read_lines(path)
        if not lines or lines[0].get("kind") != "header":
            raise HistoryError(f"{path}: not a history of lpot ({damage or 'no header'})")
        history = cls(path, lines[0].get("fingerprint", {}), lines[0].get("info", {}))
        _, damage = history._replay_all(lines, damage)
        if damage:
            history.notes.append(damage)
        return history

    def recall(self, recipe: Recipe) -> Trial | None:
        """What is known of a recipe. A trial that failed in an earlier run is worth another try."""
        return self._known.get(recipe.digest)

    def record_baseline(self, score: Score, evaluator: str | None, memory: Any = None) -> None:
        self.baseline, self.evaluator, self.memory = score, evaluator, memory
        entry = {"kind": "baseline", "score": score.to_json(), "evaluator": evaluator}
        self._append(entry if memory is None else {**entry, "memory": memory})

    def is_deadly(self, recipe: Recipe) -> bool:
        """Has the process died in it before, more often than chance would have it?"""
        return self._begun.get(recipe.digest, 0) >= DEATHS

    def begin(self, number: int, recipe: Recipe) -> None:
        """Written before the work: a crash of the process is then known to a rerun."""
        self._begun[recipe.digest] = self._begun.get(recipe.digest, 0) + 1
        self._append({"kind": "begin", "number": number, "digest": recipe.digest})

    def leave(self, digests: Iterable[str]) -> None:
        """These were begun and given up on purpose: nobody died."""
        left = sorted(digests)
        for digest in left:
            self._begun.pop(digest, None)
        if left:
            self._append({"kind": "leave", "digests": left})

    def append(self, trial: Trial) -> None:
        self.trials.append(trial)
        self._known[trial.recipe.digest] = trial
        self._settle(trial)
        self._append({"kind": "trial", **trial.to_json()})

    def adopt(self, other: History) -> None:
        """Take over what another journal of the same run knows (`workspace.resume`)."""
        differing = _differences(other.fingerprint, self.fingerprint)
        if differing:
            self.notes.append(f"{other.path} is not resumed: {'; '.join(differing)}")
            return
        if self.baseline is None and other.baseline is not None:
            self.record_baseline(other.baseline, other.evaluator, other.memory)
        for trial in other.trials:
            if trial.state is State.DONE and self.recall(trial.recipe) is None:
                self.append(replace(trial, number=len(self.trials) + 1))

    # -- lines -------------------------------------------------------------------------------

    def _begin_or_return(self) -> None:
        """A fresh journal, or the one of this very run that another had put aside."""
        aside = _aside(self.path, key_of(self.fingerprint))
        if aside.is_file() and not self.path.exists():
            aside.replace(self.path)
            lines, damage = _read_lines(self.path)
            if lines and lines[0].get("fingerprint") == self.fingerprint:
                self.notes.append(
                    f"this run's own history, kept as {aside.name}, is taken up again"
                )
                self._go_on(lines, damage)
                return
            _keep_aside(self.path, "unreadable")
        if self.notes:
            self.notes.append("a fresh history is begun")
        header = {"kind": "header", "format": FORMAT, "fingerprint": self.fingerprint}
        self._append({**header, "info": self.info})
        sync_folder(self.path.parent)

    def _go_on(self, lines: list[dict[str, Any]], damage: str) -> None:
        sound, damage = self._replay_all(lines, damage)
        if damage:
            self._set_damage_aside(damage, sound)
        elif not self.path.read_bytes().endswith(b"\n"):
            # A crash cut off the line's end and nothing else: the next line must not run into it.
            with self.path.open("ab") as stream:
                stream.write(b"\n")

    def _replay_all(
        self, lines: list[dict[str, Any]], damage: str
    ) -> tuple[list[dict[str, Any]], str]:
        """Believe the lines up to the first that can't be understood."""
        for number, line in enumerate(lines[1:], start=2):
            try:
                self._replay(line)
            except (KeyError, TypeError, ValueError, IndexError, AttributeError):
                return lines[: number - 1], f"line {number} of the history can't be understood"
        return lines, damage

    def _append(self, entry: Mapping[str, Any]) -> None:
        line = json.dumps({**entry, "check": _check(entry)}, ensure_ascii=False) + "\n"
        try:
            with self.path.open("ab") as stream:
                stream.write(line.encode())
                stream.flush()
                os.fsync(stream.fileno())
        except OSError as error:
            raise WorkspaceError(
                f"{self.path}: can't write the history ({error.strerror})"
            ) from error

    def _replay(self, entry: Mapping[str, Any]) -> None:
        if entry["kind"] == "baseline":
            self.baseline, self.evaluator = Score.from_json(entry["score"]), entry.get("evaluator")
            self.memory = entry.get("memory")
        elif entry["kind"] == "begin":
            self._begun[entry["digest"]] = self._begun.get(entry["digest"], 0) + 1
        elif entry["kind"] == "leave":
            for digest in entry["digests"]:
                self._begun.pop(digest, None)
        elif entry["kind"] == "trial":
            trial = Trial.from_json(entry)
            self.trials.append(trial)
            self._settle(trial)
            if trial.state is State.DONE:
                self._known[trial.recipe.digest] = trial

    def _settle(self, trial: Trial) -> None:
        # What is failed because of its deaths stays so; anything else ended by itself.
        if trial.error is None or not trial.error.startswith(ProcessDied.__name__):
            self._begun.pop(trial.recipe.digest, None)

    def _set_damage_aside(self, damage: str, lines: list[dict[str, Any]]) -> None:
        aside = _keep_aside(self.path, "damaged")
        text = "".join(
            json.dumps({**line, "check": _check(line)}, ensure_ascii=False) + "\n" for line in lines
        )
        write_text(self.path, text)
        self.notes.append(f"{damage}: the sound part is used, the whole is kept as {aside.name}")


def _read_lines(path: Path) -> tuple[list[dict[str, Any]], str]:
    """The sound lines from the start, and what is wrong behind them."""
    if not path.exists():
        return [], ""
    try:
        raw = path.read_bytes()
    except OSError as error:
        raise WorkspaceError(f"{path}: can't read the history ({error.strerror})") from error
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(raw.split(b"\n"), start=1):
        if not text:
            continue
        try:
            entry = json.loads(text)
            check = entry.pop("check")
            kind = entry["kind"]
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
            return lines, f"line {number} of the history is torn or edited"
        if check != _check(entry) or kind not in KINDS:
            return lines, f"line {number} of the history was edited"
        lines.append(entry)
    return lines, ""


def _check(entry: Mapping[str, Any]) -> str:
    text = json.dumps(entry, sort_keys=True, ensure_ascii=False)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _differences(old: Mapping[str, str], new: Fingerprint) -> list[str]:
    words = {
        "model": "the model differs",
        "config": "the configuration differs",
        "data": "the calibration data differ (a shuffling loader? fix its seed)",
        "versions": "versions differ",
    }
    keys = sorted({*old, *new})
    return [words.get(key, f"{key} differs") for key in keys if old.get(key) != new.get(key)]


def key_of(fingerprint: Mapping[str, str]) -> str:
    """A run's short name: what belongs to it is kept under this when another run moves in."""
    text = json.dumps(dict(sorted(fingerprint.items())))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def _aside(path: Path, word: str) -> Path:
    return path.with_name(f"{path.stem}-{word}{path.suffix}")


def _keep_aside(path: Path, word: str) -> Path:
    aside = _aside(path, word)
    number = 1
    while aside.exists():
        number += 1
        aside = _aside(path, f"{word}-{number}")
    path.replace(aside)
    return aside
