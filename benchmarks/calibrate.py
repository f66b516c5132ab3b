"""A child of the calibration section: calibrates once and tells CPU seconds and peak memory."""

from __future__ import annotations

import json
import sys
import tempfile
import time
from pathlib import Path

import ours
import peers
from models import NETS

from lpot.jobs.benchmark.contestant import peak_memory


def main(who: str, name: str, samples: int) -> dict[str, float]:
    net = NETS[name]
    start = time.process_time()  # of all threads together
    with tempfile.TemporaryDirectory() as folder:
        if who == "ours":
            ranges = ours.calibrate(net, samples)
        else:
            ranges = peers.calibrate(net, samples, Path(folder))
    return {
        "cpu_seconds": time.process_time() - start,
        "peak_memory": peak_memory(),
        "ranges": ranges,
    }


if __name__ == "__main__":
    print(json.dumps(main(sys.argv[1], sys.argv[2], int(sys.argv[3]))))
