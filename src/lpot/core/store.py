"""Calibration statistics on disk: plain arrays, no samples, no pickle."""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from lpot.core.backend import Observations
from lpot.core.draft import beside, sync_folder
from lpot.core.errors import HistoryError
from lpot.core.histogram import TensorStats
from lpot.core.journal import Fingerprint, key_of

_DAMAGE = (
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    RecursionError,
    NotImplementedError,  # a compression that Python does not know
    MemoryError,
    OSError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
)


def observations_path(folder: Path, fingerprint: Fingerprint) -> Path:
    """Each run's own file: another run in the same workspace must not write over it."""
    return folder / f"observations-{key_of(fingerprint)}.npz"


def save_observations(path: Path, observations: Mapping[int, Observations]) -> None:
    """Written beside and renamed, so that a crash leaves the old file or the new one."""
    arrays: dict[str, np.ndarray] = {}
    index: dict[str, dict[str, object]] = {}
    for size, item in observations.items():
        names = list(item.tensors)
        index[str(size)] = {"samples": item.samples, "tensors": names, "extra": list(item.extra)}
        for number, name in enumerate(names):
            arrays[f"{size}/{number}"] = item.tensors[name].pack()
        for number, value in enumerate(item.extra.values()):
            arrays[f"{size}/extra/{number}"] = np.asarray(value)
    arrays["index"] = np.frombuffer(json.dumps(index).encode(), np.uint8)
    draft = beside(path)
    try:
        with draft.open("wb") as stream:
            np.savez_compressed(stream, **arrays)  # type: ignore[arg-type]
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def load_observations(path: Path) -> dict[int, Observations]:
    if not path.is_file():
        raise HistoryError(
            f"{path}: the calibration statistics are missing beside the history, so the trial "
            "can't be rebuilt: run the tuning again, its trials will be recalled"
        )
    try:
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            index = json.loads(arrays["index"].tobytes())
            return {int(size): _one(arrays, size, item) for size, item in index.items()}
    except _DAMAGE as error:
        raise HistoryError(
            f"{path}: damaged ({error}): delete it and run the tuning again, its trials will be "
            "recalled"
        ) from error


def _one(
    arrays: Mapping[str, np.ndarray], size: str, item: Mapping[str, list[str]]
) -> Observations:
    tensors = {
        name: TensorStats.unpack(arrays[f"{size}/{number}"])
        for number, name in enumerate(item["tensors"])
    }
    extra = {name: arrays[f"{size}/extra/{number}"] for number, name in enumerate(item["extra"])}
    return Observations(int(item["samples"]), tensors, extra=extra)  # type: ignore[call-overload]
