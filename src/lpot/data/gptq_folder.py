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
from lpot.data.safetensors_folder import FolderTensors

FILE = "model.safetensors"
LESS = {"gptq": 1, "gptq_v2": 0}  # what zero points are stored less, by `checkpoint_format`
# What settings and tensors raise that are not GPTQ's.
DAMAGE = (KeyError, IndexError, TypeError, ValueError, ArithmeticError, AttributeError, re.error)
CODES = ("qweight", "qzeros", "g_idx")
PARTS = (*CODES, "scales")


class GptqFolder:
    """One tensor is read at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.settings = _settings(folder)
        self.tensors = FolderTensors(folder)
        ending = ".qweight"
        self.modules = tuple(n.removesuffix(ending) for n in self.tensors if n.endswith(ending))

    def rounded(self, module: str) -> Rounded:
        """The weight of a module, [outputs, inputs], on its grid."""
        names = {part: f"{module}.{part}" for part in PARTS}
        # Newer writers leave the order of the columns out where it is the usual one.
        missing = [p for p, name in names.items() if p != "g_idx" and name not in self.tensors]
        if missing:
            raise UnsupportedModel(f"{self.folder}: {module} lacks its {missing[0]}")
        packed = {part: self.tensors.codes(names[part]) for part in ("qweight", "qzeros")}
        packed["scales"] = self.tensors[names["scales"]]
        try:
            told = {**self.settings, **self._own(module)}
            bits = int(told["bits"])
            fmt = Format(bits, max(int(told["group_size"]), 0), bool(told["sym"]))
            columns = len(packed["qweight"]) * 32 // bits
        except DAMAGE as error:
            raise UnsupportedModel(f"{self.folder}: of {module}: {error}") from error
        if names["g_idx"] in self.tensors:
            order = self.tensors.codes(names["g_idx"])
            columns = len(order)
            if not np.array_equal(order, np.arange(columns) // fmt.width(columns)):
                raise UnsupportedModel(
                    f"{self.folder}: {module} has its columns in another order (desc_act), which "
                    "is not supported"
                )
        try:
            return unpack_gptq(packed, fmt, columns, LESS[told["checkpoint_format"]])
        except DAMAGE as error:
            raise UnsupportedModel(f"{self.folder}: {module} is damaged ({error})") from error

    def floats(self) -> Iterator[tuple[str, np.ndarray]]:
        """Everything that is not in few bits."""
        for name in self.tensors:
            if name.rpartition(".")[2] not in PARTS:
                yield name, self.tensors[name]

    def _own(self, module: str) -> dict[str, Any]:
        """What `dynamic` says of a module; patterns that begin with - name what is in float."""
        for pattern, told in (self.settings.get("dynamic") or {}).items():
            if not pattern.startswith("-:") and re.match(pattern.removeprefix("+:"), module):
                return dict(told)
        return {}


def _settings(folder: Path) -> dict[str, Any]:
    place = folder / "config.json"
    try:
        found = json.loads(place.read_text("utf-8"))["quantization_config"]
        if found["quant_method"] != "gptq":
            raise ValueError(f"its quant_method is {found['quant_method']!r}, not 'gptq'")
        settings = {"sym": True, "group_size": 128, "checkpoint_format": "gptq", **found}
        if settings["checkpoint_format"] not in LESS:
            raise ValueError(
                f"its checkpoint_format is {settings['checkpoint_format']!r}, expected one of "
                f"{', '.join(LESS)}"
            )
        return settings
    except (OSError, RecursionError, *DAMAGE) as error:
        raise UnsupportedModel(f"{place}: no quantization_config of GPTQ ({error})") from error
