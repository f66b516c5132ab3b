"""Contestant: ONNX Runtime's own quantizer, as its guide has it: preprocessed, static, QDQ.

It looks at no accuracy: the model it gives is evaluated once.
"""

from __future__ import annotations

import json
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static
from onnxruntime.quantization.shape_inference import quant_pre_process
from race import RELATIVE, Race, make_session, model_path

KINDS = {"u8s8": QuantType.QUInt8, "s8s8": QuantType.QInt8}


class Reader(CalibrationDataReader):
    def __init__(self, name: str, batches: list[np.ndarray]) -> None:
        self._feeds: Iterator[dict[str, np.ndarray]] = iter([{name: batch} for batch in batches])

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def main(name: str, output: str, kind: str = "u8s8") -> dict[str, object]:
    race, path = Race(), model_path(name)
    feed = make_session(path).get_inputs()[0].name
    start = time.process_time()
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.onnx"
        quant_pre_process(str(path), str(ready))
        quantize_static(
            str(ready),
            output,
            Reader(feed, race.calibration()),
            quant_format=QuantFormat.QDQ,
            activation_type=KINDS[kind],
            weight_type=QuantType.QInt8,
            per_channel=True,
        )
    accuracy = race.score(output)
    spent = time.process_time() - start
    evaluations, samples = race.evaluations, race.samples
    bar = race.score(path) * (1 - RELATIVE)
    return {
        "met": accuracy >= bar,
        "accuracy": accuracy,
        "evaluations": evaluations,
        "samples": samples,
        "cpu": spent,
    }


if __name__ == "__main__":
    print(json.dumps(main(*sys.argv[1:])))
