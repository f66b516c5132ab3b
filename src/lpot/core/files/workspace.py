"""The folder of a run: where things lie, who owns it, whether it can be written at all."""

from __future__ import annotations

import contextlib
import errno
import json
import logging
import os
import re
import shutil
import stat
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from lpot.core.errors import ConfigError, WorkspaceBusy, WorkspaceError
from lpot.core.files.draft import is_alive, sweep
from lpot.core.files.untrusted import read_regular

logger = logging.getLogger(__name__)

ROOT = Path("lpot_workspace")
# What stands in a workspace beside the model; an output of such a name would write over it.
KEPT = ("history.jsonl", "lock", "result.json", "report.json", "report.html", "deploy.yaml")
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
        # eval_func may change the working folder, and anybody a link on the way to this one.
        try:
            self.folder = Path(os.path.realpath(_named(Path(folder))))
        except ValueError as error:
            raise WorkspaceError(f"the workspace {str(folder)!r}: {error}") from error

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
        with contextlib.closing(self._open(path)) as held:
            try:
                fcntl.flock(held.handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError as error:
                raise WorkspaceBusy(
                    f"{self.folder}: {_owner(path)} is tuning here: wait for it, stop it, "
                    "or start a separate run with --new-run"
                ) from error
            held.write(json.dumps({"pid": os.getpid()}).encode())
            self._sweep()
            yield

    def _open(self, path: Path) -> _LockFile:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            return _LockFile(path)
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
    if output.name in KEPT:
        raise ConfigError(f"given {output}, a name that lpot uses for its own files", "output")
    if overwrites(output, source):
        raise ConfigError(f"{output} is the FP32 model itself: name another file", "output")
    folder = output if output.is_dir() else output.parent
    try:
        _named(output)
        folder.mkdir(parents=True, exist_ok=True)
        _probe(folder)
    except (OSError, ValueError) as error:
        told = getattr(error, "strerror", None) or error
        raise WorkspaceError(
            f"{str(output)!r}: the model can't be written there ({told}): choose another output"
        ) from error


def _named(path: Path) -> Path:
    """The path, whose name every framework must be able to use."""
    text = str(path)
    if "\0" in text:
        raise ValueError("it contains a null character")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError("its name is not UTF-8, which frameworks can't open") from error
    return path


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
    """Who holds the lock. It says so a moment after it took it: until then nobody is named there,
    or whoever held it before."""
    for pause in (*[0.05] * 10, 0.0):
        number = written_pid(path)
        if number is not None and is_alive(number):
            return f"process {number}"
        time.sleep(pause)
    if number is None:
        return "another process"
    return f"a process that process {number} started before it ended"


def written_pid(path: Path) -> int | None:
    try:
        number = json.loads(read_regular(path))["pid"]
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None
    return number if isinstance(number, int) else None


class _LockFile:
    """An open file whose lock is held as long as anybody has it open.

    A child that eval_func forks, and that lives on, must not hold it: it is closed there. And
    eval_func may close what it did not open, so that the number stands for another file by now.
    """

    def __init__(self, path: Path) -> None:
        # Without waiting, should it be a pipe; it is written to, and a link may lead to any file.
        how = os.O_RDWR | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOFOLLOW
        try:
            self.handle = os.open(path, how, 0o666)
        except OSError as error:
            told = "it is a link: remove it" if path.is_symlink() else error.strerror
            raise OSError(error.errno, told) from error
        state = os.fstat(self.handle)
        self._mark = (state.st_dev, state.st_ino)
        if not stat.S_ISREG(state.st_mode):
            os.close(self.handle)
            raise OSError(errno.EINVAL, "not a regular file: remove it")
        _held.append(self)

    def write(self, raw: bytes) -> None:
        with contextlib.suppress(OSError):  # a full disk; it only tells others who we are
            os.ftruncate(self.handle, 0)
            os.pwrite(self.handle, raw, 0)

    def close(self) -> None:
        """Give up the lock; in a forked child only its own hold on the file."""
        if self in _held:
            _held.remove(self)
            if self._is_ours():
                import fcntl

                fcntl.flock(self.handle, fcntl.LOCK_UN)
                os.close(self.handle)

    def drop(self) -> None:
        with contextlib.suppress(OSError):
            if self._is_ours():
                os.close(self.handle)

    def _is_ours(self) -> bool:
        try:
            state = os.fstat(self.handle)
        except OSError:
            return False
        return (state.st_dev, state.st_ino) == self._mark


_held: list[_LockFile] = []


def _drop_held() -> None:
    while _held:
        _held.pop().drop()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_drop_held)


def overwrites(output: Path, source: Any) -> bool:
    """Is the output the very file that the model comes from?"""
    given = Path(source) if isinstance(source, str | os.PathLike) else None
    return given is not None and given.exists() and output.exists() and output.samefile(given)
