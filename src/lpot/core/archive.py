"""Archives that would unpack to far more than they are: refused before anything is unpacked."""

from __future__ import annotations

import zipfile
from pathlib import Path
from typing import Protocol

LARGE = 256 << 20  # bytes, up to which nobody minds
LARGEST = 1 << 30  # bytes of one file of a dataset, unpacked
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
    found = stream.read(LARGEST + 1)
    if len(found) > LARGEST:
        raise ValueError(f"it would unpack to more than {LARGEST >> 20} MiB")
    return found
