"""The journal of a tuning: append-only JSON lines, each synced to disk, so that a rerun goes on.

The first line is a header with the fingerprint of model, config, data and versions; then the
baseline; then a line when a trial begins and one when it ends. Every line carries a checksum: one
that was torn by a crash, or edited, is left out, and the others stand. No samples, no secrets, no
pickle.
"""

from __future__ import annotations

import logging
import math
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

from lpot.core.errors import HistoryError, WorkspaceError
from lpot.core.evaluation.identity import Identity
from lpot.core.evaluation.tally import MeanPieces
from lpot.core.files.draft import beside, sync_folder
from lpot.core.files.journal import (
    FORMAT,
    Fingerprint,
    Found,
    differences,
    key_of,
    make_line,
    no_garbage,
    read_line,
)
from lpot.core.files.untrusted import open_regular
from lpot.core.recipe import Recipe
from lpot.core.trial import Score, State, Trial

logger = logging.getLogger(__name__)

NAME = "history.jsonl"
Copy = Callable[[bytes], None]
DEATHS = 2  # of the process within one trial, after which it comes last
LAST = 3  # after which it is not tried again: a search must come to an end
# What an entry raises that is sound as a line and yet none of ours.
DAMAGE = (KeyError, TypeError, ValueError, IndexError, AttributeError)


class ProcessDied(Exception):
    """The process that made a trial died in it. Becomes the trial's cause."""


class History:
    """One run's journal. Open it with `History.open`; it is a list of facts, never edited."""

    def __init__(
        self,
        path: Path,
        fingerprint: Fingerprint,
        info: Mapping[str, Any],
        copy: Copy = lambda line: None,
    ) -> None:
        self.path = path
        self._copy = copy
        self.fingerprint, self.info = dict(fingerprint), dict(info)  # framework, name and goal
        self.baseline: Score | None = None
        self.evaluator: Identity | None = None  # as it was at the baseline
        self.memory: Any = None  # what the baseline taught the evaluator
        self.pieces: dict[str, MeanPieces] = {}  # scores by sample: of a recipe; of FP32 under ""
        self.intervals: dict[str, Any] = {}  # of the drop, by recipe
        self.trials: list[Trial] = []
        self.notes: list[str] = []
        self._known: dict[str, Trial] = {}
        self._begun: dict[str, int] = {}  # recipe → how often it was begun and not ended
        self._process = os.getpid()

    @classmethod
    def open(
        cls,
        path: Path,
        fingerprint: Fingerprint,
        info: Mapping[str, Any] = MappingProxyType({}),
        copy: Copy = lambda line: None,
    ) -> History:
        """Go on with the journal at `path`, or begin one; an unfit one is kept aside, and said.

        `copy` is given each line once it is in the file (`Workspace.copy_line`).
        """
        history = cls(path, fingerprint, info, copy)
        found = history._replay_file()
        if found.is_of(fingerprint):
            history._mend(found)
            return history
        history._forget()
        if found.fingerprint is not None:
            differing = differences(found.fingerprint, fingerprint)
            aside = _keep_aside(path, key_of(found.fingerprint))
            history.notes.append(
                f"the history here belongs to another run ({'; '.join(differing)}): kept as "
                f"{aside.name}"
            )
        elif found.lines or found.bad:
            reason = found.damage or "written by another version of lpot"
            aside = _keep_aside(path, "unreadable")
            history.notes.append(f"the history can't be used ({reason}): kept as {aside.name}")
        history._begin_or_return()
        return history

    @classmethod
    def read(cls, path: Path) -> History:
        """A journal as it is, whatever run it belongs to; nothing is written."""
        if not path.is_file():
            raise HistoryError(f"{path}: no such history; in a workspace it is named {NAME}")
        history = cls(path, {}, {})
        found = history._replay_file(anyone=True)
        if found.fingerprint is None:
            raise HistoryError(
                f"{path}: not a history of lpot ({found.damage or 'no header'}): give the {NAME} "
                "of a workspace; if its first line was damaged, tuning there again repairs it"
            )
        history.fingerprint = dict(found.fingerprint)
        if found.damage:
            history.notes.append(found.damage)
        return history

    def recall(self, recipe: Recipe) -> Trial | None:
        """What is known of a recipe. A trial that failed in an earlier run is worth another try."""
        return self._known.get(recipe.digest)

    def record_baseline(
        self, score: Score, evaluator: Identity | None, memory: Any = None, pieces: Any = None
    ) -> None:
        self.baseline, self.evaluator, self.memory = score, evaluator, memory
        entry = {
            "kind": "baseline",
            "score": score.to_json(),
            "evaluator": None if evaluator is None else evaluator.to_json(),
            "run": key_of(self.fingerprint),
            **({} if memory is None else {"memory": memory}),
        }
        self._append({**entry, **self._kept_pieces("", pieces)})

    def record_interval(self, recipe: Recipe, interval: Mapping[str, Any]) -> None:
        self.intervals[recipe.digest] = dict(interval)
        self._append({"kind": "interval", "digest": recipe.digest, "interval": dict(interval)})

    def forget(self, which: Callable[[Recipe], bool]) -> None:
        """What these were made from is no more: they are tried again."""
        gone = [digest for digest, trial in self._known.items() if which(trial.recipe)]
        if gone:
            self._append({"kind": "forget", "digests": gone})
        for digest in gone:
            del self._known[digest]

    def begin_another(self) -> Path:
        """The scores here are another evaluation's: they are kept aside, and none is left."""
        aside = _keep_aside(self.path, f"{key_of(self.fingerprint)}-other-evaluation")
        self._forget()
        self._append(self._header())
        sync_folder(self.path.parent)
        return aside

    def _kept_pieces(self, digest: str, pieces: Any) -> dict[str, Any]:
        raw = pieces.to_json() if isinstance(pieces, MeanPieces) else None
        if raw is None:
            return {}
        self.pieces[digest] = pieces
        return {"pieces": raw}

    def is_deadly(self, recipe: Recipe) -> bool:
        """Has the process died in it so often that it is not tried again?"""
        return self._begun.get(recipe.digest, 0) >= LAST

    def is_suspect(self, recipe: Recipe) -> bool:
        """Has the process died in it, more often than chance would have it?"""
        return self._begun.get(recipe.digest, 0) >= DEATHS

    def begin(self, number: int, recipe: Recipe, apart: bool = False) -> None:
        """Written before the work: a crash of the process is then known to a rerun.

        `apart`: the work is done in another process, whose crash is a failed trial and no more.
        If this one dies meanwhile, the recipe is not to blame.
        """
        if apart:
            return
        self._begun[recipe.digest] = self._begun.get(recipe.digest, 0) + 1
        self._append({"kind": "begin", "number": number, "digest": recipe.digest})

    def leave(self, digests: Iterable[str]) -> None:
        """These were begun and given up on purpose: nobody died."""
        left = sorted(digests)
        for digest in left:
            self._begun.pop(digest, None)
        if left:
            self._append({"kind": "leave", "digests": left})

    def append(self, trial: Trial, pieces: Any = None) -> None:
        """`pieces`: its scores by sample, of one that may be the best."""
        self.trials.append(trial)
        self._learn(trial)
        self._settle(trial)
        entry = {"kind": "trial", "run": key_of(self.fingerprint), **trial.to_json()}
        self._append({**entry, **self._kept_pieces(trial.recipe.digest, pieces)})

    def adopt(self, other: History) -> None:
        """Take over what another journal of the same run knows (`workspace.resume`)."""
        differing = differences(other.fingerprint, self.fingerprint)
        if differing:
            self.notes.append(f"{other.path} is not resumed: {'; '.join(differing)}")
            return
        if self.baseline is None and other.baseline is not None:
            pieces = other.pieces.get("")
            self.record_baseline(other.baseline, other.evaluator, other.memory, pieces)
        elif self.baseline is not None and other.baseline is not None:
            here, there = self.baseline.accuracy, other.baseline.accuracy
            if not math.isclose(here, there, rel_tol=1e-6, abs_tol=1e-12):
                self.notes.append(
                    f"{other.path} is not resumed: FP32 scored {there:.6g} there and {here:.6g} "
                    "here, so its evaluation was another one"
                )
                return
        for trial in other.trials:
            if trial.state is State.DONE and self.recall(trial.recipe) is None:
                pieces = other.pieces.get(trial.recipe.digest)
                self.append(replace(trial, number=len(self.trials) + 1), pieces)

    # -- lines -------------------------------------------------------------------------------

    def _begin_or_return(self) -> None:
        """A fresh journal, or the one of this very run that another had put aside."""
        aside = _aside(self.path, key_of(self.fingerprint))
        if aside.is_file() and not self.path.exists():
            aside.replace(self.path)
            found = self._replay_file()
            if found.is_of(self.fingerprint):
                self.notes.append(f"this run's own history, kept as {aside.name}, is resumed")
                self._mend(found)
                return
            self._forget()
            _keep_aside(self.path, "unreadable")
        if self.notes:
            self.notes.append("a new history is started")
        self._append(self._header())
        sync_folder(self.path.parent)

    def _header(self) -> dict[str, Any]:
        header = {"kind": "header", "format": FORMAT, "fingerprint": self.fingerprint}
        return {**header, "info": self.info}

    def _replay_file(self, anyone: bool = False) -> Found:
        """Take in the sound lines of the file, one at a time: it may be of a hundred thousand
        trials. Nothing is taken from another run's, unless `anyone` says so."""
        self._forget()
        found = Found(None if anyone else key_of(self.fingerprint))
        if not self.path.exists():
            return found
        try:
            with open_regular(self.path) as stream, no_garbage():
                for number, raw in enumerate(stream, start=1):
                    if raw.strip(b"\n"):
                        self._take_in(number, raw, found)
                        if found.is_foreign:
                            break
        except OSError as error:
            raise WorkspaceError(
                f"{self.path}: can't read the history ({error.strerror}): move it away, or choose "
                "another workspace"
            ) from error
        return found

    def _take_in(self, number: int, raw: bytes, found: Found) -> None:
        entry = read_line(raw)
        if isinstance(entry, str):
            found.bad[number] = entry
            return
        found.lines += 1
        found.ends_whole = raw.endswith(b"\n")
        try:
            if entry["kind"] == "header":
                found.header(entry)
                if found.header_is_sound and not self.info:
                    self.info = dict(entry.get("info", {}))
                return
            found.line(entry)
            self._replay(entry)
        except DAMAGE:
            found.bad[number] = "can't be understood"

    def _forget(self) -> None:
        self.baseline, self.evaluator, self.memory = None, None, None
        self.trials, self._known, self._begun = [], {}, {}
        self.pieces, self.intervals = {}, {}

    def _mend(self, found: Found) -> None:
        """Nothing half is left for the next line to run into; what is dropped is kept aside."""
        if found.bad or not found.header_is_sound:
            self._set_damage_aside(found)
        elif not found.ends_whole:
            # A crash cut off the line's end and nothing else: the next line must not run into it.
            with self.path.open("ab") as stream:
                stream.write(b"\n")

    def _append(self, entry: Mapping[str, Any]) -> None:
        if os.getpid() != self._process:
            raise HistoryError(
                f"process {os.getpid()} was forked by eval_func and returned from it: the tuning "
                f"belongs to process {self._process}; end the child with os._exit"
            )
        line = make_line(entry)
        try:
            with self.path.open("ab", buffering=0) as stream:
                end = stream.tell()
                try:
                    rest = memoryview(line)
                    while rest:
                        rest = rest[stream.write(rest) :]
                    os.fsync(stream.fileno())
                except OSError:
                    # Half a line, on a disk that is full, is none that another may run into.
                    os.ftruncate(stream.fileno(), end)
                    raise
        except OSError as error:
            raise WorkspaceError(
                f"{self.path}: can't write the history ({error.strerror})"
            ) from error
        self._copy(line)

    def _replay(self, entry: Mapping[str, Any]) -> None:
        if entry["kind"] == "baseline":
            self.baseline = Score.from_json(entry["score"])
            self.evaluator = Identity.from_json(entry.get("evaluator"))
            self.memory = entry.get("memory")
            self._take_pieces("", entry)
        elif entry["kind"] == "begin":
            self._begun[entry["digest"]] = self._begun.get(entry["digest"], 0) + 1
        elif entry["kind"] == "leave":
            for digest in entry["digests"]:
                self._begun.pop(digest, None)
        elif entry["kind"] == "forget":
            for digest in entry["digests"]:
                self._known.pop(digest, None)
        elif entry["kind"] == "interval":
            self.intervals[str(entry["digest"])] = dict(entry["interval"])
        elif entry["kind"] == "trial":
            trial = Trial.from_json(entry)
            if type(entry["digest"]) is not str:
                raise ValueError("a digest is not text")
            # Known from the line, whose checksum was right: making it anew would take the time of
            # all the rest.
            trial.recipe.__dict__["digest"] = entry["digest"]
            self.trials.append(trial)
            self._settle(trial)
            self._learn(trial)
            self._take_pieces(entry["digest"], entry)

    def _take_pieces(self, digest: str, entry: Mapping[str, Any]) -> None:
        if "pieces" in entry:
            self.pieces[digest] = MeanPieces.from_json(entry["pieces"])

    def _learn(self, trial: Trial) -> None:
        if trial.state is State.DONE:
            self._known[trial.recipe.digest] = trial
        else:  # what was evaluated and could not be saved, too
            self._known.pop(trial.recipe.digest, None)

    def _settle(self, trial: Trial) -> None:
        # What is failed because of its deaths stays so; anything else ended by itself.
        if trial.error is None or not trial.error.startswith(ProcessDied.__name__):
            self._begun.pop(trial.recipe.digest, None)

    def _set_damage_aside(self, found: Found) -> None:
        aside = _keep_aside(self.path, "damaged")
        draft = beside(self.path)
        with aside.open("rb") as old, draft.open("wb") as new:
            if not found.header_is_sound:
                new.write(make_line(self._header()))
            for number, raw in enumerate(old, start=1):
                if number not in found.bad and raw.strip(b"\n"):
                    new.write(raw if raw.endswith(b"\n") else raw + b"\n")
            new.flush()
            os.fsync(new.fileno())
        draft.replace(self.path)
        sync_folder(self.path.parent)
        told = found.damage or "the header of the history is lost"
        self.notes.append(
            f"{told}: the undamaged part is used, and the original kept as {aside.name}"
        )


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
