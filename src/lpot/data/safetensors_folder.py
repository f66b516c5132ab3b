"""The safetensors of a folder, one tensor at a time, without the package of that name."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.errors import UnsupportedModel

_FLOATS: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),  # the upper half of a float32
}
_CODES: dict[str, np.dtype[Any]] = {"I32": np.dtype("<i4"), "I64": np.dtype("<i8")}
_INDEX = "model.safetensors.index.json"


class FolderTensors(Mapping[str, np.ndarray]):
    """The safetensors of a folder as float32, read when asked for: nothing is held."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._places: dict[str, tuple[Path, int, dict[str, Any]]] = {}
        for path in _files(folder):
            start, header = _header(path)
            for name, entry in header.items():
                if name != "__metadata__":
                    self._places[name] = path, start, entry

    def __getitem__(self, name: str) -> np.ndarray:
        path, word, raw = self._raw(name, _FLOATS)
        if raw is None:
            raise UnsupportedModel(
                f"{path.name}: tensor {name!r} is {word}; a decoder is quantized from "
                f"{', '.join(_FLOATS)} weights, not from ones that are already quantized"
            )
        if word == "BF16":
            wide: np.ndarray = (raw.astype(np.uint32) << 16).view(np.float32)
            return wide
        return np.asarray(raw, np.float32)

    def codes(self, name: str) -> np.ndarray:
        """Whole numbers, which weights in few bits are packed in."""
        path, word, raw = self._raw(name, _CODES)
        if raw is None:
            raise UnsupportedModel(
                f"{path.name}: tensor {name!r} is {word}, expected {' or '.join(_CODES)}"
            )
        return np.asarray(raw)

    def _raw(
        self, name: str, dtypes: Mapping[str, np.dtype[Any]]
    ) -> tuple[Path, str, np.ndarray | None]:
        """File, dtype and the mapped tensor; None for a tensor of another dtype."""
        path, start, entry = self._places[name]
        try:
            word, (begin, _), shape = str(entry["dtype"]), entry["data_offsets"], entry["shape"]
            place, sizes = start + int(begin), tuple(map(int, shape))
        except (KeyError, TypeError, ValueError) as error:
            raise UnsupportedModel(f"{path}: tensor {name!r} is damaged ({error!r})") from error
        if word not in dtypes:
            return path, word, None
        try:
            return path, word, np.memmap(path, dtypes[word], "r", place, sizes)
        except (ValueError, OSError, OverflowError) as error:
            raise UnsupportedModel(f"{path}: tensor {name!r} is cut off ({error})") from error

    def __contains__(self, name: object) -> bool:
        return name in self._places

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


def _files(folder: Path) -> list[Path]:
    index = folder / _INDEX
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_text("utf-8"))["weight_map"].values()))
            if outside := [name for name in names if Path(name).name != name or len(name) > 200]:
                raise ValueError(f"{outside[0]!r:.80} is not a file beside it")
        except (ValueError, KeyError, AttributeError, TypeError, RecursionError) as error:
            raise UnsupportedModel(f"{index}: damaged ({error})") from error
        missing = [name for name in names if not (folder / name).is_file()]
        if missing:
            raise UnsupportedModel(f"{folder}: {missing[0]} is missing, which {_INDEX} names")
        return [folder / name for name in names]
    # Mistral's own layout of the same weights often lies beside them.
    every = sorted(folder.glob("*.safetensors"))
    found = [path for path in every if not path.name.startswith("consolidated")] or every
    if not found:
        kinds = ", ".join(sorted(item.name for item in folder.iterdir())[:6])
        raise UnsupportedModel(
            f"{folder}: no .safetensors file in it (there are: {kinds}); save the model with "
            "`save_pretrained(folder)`; pickled .bin files are never opened here"
        )
    return found


def _header(path: Path) -> tuple[int, dict[str, Any]]:
    try:
        with path.open("rb") as stream:
            length = int.from_bytes(stream.read(8), "little")
            if length > min(path.stat().st_size, 1 << 28):
                raise ValueError("its header is longer than the file")
            header = json.loads(stream.read(length))
        if not isinstance(header, dict):
            raise ValueError("its header is not a mapping")
        return 8 + length, header
    except (OSError, ValueError, RecursionError) as error:
        raise UnsupportedModel(f"{path}: not a readable safetensors file ({error})") from error
