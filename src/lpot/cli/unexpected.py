"""An error nobody foresaw, in one line: whose code it came from decides what is said."""

from __future__ import annotations

import sys
import traceback
from pathlib import Path

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
