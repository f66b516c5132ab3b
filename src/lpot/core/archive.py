"""Archives that would unpack to far more than they are: refused before anything is unpacked."""

from __future__ import annotations

import zipfile
from pathlib import Path

LARGE = 256 << 20  # bytes, up to which nobody minds
RATIO = 100  # to which no weights or statistics can be packed


def check_archive(path: Path) -> None:
    """Raises ValueError for a zip (npz, keras) with a member that is a bomb; others pass."""
    if not zipfile.is_zipfile(path):
        return
    with zipfile.ZipFile(path) as archive:
        for item in archive.infolist():
            if item.file_size > max(LARGE, RATIO * item.compress_size):
                raise ValueError(
                    f"{item.filename!r} in it would unpack from {item.compress_size} to "
                    f"{item.file_size} bytes"
                )
