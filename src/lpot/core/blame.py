"""Whose code raised: an error is of use when it says the line to look at."""

from __future__ import annotations

import contextlib
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


def told(error: BaseException) -> str:
    """What an error says, as text that can be written; it may be the user's, and say nothing."""
    # As the interpreter tells it in the end: one that can't be put into words is said to be so.
    text = str(traceback.TracebackException(Exception, error, None))
    return text.encode("utf-8", "replace").decode()  # half a character can't be written


def raised(error: BaseException) -> str:
    """What was raised, with the line of the user's code that did it.

    >>> raised(ValueError("no such label"))
    'ValueError: no such label'
    """
    what = f"{type(error).__name__}: {told(error)}"
    frame, is_theirs = blamed(error)
    if frame is None or not is_theirs:
        return what
    place = f"line {frame.lineno} of a cell" if _is_cell(frame) else _place(frame)
    return f"{what} ({place}: {frame.line})" if frame.line else f"{what} ({place})"


def _place(frame: traceback.FrameSummary) -> str:
    path = Path(frame.filename)
    with contextlib.suppress(OSError, ValueError):  # below another folder, or one that is gone
        path = path.relative_to(Path.cwd())
    return f"{path}:{frame.lineno}"


def _is_cell(frame: traceback.FrameSummary) -> bool:
    """A notebook's cell has lines but no file."""
    known = linecache.getline(frame.filename, frame.lineno or 0)
    return bool(known) and not Path(frame.filename).exists()
