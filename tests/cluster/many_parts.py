"""What the models of a matrix are made of, as child processes import it."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from search import scoring

TORN = scoring.net()


class Loader:
    """Tells every time that it was read to its end."""

    batch_size = len(TORN.batches[0][0])

    def __iter__(self) -> Iterator[tuple[Any, None]]:
        for batch in TORN.batches[:-1]:
            yield batch[0], None
        _mark("read")


calib = Loader()


def score(model: Any) -> float:
    _mark("low" if scoring.is_low(model) else "fp32")
    return scoring.score(model)


def slow(model: Any) -> float:
    """Long enough to be interrupted, as long as the file that asks for it is there."""
    if scoring.is_low(model) and (Path(os.environ["MARKS"]) / "slow").exists():
        _mark("sleeping")
        time.sleep(600)
    return scoring.score(model)


def crashing(model: Any) -> float:
    if scoring.is_low(model) and not (Path(os.environ["MARKS"]) / "crashed").exists():
        (Path(os.environ["MARKS"]) / "crashed").touch()
        os.kill(os.getpid(), signal.SIGSEGV)
    return scoring.score(model)


def _mark(word: str) -> None:
    with (Path(os.environ["MARKS"]) / word).open("a") as stream:
        stream.write("x")
