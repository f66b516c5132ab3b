"""Files that only save work: used if they can be read, kept if they can be written."""

from __future__ import annotations

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from lpot.core.card import write_text
from lpot.core.regular import read_regular

logger = logging.getLogger(__name__)

Found = TypeVar("Found")
# What reading a damaged or foreign JSON value may raise.
UNUSABLE = (ValueError, KeyError, TypeError, IndexError, AttributeError, RecursionError)


def recall(place: Path, read: Callable[[Any], Found]) -> Found | None:
    """What `read` makes of the file; None if there is none yet, or one that can't be used."""
    try:
        return read(json.loads(read_regular(place)))
    except (OSError, *UNUSABLE):
        return None


def keep(place: Path, value: Any, what: str) -> None:
    try:
        place.parent.mkdir(parents=True, exist_ok=True)
        write_text(place, json.dumps(value) + "\n")
    except OSError as error:
        logger.info("%s: %s not kept (%s)", place, what, error.strerror)
