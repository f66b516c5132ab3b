"""HDF5 files, which are read in another process before they are read in this one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from lpot.core.errors import UnsupportedModel

PROBE = Path(__file__).with_name("hdf5_probe.py")
SECONDS = 10  # of the CPU, for a small file
BYTES = 10e6  # more that are read in a second
BUSY = 60  # times as long, on a machine that has a lot to do


def check_hdf5(path: Path) -> None:
    """Refuse a file that the HDF5 library does not come to an end with, or that leads out of it."""
    seconds = int(SECONDS + path.stat().st_size / BYTES)
    try:
        done = subprocess.run(
            [sys.executable, "-P", str(PROBE), str(path), str(seconds)],
            capture_output=True,
            text=True,
            errors="replace",
            timeout=BUSY * seconds,
            stdin=subprocess.DEVNULL,
        )
        code = done.returncode
    except subprocess.TimeoutExpired:
        code = -1
    if code == 1:
        told = done.stderr.strip().splitlines()[-1]  # ours, or that of a traceback
        raise UnsupportedModel(f"{path}: not a readable Keras model ({told})")
    if code:
        raise UnsupportedModel(
            f"{path}: damaged, the HDF5 library crashes or hangs on it: restore the file"
        )
