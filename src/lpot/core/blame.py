"""Whose code raised: an error is of use when it says the line to look at."""

from __future__ import annotations

import linecache
import sysconfig
import traceback
from pathlib import Path

OURS = Path(__file__).resolve().parents[1]
LIBRARIES = tuple(Path(path).resolve() for path in set(sysconfig.get_paths().values()))


def blamed(error: BaseException) -> tuple[traceback.FrameSummary | None, bool]:
    """The innermost frame that is ours or the user's, and whether it is the user's.

    What a library raises is the fault of whoever called it.
    """
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        if not path.exists():
            if _is_cell(frame):
                return frame, True
            continue
        path = path.resolve()
        if path.is_relative_to(OURS):
            return frame, False
        if not any(path.is_relative_to(folder) for folder in LIBRARIES):
            return frame, True
    return None, False


def raised(error: BaseException) -> str:
    """What was raised, with the line of the user's code that did it.

    >>> raised(ValueError("no such label"))
    'ValueError: no such label'
    """
    what = f"{type(error).__name__}: {error}"
    frame, is_theirs = blamed(error)
    if frame is None or not is_theirs:
        return what
    place = f"line {frame.lineno} of a cell" if _is_cell(frame) else _place(frame)
    return f"{what} ({place}: {frame.line})" if frame.line else f"{what} ({place})"


def _place(frame: traceback.FrameSummary) -> str:
    path = Path(frame.filename)
    near = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    return f"{near}:{frame.lineno}"


def _is_cell(frame: traceback.FrameSummary) -> bool:
    """A notebook's cell has lines but no file."""
    known = linecache.getline(frame.filename, frame.lineno or 0)
    return bool(known) and not Path(frame.filename).exists()
