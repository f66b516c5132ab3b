"""Mutates files of some kinds and opens each: an LpotError or nothing may come out.

    fuzz_driver.py FOLDER SEED KIND COUNT [KIND COUNT …]

A process of its own, for a damaged model may take the whole interpreter with it.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import os
import random
import sys
import traceback
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

from faults import kinds_data as data
from faults import kinds_decoder as decoder
from faults import kinds_models as models
from faults import kinds_workspace as workspace
from faults.mutations import mutated
from lpot.core.errors import LpotError

KINDS: dict[str, tuple[Callable[[Path], tuple[Path, Callable[[], Any]]], bool]] = {
    "yaml": (workspace.yaml, False),
    "onnx": (models.onnx, False),
    "pb": (models.pb, False),
    "saved_model.pb": (models.saved_model, False),
    "keras": (models.keras, False),
    "h5": (models.h5, False),
    "safetensors": (models.safetensors, False),
    "lpot.json": (models.lpot_json, True),
    "pruned folder": (models.pruned, True),
    "best_configure.yaml": (models.configure, False),
    "best_model_weights.pt": (models.weights, False),
    "transformers config": (models.transformers_config, True),
    "card": (workspace.card, True),
    "card of a folder": (models.torch_card, True),
    "report.json": (workspace.report, True),
    "result.json": (workspace.result, True),
    "history": (workspace.history, False),
    "matrix.json": (workspace.matrix, True),
    "row of tune-all": (workspace.row, True),
    "observations": (workspace.observations, False),
    "advice": (workspace.advice, True),
    "findings": (workspace.findings, True),
    "progress.json": (workspace.now, True),
    "deploy.yaml": (workspace.deploy, False),
    "lock": (workspace.lock, True),
    "times": (workspace.times, True),
    "lease": (workspace.lease, True),
    "remote card": (workspace.remote_card, True),
    "recipe": (workspace.recipe, True),
    "tfrecord": (data.tfrecord, False),
    "png": (data.image, False),
    "jpeg": (data.jpeg, False),
    "COCO json": (data.coco, True),
    "decoder config": (decoder.config, True),
    "decoder safetensors": (decoder.tensors, False),
    "decoder index": (decoder.index, True),
    "generation config": (decoder.generation, True),
    "tokenizer.json": (decoder.tokenizer, True),
    "GPTQ config": (decoder.gptq_config, True),
    "GPTQ safetensors": (decoder.gptq_tensors, False),
    "rounded weights": (decoder.rounded_weights, False),
    "mxnet symbol": (models.symbol, True),
    "mxnet params": (models.params, False),
}


class Warnings(logging.Handler):
    """Counts what the user would have read."""

    count = 0

    def emit(self, record: logging.LogRecord) -> None:
        self.count += record.levelno >= logging.WARNING


def main(kind: str, root: Path, seed: int, count: int) -> dict[str, Any]:
    maker, is_json = KINDS[kind]
    path, opened = maker(root)
    raw, draw = path.read_bytes(), random.Random(seed)
    opened()
    told = Warnings()
    logging.getLogger("lpot").addHandler(told)
    found: dict[str, Any] = {"refused": 0, "opened": 0, "unnamed": [], "failed": []}
    for number in range(count):
        path.write_bytes(mutated(raw, draw, is_json))
        try:
            with contextlib.redirect_stderr(io.StringIO()):
                opened()
            found["opened"] += 1
        except LpotError as error:
            found["refused"] += 1
            if not str(error).strip():
                found["unnamed"].append(number)
        except BaseException:
            lines = traceback.format_exc().splitlines()
            found["failed"].append(f"{number}: " + " | ".join(line.strip() for line in lines[-5:]))
    path.write_bytes(raw)
    opened()
    return {**found, "warnings": told.count}


if __name__ == "__main__":
    os.fsync = lambda handle: None  # type: ignore[assignment]
    logging.getLogger().addHandler(logging.NullHandler())  # nothing on stderr
    warnings.simplefilter("ignore")
    place, number, *pairs = sys.argv[1:]
    for word, many in zip(pairs[::2], pairs[1::2], strict=True):
        root = Path(place, word)
        root.mkdir()
        print(json.dumps(main(word, root, int(number), int(many))), flush=True)
