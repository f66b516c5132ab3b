"""Files a user names: found or refused with what is expected where, and read as text or json."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from lpot.core.errors import DataError


def existing(path: str | Path, what: str) -> Path:
    """The path, which must be there."""
    found = Path(path).expanduser()
    if not found.exists():
        raise DataError(f"{found}: no such {what}")
    return found


def existing_folder(path: str | Path, what: str = "folder") -> Path:
    """The path, which must be a folder."""
    found = existing(path, what)
    if not found.is_dir():
        raise DataError(f"{found}: is a file, expected a {what}")
    return found


def existing_file(path: str | Path, what: str) -> Path:
    """The path, which must be a file."""
    found = existing(path, what)
    if found.is_dir():
        raise DataError(f"{found}: is a folder, expected a {what}")
    return found


def read_text(path: Path) -> str:
    """The text of a file in UTF-8, with or without a mark at its start."""
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        line = path.read_bytes()[: error.start].count(b"\n") + 1
        raise DataError(f"{path}:{line}: is not UTF-8 text: {error.reason}") from error
    except OSError as error:
        raise DataError(f"{path}: can't be read: {error.strerror or error}") from error


def read_json(path: Path) -> Any:
    """The content of a json file."""
    try:
        return json.loads(read_text(path))
    except ValueError as error:
        raise DataError(f"{path}: is not json: {error}") from error
    except RecursionError as error:
        raise DataError(f"{path}: is not usable json: it is nested too deeply") from error


def not_found(
    name: str, root: str | Path, expected: list[str], source: str, download: bool = False
) -> DataError:
    """The error for missing files: what is expected where, and how to get it."""
    lines = " or ".join(str(Path(root) / item) for item in expected)
    silent = "lpot does not download anything. " if download else ""
    return DataError(f"{name}: nothing found under {root}; expected {lines}. {silent}{source}")
