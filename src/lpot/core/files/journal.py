"""The lines of a history: each with a checksum of its own, so that a bad one costs itself alone."""

from __future__ import annotations

import contextlib
import gc
import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from lpot.core.files.untrusted import read_regular

FORMAT = 1
KINDS = ("header", "baseline", "begin", "leave", "trial", "interval", "forget")
CHECK = b', "check": "'
Fingerprint = Mapping[str, str]


@contextlib.contextmanager
def no_garbage() -> Iterator[None]:
    """Millions of small values are made and all are kept: looking for cycles is a waste."""
    was = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was:
            gc.enable()


class Found:
    """What one pass over a file told of it: whose it is, and which lines are bad."""

    def __init__(self, wanted: str | None) -> None:
        self.wanted = wanted  # the key of the run that may go on with it
        self.fingerprint: Fingerprint | None = None
        self.header_is_sound = False
        self.is_foreign = False  # of another run than the one that may go on with it
        self.lines = 0
        self.bad: dict[int, str] = {}
        self.ends_whole = True
        self._is_newer = False
        self._runs: set[Any] = (
            set()
        )  # each line of a result names its run, should the header be lost

    def header(self, entry: Mapping[str, Any]) -> None:
        if entry.get("format") != FORMAT:
            self._is_newer = True
            return
        self.fingerprint = {str(key): str(text) for key, text in entry["fingerprint"].items()}
        self.header_is_sound = True
        self.is_foreign = self.wanted not in (None, key_of(self.fingerprint))

    def line(self, entry: Mapping[str, Any]) -> None:
        if "run" in entry and len(self._runs) < 2:
            self._runs.add(entry["run"])

    def is_of(self, fingerprint: Fingerprint) -> bool:
        if self.header_is_sound:
            return self.fingerprint == dict(fingerprint)
        return self._runs == {key_of(fingerprint)} and not self._is_newer

    @property
    def damage(self) -> str:
        if not self.bad:
            return ""
        first, word = next(iter(self.bad.items()))
        if len(self.bad) == 1:
            return f"line {first} of the history {word}"
        shown = ", ".join(map(str, list(self.bad)[:5])) + (" …" if len(self.bad) > 5 else "")
        return f"{len(self.bad)} lines of the history (line {shown}) are torn or were edited"


def question_of(path: Path) -> Fingerprint | str | None:
    """Whose history lies there: the fingerprint in its header; its key alone where that is
    damaged; None where there is none, or where nobody can tell."""
    with contextlib.suppress(OSError):
        for raw in read_regular(path).splitlines():
            entry = read_line(raw)
            if isinstance(entry, str):
                continue
            if entry["kind"] == "header" and isinstance(entry.get("fingerprint"), Mapping):
                return {str(key): str(text) for key, text in entry["fingerprint"].items()}
            if isinstance(entry.get("run"), str):
                return str(entry["run"])
    return None


def is_of(there: Fingerprint | str, question: Fingerprint) -> bool:
    """Is it a history of this question? A training's outcome has a name of its own, which is no
    part of it."""
    if isinstance(there, str):
        return there == key_of(question)
    return {name: text for name, text in there.items() if name != "training"} == dict(question)


def make_line(entry: Mapping[str, Any]) -> bytes:
    """Keys are sorted, so that the checksum is of the very bytes that are written."""
    text = json.dumps(entry, sort_keys=True, ensure_ascii=False)
    body = text.encode("utf-8", "backslashreplace")  # half a character, as JSON escapes it
    return body[:-1] + CHECK + _hash(body) + b'"}\n'


def read_line(raw: bytes) -> dict[str, Any] | str:
    """The entry of a line, or what is wrong with it."""
    text = raw.rstrip(b"\n")
    try:
        entry = json.loads(text.decode())
        check = entry.pop("check")
        kind = entry["kind"]
    except (ValueError, KeyError, AttributeError, TypeError, RecursionError):
        return "is torn or edited"
    end = text.rfind(CHECK)
    if end > 0 and text[end + len(CHECK) :] == _hash(text[:end] + b"}") + b'"}':
        right = True
    else:  # keys in another order
        right = check == _hash(_sorted(entry)).decode()
    if not right or kind not in KINDS:
        return "was edited"
    assert isinstance(entry, dict)
    return entry


def _sorted(entry: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(entry, sort_keys=True, ensure_ascii=False).encode("utf-8", "replace")
    except (ValueError, TypeError, RecursionError):
        return b""


def _hash(raw: bytes) -> bytes:
    return hashlib.sha256(raw).hexdigest()[:12].encode()


def key_of(fingerprint: Mapping[str, str]) -> str:
    """A run's short name: what belongs to it is kept under this when another run moves in."""
    text = json.dumps(dict(sorted(fingerprint.items())))
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def differences(old: Mapping[str, str], new: Mapping[str, str]) -> list[str]:
    """What makes them two runs, in words."""
    words = {
        "model": "the model differs",
        "config": "the configuration differs",
        "data": "the calibration data differ (a shuffling loader? fix its seed)",
        "versions": "versions differ",
        "pruning": "the pruning or its training data differ",
        "loop": "the training differs",
    }
    keys = sorted({*old, *new})
    return [words.get(key, f"{key} differs") for key in keys if old.get(key) != new.get(key)]
