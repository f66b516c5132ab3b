"""Folders that lpot saved, read by transformers' own `from_pretrained`.

Their config.json says `quantization_config: {"quant_method": "lpot"}`; transformers then asks the
quantizer registered under that name, which makes the INT8 model from the folder.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import nn
from transformers.quantizers.base import HfQuantizer
from transformers.utils.quantization_config import QuantizationConfigMixin

from lpot.backends import get_backend
from lpot.core.errors import UnsupportedModel


class Method(StrEnum):
    LPOT = "lpot"


# What from_pretrained found out about the folder stays; all else is the INT8 model's.
_KEPT = ("config", "generation_config", "name_or_path", "is_quantized", "quantization_method")


class LpotConfig(QuantizationConfigMixin):  # type: ignore[misc]
    """`quantization_config` of a config.json that lpot wrote."""

    def __init__(self, guard: str | None = None, **others: Any) -> None:
        self.quant_method = Method.LPOT
        self.guard = guard

    def to_dict(self) -> dict[str, Any]:
        return {"quant_method": "lpot", "guard": self.guard}


class LpotQuantizer(HfQuantizer):  # type: ignore[misc]
    """Lets transformers find a model with nothing to load, and puts the INT8 one in its place."""

    requires_calibration = True
    _folder: Path

    def _process_model_before_weight_loading(
        self, model: nn.Module, checkpoint_files: Sequence[str] | None = None, **others: Any
    ) -> None:
        if not checkpoint_files:
            raise UnsupportedModel("lpot's models are read from a folder: give its path")
        self._folder = Path(checkpoint_files[0]).parent
        self._architecture = copy.deepcopy(model.config)
        given, named = type(model).__name__, (model.config.architectures or ["?"])[0]
        if given != named:
            raise UnsupportedModel(
                f"{self._folder}: holds a {named}, and a {given} was requested: use "
                f"{named}.from_pretrained(folder), or lpot.load(folder).native"
            )
        model._keys_to_ignore_on_load_missing = {".*"}
        model._keys_to_ignore_on_load_unexpected = {".*"}
        model.all_tied_weights_keys = {}  # a tie whose both ends are INT8 is missing for a reason
        guard = self.quantization_config.guard
        if guard is not None:
            home, _, name = guard.rpartition(".")
            empty = nn.Parameter(torch.empty(0, device="meta"), requires_grad=False)
            setattr(model.get_submodule(home), name, empty)

    def _process_model_after_weight_loading(self, model: nn.Module, **others: Any) -> None:
        with torch.random.fork_rng():
            blank = type(model)(self._architecture)
        backend: Any = get_backend("pytorch")
        native: nn.Module = backend.restore(self._folder, blank).native
        kept = {name: value for name, value in model.__dict__.items() if name in _KEPT}
        model.__dict__ = {**native.__dict__, **kept, "hf_quantizer": self}

    def is_serializable(self, *args: Any, **others: Any) -> bool:
        return True

    @property
    def is_trainable(self) -> bool:
        return False


def register(auto: ModuleType) -> None:
    """Make `quant_method: lpot` known to transformers."""
    configs: Mapping[str, Any] = auto.AUTO_QUANTIZATION_CONFIG_MAPPING
    quantizers: Mapping[str, Any] = auto.AUTO_QUANTIZER_MAPPING
    configs.setdefault("lpot", LpotConfig)  # type: ignore[attr-defined]
    quantizers.setdefault("lpot", LpotQuantizer)  # type: ignore[attr-defined]
