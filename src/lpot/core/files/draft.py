"""Files written whole or not at all, and what a killed process leaves of them.

Everything half-written carries the number of the process that writes it in its name. Only such
names are ever swept, and only once that process is gone: a workspace may be anybody's folder.
"""

from __future__ import annotations

import contextlib
import logging
import os
import re
import secrets
import shutil
from collections.abc import Iterator
from pathlib import Path

logger = logging.getLogger(__name__)

_FOLDER = re.compile(r"\.lpot-draft-(\d{1,10})-[0-9a-f]{8}")
_FILE = re.compile(r"\..+\.lpot-(\d{1,10})-tmp")


@contextlib.contextmanager
def draft_folder(inside: Path) -> Iterator[Path]:
    """A folder for pieces that are still being written; gone when the block ends."""
    sweep(inside)
    folder = inside / f".lpot-draft-{os.getpid()}-{secrets.token_hex(4)}"
    folder.mkdir()
    for_owner(folder, 0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def is_draft(name: str) -> bool:
    """Is this the name of something half-written?"""
    return bool(_FOLDER.fullmatch(name) or _FILE.fullmatch(name))


def beside(path: Path) -> Path:
    """Where to write a file that will be renamed to `path`."""
    return path.with_name(f".{path.name}.lpot-{os.getpid()}-tmp")


def write_bytes(path: Path, raw: bytes) -> None:
    """Whole or not at all: written beside, synced, then renamed over."""
    draft = beside(path)
    try:
        with draft.open("wb") as stream:
            stream.write(raw)
            stream.flush()
            os.fsync(stream.fileno())
        for_owner(draft, 0o600)
        draft.replace(path)
    except IsADirectoryError as error:
        raise OSError(error.errno, f"{path.name} is a folder: move it away") from error
    finally:
        with contextlib.suppress(OSError):
            draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def for_owner(path: Path, mode: int) -> None:
    """Whatever mask eval_func has set: what is made here must be of use to who made it."""
    now = path.stat().st_mode & 0o777
    if now & mode != mode:
        path.chmod(now | mode)


def write_text(path: Path, text: str) -> None:
    """Half a character, of a name that is not UTF-8, is written as JSON escapes it."""
    write_bytes(path, text.encode("utf-8", "backslashreplace"))


def sync_folder(folder: Path) -> None:
    """A new or renamed file is safe from a power cut only when its folder is synced, too."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def sweep(folder: Path, ours: bool = False) -> None:
    """Remove the drafts of processes that are gone: each may be as big as the model.

    `ours`: those with this process's number, too, which an earlier one may have had (in a
    container all have the same). Only who holds the folder's lock can know that they are old.
    """
    try:
        found = list(folder.iterdir())
    except OSError:
        return
    for left in found:
        match = _FOLDER.fullmatch(left.name) or _FILE.fullmatch(left.name)
        if match is None:
            continue
        number = int(match.group(1))
        is_left = ours if number == os.getpid() else not is_alive(number)
        if not is_left:
            continue
        logger.info("removing %s, left behind by a run that crashed", left)
        with contextlib.suppress(OSError):
            if left.is_dir() and not left.is_symlink():
                shutil.rmtree(left, ignore_errors=True)
            else:
                left.unlink(missing_ok=True)


def is_alive(number: int) -> bool:
    """Is there a process of this number? Those of other users count, the dead do not."""
    if number <= 0:
        return False
    try:
        os.kill(number, 0)
    except PermissionError:
        return True
    except (OSError, OverflowError):
        return False
    return True
