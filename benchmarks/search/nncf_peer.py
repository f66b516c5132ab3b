"""Contestant: NNCF's quantization with accuracy control. Runs in an environment of its own."""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import nncf
import numpy as np
import onnx
from race import RELATIVE, Race, model_path


def main(name: str, output: str) -> dict[str, object]:
    race = Race()
    model = onnx.load(str(model_path(name)))
    feed = model.graph.input[0].name
    calibration = nncf.Dataset([{feed: batch} for batch in race.calibration()])
    # Items are numbers of images: which of them it asks for is what it evaluates.
    validation = nncf.Dataset(list(range(len(race.images))))

    def validate(candidate: Any, items: Any) -> tuple[float, list[float]]:
        right = race.right(candidate, np.array(list(items)))
        return float(right.mean()), right.astype(float).tolist()

    start = time.process_time()
    try:
        best = nncf.quantize_with_accuracy_control(
            model,
            calibration,
            validation,
            validate,
            max_drop=RELATIVE,
            drop_type=nncf.DropType.RELATIVE,
        )
    finally:
        spent = time.process_time() - start
    evaluations, samples = race.evaluations, race.samples
    onnx.save(best, output)
    accuracy, bar = race.score(output), race.score(model) * (1 - RELATIVE)
    return {
        "met": accuracy >= bar,
        "accuracy": accuracy,
        "evaluations": evaluations,
        "samples": samples,
        "cpu": spent,
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
