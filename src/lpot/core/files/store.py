"""Calibration statistics on disk: plain arrays, no samples, no pickle."""

from __future__ import annotations

import contextlib
import json
import os
import tokenize
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.errors import HistoryError
from lpot.core.files.draft import beside, for_owner, sync_folder
from lpot.core.files.journal import Fingerprint, key_of
from lpot.core.files.untrusted import check_archive
from lpot.core.numerics.histogram import TensorStats
from lpot.core.numerics.observations import Extremes, Named, Observations

_DAMAGE = (
    ValueError,
    KeyError,
    TypeError,
    IndexError,
    AttributeError,
    RecursionError,
    NotImplementedError,  # a compression that Python does not know
    MemoryError,
    tokenize.TokenError,  # NumPy's, of a header that breaks off
    OSError,
    EOFError,
    zipfile.BadZipFile,
    zlib.error,
)
Arrays = Mapping[str, np.ndarray]


def observations_path(folder: Path, fingerprint: Fingerprint) -> Path:
    """Each run's own file: another run in the same workspace must not write over it."""
    return folder / f"observations-{key_of(fingerprint)}.npz"


def save_observations(path: Path, observations: Mapping[int, Observations]) -> None:
    """Written beside and renamed, so that a crash leaves the old file or the new one."""
    arrays: dict[str, np.ndarray] = {}
    index = {str(size): _packed(arrays, str(size), item) for size, item in observations.items()}
    arrays["index"] = np.frombuffer(json.dumps(index).encode(), np.uint8)
    write_arrays(path, arrays, packed=True)


def write_arrays(path: Path, arrays: Arrays, packed: bool = False) -> None:
    """One npz file, whole or not at all."""
    draft = beside(path)
    try:
        with draft.open("wb") as stream:
            (np.savez_compressed if packed else np.savez)(stream, **arrays)  # type: ignore[arg-type]
            stream.flush()
            os.fsync(stream.fileno())
        for_owner(draft, 0o600)
        draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    sync_folder(path.parent)


def _packed(arrays: dict[str, np.ndarray], place: str, item: Observations) -> dict[str, Any]:
    """What the index says of one item, whose arrays lie below its place."""
    parts: dict[str, Mapping[str, np.ndarray]] = {
        "tensors": {name: stats.pack() for name, stats in item.tensors.items()},
        "channels": {name: np.stack([x.low, x.high]) for name, x in item.channels.items()},
        "powers": item.powers,
        "means": item.means,
        "factors": item.factors,
    }
    index: dict[str, Any] = {"samples": item.samples, "own": dict(item.own)}
    for part, found in parts.items():
        index[part] = list(found)
        for number, value in enumerate(found.values()):
            arrays[f"{place}/{part}/{number}"] = np.asarray(value)
    index["shapes"] = {name: list(shape) for name, shape in item.shapes.items()}
    index["bodies"] = {
        name: _packed(arrays, f"{place}/bodies/{number}", body)
        for number, (name, body) in enumerate(item.bodies.items())
    }
    return index


def load_observations(path: Path) -> dict[int, Observations]:
    if not path.is_file():
        raise HistoryError(
            f"{path}: the calibration statistics are missing beside the history, so the trial "
            "can't be rebuilt: run the tuning again, its trials will be reused"
        )
    remedy = "delete it and run the tuning again, its trials will be reused"
    with _read(path, remedy) as arrays:
        index = json.loads(arrays["index"].tobytes())
        return {int(size): _unpacked(arrays, size, item) for size, item in index.items()}


def read_arrays(path: Path, remedy: str) -> dict[str, np.ndarray]:
    """What `write_arrays` wrote."""
    with _read(path, remedy) as arrays:
        return {name: arrays[name] for name in arrays.files}


@contextlib.contextmanager
def _read(path: Path, remedy: str) -> Iterator[Any]:
    """Whatever is wrong with the file comes as one error, with what to do."""
    try:
        check_archive(path)
        with path.open("rb") as stream, np.load(stream, allow_pickle=False) as arrays:
            yield arrays
    except _DAMAGE as error:
        raise HistoryError(f"{path}: damaged ({error}): {remedy}") from error


def _unpacked(arrays: Arrays, place: str, index: Mapping[str, Any]) -> Observations:
    if "extra" in index:
        return _older(arrays, place, index)

    def part(word: str) -> dict[str, np.ndarray]:
        return {name: arrays[f"{place}/{word}/{at}"] for at, name in enumerate(index[word])}

    return Observations(
        int(index["samples"]),
        {name: TensorStats.unpack(value) for name, value in part("tensors").items()},
        channels={name: Extremes(value[0], value[1]) for name, value in part("channels").items()},
        powers=part("powers"),
        means=part("means"),
        factors=part("factors"),
        shapes={name: _sizes(sizes) for name, sizes in index["shapes"].items()},
        bodies={
            name: _unpacked(arrays, f"{place}/bodies/{at}", body)
            for at, (name, body) in enumerate(index["bodies"].items())
        },
        own=_named(index["own"]),
    )


def _named(raw: Mapping[str, Any]) -> Named:
    for value in raw.values():
        words = [*value, *value.values()] if isinstance(value, dict) else value
        if not isinstance(value, dict | list) or not all(isinstance(word, str) for word in words):
            raise ValueError("names must be strings")
    return raw


def _sizes(sizes: Any) -> tuple[int, ...]:
    return tuple(int(size) for size in sizes)


# -- files written before: prefixes in one map of arrays said what each of them is -----------------


def _older(arrays: Arrays, place: str, index: Mapping[str, Any]) -> Observations:
    tensors = {
        name: TensorStats.unpack(arrays[f"{place}/{at}"])
        for at, name in enumerate(index["tensors"])
    }
    extra = {name: arrays[f"{place}/extra/{at}"] for at, name in enumerate(index["extra"])}

    def part(prefix: str) -> dict[str, np.ndarray]:
        found = (name for name in extra if name.startswith(prefix))
        return {name.removeprefix(prefix): extra[name] for name in found}

    def words(name: str) -> list[str]:
        return [str(word) for word in extra.get(name, ())]

    def pairs(name: str) -> dict[str, str]:
        found = (word.rpartition("=") for word in words(name))
        return {op: value for op, _, value in found}

    channels = part("channels/")
    own: Named = {name: words(name) for name in ("ran", "trusted", "uneven") if name in extra}
    maps = {"kernels": "kernels", "norms": "norms", "leaders": "together"}
    shapes = {op: text.split("x") if text else [] for op, text in pairs("shapes").items()}
    return Observations(
        int(index["samples"]),
        tensors,
        channels={name: Extremes(value[0], value[1]) for name, value in channels.items()},
        powers={name: value[2] for name, value in channels.items() if len(value) > 2},
        means=part("means/"),
        factors={**part("factor/"), **part("scales/")},
        shapes={name: _sizes(sizes) for name, sizes in {**part("shapes/"), **shapes}.items()},
        own={**own, **{name: pairs(old) for name, old in maps.items() if old in extra}},
    )
