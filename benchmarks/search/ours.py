"""Contestant: lpot, as a user calls it."""

from __future__ import annotations

import json
import sys
import tempfile
import time

from race import RELATIVE, Race, model_path

import lpot


def main(name: str, output: str) -> dict[str, object]:
    race = Race()
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        result = lpot.tune(
            str(model_path(name)),
            calib=[(batch,) for batch in race.calibration()],
            evaluate=race.score,
            goal=RELATIVE,
            output=output,
            workspace=folder,
            measure_speed=False,
        )
    return {
        "met": result.met,
        "accuracy": result.accuracy,
        "evaluations": race.evaluations,
        "samples": race.samples,
        "cpu": time.process_time() - start,
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
