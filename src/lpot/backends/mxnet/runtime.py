"""MXNet itself, imported once, with its chatter off and its trouble told."""

from __future__ import annotations

import contextlib
import logging
import os
import re
import sys
import tempfile
from collections.abc import Iterator

import numpy as np

# One line on stderr per executor says that the fusions are on; every trial makes one.
os.environ.setdefault("MXNET_SUBGRAPH_VERBOSE", "0")

try:
    import mxnet as mx
    from mxnet.base import MXNetError
    from mxnet.contrib import quantization
except AttributeError as error:  # numpy dropped `np.bool`, which MXNet's last release needs
    raise ImportError(
        f"MXNet 1.9.1 needs numpy below 1.24, but this is {np.__version__}: "
        'pip install mxnet==1.9.1 "numpy<1.24" in an environment of its own, and name its '
        "interpreter in LPOT_MXNET_PYTHON for the command line"
    ) from error

__all__ = ["BACKEND", "CPU", "MXNetError", "first_line", "hushed", "mx", "quantization"]

# Time, source position, and the boilerplate of failed checks.
_NOISE = re.compile(r"\[\d\d:\d\d:\d\d\] \S+?:\d+: |Check failed: ")

BACKEND = "MKLDNN_QUANTIZE"  # the name of oneDNN's fusions for INT8
CPU = mx.cpu()

logger = logging.getLogger(__name__)


@contextlib.contextmanager
def hushed() -> Iterator[None]:
    """What MXNet's C++ code writes to stderr becomes debug lines of the log.

    Its quantization pass remarks on every op that it leaves alone, in every trial.
    """
    if sys.stderr is not None:
        sys.stderr.flush()
    with tempfile.TemporaryFile() as aside:
        kept = os.dup(2)
        os.dup2(aside.fileno(), 2)
        try:
            yield
        finally:
            os.dup2(kept, 2)
            os.close(kept)
            aside.seek(0)
            for line in aside.read().decode(errors="replace").splitlines():
                logger.debug("%s", line)


def first_line(error: BaseException) -> str:
    """What went wrong, without MXNet's stack of C++ addresses and source positions."""
    text = _NOISE.sub(" ", str(error).partition("Stack trace")[0])
    lines = [line.strip() for line in text.splitlines()]
    # A Python traceback, when MXNet calls back: what counts is at its end.
    told = [line for line in lines if line and not line.startswith(("Traceback", "File "))]
    return told[0].removeprefix("MXNetError: ").strip() if told else type(error).__name__
