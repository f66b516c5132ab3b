"""An error nobody foresaw, in one line: whose code it came from decides what is said; and an end
of the process that nobody would notice."""

from __future__ import annotations

import os
import sys
import traceback
from pathlib import Path
from typing import NoReturn

from lpot.cli.output import INTERNAL, WRONG_CALL
from lpot.core.blame import blamed, told


def unexpected(error: Exception, verbose: bool) -> tuple[str, int]:
    """Say it on stderr, and return it with the exit status: a wrong call's when the user's own
    code raised."""
    frame, is_theirs = blamed(error)
    what = f"{type(error).__name__}: {told(error)}"
    if is_theirs and frame is not None:
        text, status = (
            f"error: {frame.filename}:{frame.lineno}: your code raised {what}",
            WRONG_CALL,
        )
    else:
        place = "" if frame is None else f" ({Path(frame.filename).name}:{frame.lineno})"
        text, status = f"internal error: {what}{place}", INTERNAL
    if verbose:
        traceback.print_exception(error)
    hint = "" if verbose else "\nrun with -v for the traceback"
    sys.stderr.write(f"{text}{hint}\n")
    return text, status


def refuse_silent_exits() -> None:
    """`os._exit(0)` in the user's code must not look like a tuning that went well."""
    leave, ours = os._exit, os.getpid()

    def leave_loudly(status: int) -> NoReturn:
        if status == 0 and os.getpid() == ours:  # a child that the user's code forked may
            sys.stderr.write(
                "error: your code called os._exit(0), which ends the program before there is a "
                "result: let it return\n"
            )
            sys.stderr.flush()
            status = WRONG_CALL
        leave(status)

    os._exit = leave_loudly
