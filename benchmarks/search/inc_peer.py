"""Contestant: Intel Neural Compressor 2.6. Runs in an environment of its own."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from typing import Any

import onnx
from neural_compressor import PostTrainingQuantConfig, quantization
from neural_compressor.config import AccuracyCriterion, TuningCriterion
from race import BATCH, RELATIVE, Race, model_path

TRIALS = int(os.environ.get("LPOT_INC_TRIALS", "100"))  # its own default


class Loader:
    """Calibration batches in the form it asks for."""

    batch_size = BATCH

    def __init__(self, race: Race) -> None:
        self.race = race

    def __iter__(self) -> Iterator[Any]:
        for batch in self.race.calibration():
            yield batch, 0


def main(name: str, output: str, strategy: str = "auto") -> dict[str, object]:
    race = Race()
    config = PostTrainingQuantConfig(
        quant_level="auto" if strategy == "auto" else 1,
        tuning_criterion=TuningCriterion(
            strategy="basic" if strategy == "auto" else strategy, timeout=0, max_trials=TRIALS
        ),
        accuracy_criterion=AccuracyCriterion(tolerable_loss=RELATIVE),
    )
    start = time.process_time()
    found = quantization.fit(
        onnx.load(str(model_path(name))),
        config,
        calib_dataloader=Loader(race),
        eval_func=race.score,
    )
    spent = time.process_time() - start
    answer = {"evaluations": race.evaluations, "samples": race.samples, "cpu": spent}
    if found is None:
        return {"met": False, "accuracy": None, **answer}
    found.save(output)
    return {"met": True, "accuracy": race.score(output), **answer}


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
