"""Reading a folder of GPTQ's files: safetensors, and `quantization_config` in config.json."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.errors import UnsupportedModel
from lpot.core.weight_only.grid import Format, Rounded
from lpot.core.weight_only.pack import unpack_gptq
from lpot.data.optional import require

FILE = "model.safetensors"
# What settings and tensors raise that are not GPTQ's.
DAMAGE = (KeyError, IndexError, TypeError, ValueError, ArithmeticError, AttributeError, re.error)
PARTS = ("qweight", "qzeros", "scales", "g_idx")


class GptqFolder:
    """One tensor is read at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = _settings(folder)
        with self._opened() as stored:
            self.names = tuple(stored.keys())
        self.modules = tuple(
            name.removesuffix(".qweight") for name in self.names if name.endswith(".qweight")
        )

    def rounded(self, module: str) -> Rounded:
        """The weight of a module, [outputs, inputs], on its grid."""
        with self._opened() as stored:
            missing = [part for part in PARTS if f"{module}.{part}" not in self.names]
            if missing:
                raise UnsupportedModel(f"{self.folder / FILE}: {module} lacks its {missing[0]}")
            packed = {part: stored.get_tensor(f"{module}.{part}") for part in PARTS}
        columns = len(packed["g_idx"])
        try:
            told = {**self.settings, **self._own(module)}
            fmt = Format(int(told["bits"]), max(int(told["group_size"]), 0), bool(told["sym"]))
        except DAMAGE as error:
            raise UnsupportedModel(f"{self.folder}: of {module}: {error}") from error
        if not np.array_equal(packed["g_idx"], np.arange(columns) // fmt.width(columns)):
            raise UnsupportedModel(
                f"{self.folder}: {module} has its columns in another order (desc_act), which is "
                "not supported"
            )
        try:
            return unpack_gptq(packed, fmt, columns)
        except DAMAGE as error:
            raise UnsupportedModel(f"{self.folder}: {module} is damaged ({error})") from error

    def floats(self) -> Iterator[tuple[str, np.ndarray]]:
        """Everything that is not in few bits."""
        with self._opened() as stored:
            for name in self.names:
                if name.rpartition(".")[2] not in PARTS:
                    yield name, np.asarray(stored.get_tensor(name), np.float32)

    def _own(self, module: str) -> dict[str, Any]:
        """What `dynamic` says of a module; patterns that begin with + change settings."""
        for pattern, told in (self.settings.get("dynamic") or {}).items():
            if re.match(pattern.removeprefix("+:"), module):
                return dict(told)
        return {}

    def _opened(self) -> Any:
        package = require("safetensors", "a folder of GPTQ's files")
        try:
            return package.safe_open(self.folder / FILE, framework="np")
        except (OSError, package.SafetensorError) as error:
            raise UnsupportedModel(f"{self.folder / FILE}: can't be read ({error})") from error


def _settings(folder: Path) -> dict[str, Any]:
    place = folder / "config.json"
    try:
        found = json.loads(place.read_text("utf-8"))["quantization_config"]
        if found["quant_method"] != "gptq":
            raise ValueError(f"its quant_method is {found['quant_method']!r}, not 'gptq'")
        return {"sym": True, "group_size": 128, **found}
    except (OSError, RecursionError, *DAMAGE) as error:
        raise UnsupportedModel(f"{place}: no quantization_config of GPTQ ({error})") from error
