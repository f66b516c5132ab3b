"""The folder of a run: where things lie, who owns it, whether it can be written at all."""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

from lpot.core.draft import is_alive, sweep
from lpot.core.errors import ConfigError, WorkspaceBusy, WorkspaceError

logger = logging.getLogger(__name__)

ROOT = Path("lpot_workspace")
_URL = re.compile(r"[a-zA-Z][a-zA-Z0-9+.\-]+:/")  # a Path has lost one of the two slashes


def default_folder(framework: str, name: str) -> Path:
    """Framework and name decide, as the tutorials say: running again goes on."""
    return ROOT / safe_name(framework) / safe_name(name)


def safe_name(text: str) -> str:
    """A file name for any text: no separators, no way up, of bounded length."""
    cleaned = re.sub(r"[^\w.\-+ ]", "_", text).strip(". ")
    bounded = cleaned.encode()[:100].decode(errors="ignore").strip(". ")  # disks count bytes
    return bounded or "model"


class Workspace:
    """One folder, locked while in use."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()  # eval_func may change the working folder

    @property
    def history(self) -> Path:
        return self.folder / "history.jsonl"

    @property
    def best(self) -> Path:
        return self.folder / "best"

    @property
    def result(self) -> Path:
        return self.folder / "result.json"

    def check(self, needed: int) -> None:
        """Probe now what would otherwise fail after hours: permission and room."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            _probe(self.folder)
            free = shutil.disk_usage(self.folder).free
        except OSError as error:
            raise WorkspaceError(
                f"{self.folder}: the workspace can't be written ({error.strerror}): "
                "choose another with `tuning.workspace.path` or --workspace"
            ) from error
        if free < needed:
            raise WorkspaceError(
                f"{self.folder}: {free >> 20} MiB are free, but the model needs about "
                f"{needed >> 20} MiB: free some, or choose another disk with --workspace"
            )

    def copy_line(self, line: bytes) -> None:
        """A line was added to the history. Here that is all there is to do."""

    def sync(self) -> None:
        """Files have changed, the best model among them."""

    @contextlib.contextmanager
    def lock(self, note: Callable[[str], None] = lambda text: None) -> Iterator[None]:
        """Held by one process; the system frees it when that process dies, however it dies."""
        path = self.folder / "lock"
        try:
            import fcntl
        except ImportError:
            logger.warning(
                "this system has no file locks: do not run two tunings in %s", self.folder
            )
            yield
            return
        with self._open(path) as stream, _closed_in_forks(stream):
            try:
                fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise WorkspaceBusy(
                    f"{self.folder}: {_owner(path)} is tuning here: wait for it, stop it, "
                    "or start apart from it with --new-run"
                ) from error
            self._sweep()
            stream.seek(0)
            stream.truncate()
            json.dump({"pid": os.getpid()}, stream)
            stream.flush()
            try:
                yield
            finally:
                if not stream.closed:  # as in a child that was forked
                    fcntl.flock(stream, fcntl.LOCK_UN)

    def _open(self, path: Path) -> TextIO:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return path.open("a+", encoding="utf-8")
        except OSError as error:
            raise WorkspaceError(
                f"{path}: the workspace can't be locked ({error.strerror})"
            ) from error

    def _sweep(self) -> None:
        """Drop the drafts of a process that was killed, also those inside of a saved model."""
        sweep(self.folder, ours=True)
        for card in self.folder.glob("*.card.json"):
            sweep(card.with_name(card.name.removesuffix(".card.json")), ours=True)


def check_output(output: Path, source: Any) -> None:
    """Refuse now what could not be written at the end, and what is the FP32 model itself."""
    if _URL.match(str(output)):
        raise ConfigError(
            f"given {output}, a URL: give a file here, and the URL as the workspace, which "
            "keeps the best model as well",
            "output",
        )
    given = Path(source) if isinstance(source, str | os.PathLike) else None
    if given is not None and given.exists() and output.exists() and output.samefile(given):
        raise ConfigError(f"{output} is the FP32 model itself: name another file", "output")
    folder = output if output.is_dir() else output.parent
    try:
        folder.mkdir(parents=True, exist_ok=True)
        _probe(folder)
    except OSError as error:
        raise WorkspaceError(
            f"{output}: the model can't be written there ({error.strerror}): choose another output"
        ) from error


def fresh_folder(folder: Path) -> Path:
    """A sibling that nobody uses: run-2, run-3 … (`--new-run`)."""
    number = 2
    while (candidate := folder.with_name(f"{folder.name}-run{number}")).exists():
        number += 1
    return candidate


def _probe(folder: Path) -> None:
    """Write a file that is gone with the process, however it ends."""
    with tempfile.TemporaryFile(dir=folder) as stream:
        stream.write(b"lpot")


def _owner(path: Path) -> str:
    try:
        number = json.loads(path.read_text("utf-8"))["pid"]
    except (OSError, ValueError, KeyError, TypeError):
        return "another process"
    if isinstance(number, int) and is_alive(number):
        return f"process {number}"
    return f"a process that process {number} started before it ended"


_held: list[TextIO] = []


@contextlib.contextmanager
def _closed_in_forks(stream: TextIO) -> Iterator[None]:
    """A lock is held as long as anybody has its file open: a child that eval_func forks, and that
    lives on, must not hold it."""
    _held.append(stream)
    try:
        yield
    finally:
        if stream in _held:
            _held.remove(stream)


def _close_held() -> None:
    while _held:
        with contextlib.suppress(OSError):
            _held.pop().close()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_close_held)
