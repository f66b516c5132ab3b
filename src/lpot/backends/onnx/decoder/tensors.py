"""The tensors of a transformers model, one at a time: from its folder or an object."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.batch import as_array
from lpot.core.errors import UnsupportedModel

_DTYPES: dict[str, np.dtype[Any]] = {
    "F64": np.dtype("<f8"),
    "F32": np.dtype("<f4"),
    "F16": np.dtype("<f2"),
    "BF16": np.dtype("<u2"),  # the upper half of a float32
}
_INDEX = "model.safetensors.index.json"
_BUFFER = re.compile(r"\binv_freq$|\bmasked_bias$|\b(attn|attention)\.bias$")


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
        path, start, entry = self._places[name]
        try:
            word, (begin, _), shape = str(entry["dtype"]), entry["data_offsets"], entry["shape"]
            place, sizes = start + int(begin), tuple(map(int, shape))
        except (KeyError, TypeError, ValueError) as error:
            raise UnsupportedModel(f"{path}: tensor {name!r} is damaged ({error!r})") from error
        dtype = _DTYPES.get(word)
        if dtype is None:
            raise UnsupportedModel(
                f"{path.name}: tensor {name!r} is {word}; a decoder is quantized from "
                f"{', '.join(_DTYPES)} weights, not from ones that are already quantized"
            )
        try:
            raw = np.memmap(path, dtype, "r", place, sizes)
        except (ValueError, OSError, OverflowError) as error:
            raise UnsupportedModel(f"{path}: tensor {name!r} is cut off ({error})") from error
        if word == "BF16":
            wide: np.ndarray = (raw.astype(np.uint32) << 16).view(np.float32)
            return wide
        return np.asarray(raw, np.float32)

    def __iter__(self) -> Iterator[str]:
        return iter(self._places)

    def __len__(self) -> int:
        return len(self._places)


class ObjectTensors(Mapping[str, np.ndarray]):
    """The state dict of a module as float32 arrays, made when asked for."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        self._state = state

    def __getitem__(self, name: str) -> np.ndarray:
        return np.asarray(as_array(self._state[name]), np.float32)

    def __iter__(self) -> Iterator[str]:
        return iter(self._state)

    def __len__(self) -> int:
        return len(self._state)


class NotedTensors(Mapping[str, np.ndarray]):
    """The same, with note of what was asked for."""

    def __init__(self, tensors: Mapping[str, np.ndarray]) -> None:
        self._tensors = tensors
        self._asked: set[str] = set()

    def __getitem__(self, name: str) -> np.ndarray:
        found = self._tensors[name]
        self._asked.add(name)
        return found

    def __contains__(self, name: object) -> bool:
        return name in self._tensors

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    @property
    def unread(self) -> list[str]:
        """Weights that nobody asked for; buffers that old versions stored are none."""
        return [name for name in self if name not in self._asked and not _BUFFER.search(name)]


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
    found = sorted(folder.glob("*.safetensors"))
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
