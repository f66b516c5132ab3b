"""Files that come back from a disk are foreign: their shape is checked before they are believed."""

from __future__ import annotations

import errno
import json
import os
import stat
import zipfile
from io import BufferedReader
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pydantic import TypeAdapter, ValidationError

from lpot.core.errors import HistoryError, LpotError

Value = TypeVar("Value")

LARGEST = 1 << 30  # bytes: no JSON of ours comes near


def read_json(path: Path, advice: str, error: type[LpotError] = HistoryError) -> Any:
    """What a JSON file holds; `advice` says what to do when it can't be read."""
    try:
        with open_regular(path) as stream:
            raw = stream.read(LARGEST + 1)
        if len(raw) > LARGEST:
            raise error(f"{path}: larger than {LARGEST >> 20} MiB, too large for a file of lpot")
        return json.loads(raw)
    except OSError as failure:
        raise error(f"{path}: can't be read ({failure.strerror}): {advice}") from failure
    except (ValueError, RecursionError) as failure:
        raise error(f"{path}: damaged, not valid JSON ({_short(failure)}): {advice}") from failure


def checked(
    kind: type[Value],
    raw: Any,
    where: Path | str,
    advice: str,
    error: type[LpotError] = HistoryError,
) -> Value:
    """`raw` as a `kind` (a dataclass, usually). What it does not know is left out."""
    try:
        # As JSON, where a list may be a tuple and nothing else is taken for what it is not.
        found: Value = _adapter(kind).validate_json(_as_json(raw), strict=True)
        return found
    except ValidationError as failure:
        first = failure.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        told = f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}"
        raise error(f"{where}: damaged ({told}): {advice}") from failure


def damaged_fields(kind: type[Any], raw: Any) -> list[str]:
    """The fields of `raw` that are not what a `kind` holds there."""
    try:
        _adapter(kind).validate_json(_as_json(raw), strict=True)
    except ValidationError as failure:
        errors = failure.errors(include_url=False, include_input=False)
        return sorted({str(error["loc"][0]) for error in errors if error["loc"]})
    return []


def _as_json(raw: Any) -> bytes:
    """Half a character, which no JSON has, must not keep the rest from being looked at."""
    return json.dumps(raw, ensure_ascii=False).encode("utf-8", "replace")


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def _short(failure: Exception) -> str:
    return str(failure).splitlines()[0][:120] if str(failure) else type(failure).__name__


# -- Files that are opened as files: a pipe would be waited for, a device never ends.


def open_regular(path: Path) -> BufferedReader:
    """`path` for reading bytes; OSError for what is no file, before a byte is read of it."""
    handle = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    if not stat.S_ISREG(os.fstat(handle).st_mode):
        os.close(handle)
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return os.fdopen(handle, "rb")


def read_regular(path: Path) -> bytes:
    with open_regular(path) as stream:
        return stream.read()


# -- Archives that would unpack to far more than they are: refused before anything is unpacked.


LARGE = 256 << 20  # bytes, up to which nobody minds
LARGEST_FILE = 1 << 30  # bytes of one file of a dataset, unpacked
RATIO = 100  # to which no weights or statistics can be packed


def check_archive(path: Path) -> None:
    """Raises ValueError for a zip (npz, keras) with a member that is a bomb; others pass."""
    try:
        if not zipfile.is_zipfile(path):  # which may raise, too, where the end is damaged
            return
        with zipfile.ZipFile(path) as archive:
            members = archive.infolist()
    except zipfile.BadZipFile as error:
        raise ValueError(f"it is damaged: {error}") from error
    for item in members:
        if item.file_size > max(LARGE, RATIO * item.compress_size):
            raise ValueError(
                f"{item.filename!r} in it would unpack from {item.compress_size} to "
                f"{item.file_size} bytes"
            )


class Readable(Protocol):
    def read(self, size: int, /) -> bytes: ...


def unpacked(stream: Readable) -> bytes:
    """All of a stream that is unpacked while it is read; ValueError where it has no end."""
    found = stream.read(LARGEST_FILE + 1)
    if len(found) > LARGEST_FILE:
        raise ValueError(f"it would unpack to more than {LARGEST_FILE >> 20} MiB")
    return found
