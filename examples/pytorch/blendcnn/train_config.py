"""What train.json says: read, checked, and told in a sentence where it can't be."""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class TrainConfig:
    """One training. A key that is left out has the value given here."""

    embeddings: str = "models/uncased_L-12_H-768_A-12"
    data_dir: str = "MRPC"
    model_file: str = "models/model_final.pt"
    task: str = "mrpc"
    max_len: int = 128
    channels: int = 100
    layers: int = 8
    kernel: int = 5
    batch_size: int = 32
    learning_rate: float = 1e-3
    epochs: int = 4
    dropout: float = 0.3
    seed: int = 9527

    def __post_init__(self) -> None:
        for name in ("max_len", "channels", "layers", "kernel", "batch_size", "epochs"):
            if getattr(self, name) < 1:
                raise SystemExit(f"error: {name} should be 1 or more, not {getattr(self, name)}")
        if not self.learning_rate > 0:
            raise SystemExit(f"error: learning_rate should be above 0, not {self.learning_rate}")
        if not 0 <= self.dropout < 1:
            raise SystemExit(f"error: dropout should be from 0 to below 1, not {self.dropout}")
        if self.task.lower() != "mrpc":
            raise SystemExit(f"error: task {self.task!r}: this example knows mrpc only")

    @classmethod
    def read(cls, path: Path, given: Mapping[str, Any]) -> TrainConfig:
        """The file's values; those of the command line, where given, win."""
        try:
            raw = json.loads(path.read_text("utf-8"))
        except OSError as error:
            raise SystemExit(f"error: {path} can't be read: {error.strerror}") from error
        except ValueError as error:
            raise SystemExit(f"error: {path} is not json: {error}") from error
        if not isinstance(raw, dict):
            raise SystemExit(f"error: {path} should hold one {{…}}, not a {type(raw).__name__}")
        known = {one.name: type(one.default) for one in fields(cls)}
        for key, value in raw.items():
            _check(path, key, value, known)
        return cls(**raw | {key: value for key, value in given.items() if value is not None})


def _check(path: Path, key: str, value: object, known: Mapping[str, type]) -> None:
    if key not in known:
        near = difflib.get_close_matches(key, known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(known)}"
        raise SystemExit(f"error: {path}: unknown key {key!r}, {hint}")
    wanted = (int, float) if known[key] is float else known[key]
    if isinstance(value, bool) or not isinstance(value, wanted):
        raise SystemExit(
            f"error: {path}: {key} should be of type {known[key].__name__}, not {value!r}"
        )
