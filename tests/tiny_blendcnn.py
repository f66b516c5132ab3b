"""What the BlendCNN example needs, a few rows and a few thousand weights."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tiny_bert import PYTORCH, script, write_bert, write_glue

FOLDER = PYTORCH / "blendcnn"


def classify() -> Any:
    return script("classify", FOLDER)


def write_config(folder: Path, **more: Any) -> Path:
    """The example's train.json with small sizes, paths inside `folder`."""
    raw = json.loads((FOLDER / "config/blendcnn/mrpc/train.json").read_text("utf-8"))
    raw |= {"max_len": 24, "channels": 8, "layers": 2, "kernel": 3, "epochs": 2, "batch_size": 4}
    raw |= more
    path = folder / "train.json"
    path.write_text(json.dumps(raw), encoding="utf-8")
    return path


def trained(folder: Path) -> Path:
    """Data, embeddings and a trained model_final.pt; gives the folder of the model."""
    embeddings = write_bert(folder / "embeddings")
    write_glue(folder, "MRPC")
    config = write_config(folder, embeddings=str(embeddings))
    classify().main(["--model_config", str(config)])
    return folder / "models"
