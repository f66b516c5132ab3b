"""A decoder from GPTQ's files as a transformers module: `generate()` works as it always does."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn

from lpot.backends.torch.files.load import check_sizes, made_of
from lpot.backends.torch.weight_only.kernels import KERNELS, Chooser
from lpot.core.errors import BackendUnavailable, UnsupportedModel
from lpot.core.files.untrusted import read_json
from lpot.core.weight_only.grid import Rounded
from lpot.data.gptq_folder import GptqFolder


def load_decoder(folder: Path, chooser: Chooser | None = None) -> nn.Module:
    """The module with its linears in few bits, each with the kernel that is fastest here.

    Weights are read one at a time: besides the module itself only one is held.
    """
    stored = GptqFolder(folder)
    model = _empty(folder)
    choose = chooser or Chooser()
    plain = dict(stored.floats())
    for name in stored.modules:
        bias = plain.pop(f"{name}.bias", None)
        rounded = stored.rounded(name)
        kernel = choose(rounded)
        held = None if bias is None else torch.from_numpy(bias.copy())
        _put(model, name, WeightOnlyLinear(rounded, held, kernel))
    state = {name: torch.from_numpy(array.copy()) for name, array in plain.items()}
    missing, unknown = model.load_state_dict(state, strict=False)
    lost = [name for name in missing if ".held_" not in name and not name.endswith(".bias")]
    if unknown or (lost and not _is_tied(model, lost)):
        raise UnsupportedModel(
            f"{folder}: its weights do not match its config.json "
            f"({', '.join([*lost, *unknown][:3])})"
        )
    return model.eval()


def _empty(folder: Path) -> Any:
    try:
        import transformers
    except ImportError as error:
        raise BackendUnavailable("pytorch", "transformers") from error
    raw = read_json(folder / "config.json", "save the model again", UnsupportedModel)
    check_sizes(raw, folder)
    raw.pop("quantization_config", None)

    def make() -> Any:
        config = transformers.AutoConfig.for_model(raw.pop("model_type"), **raw)
        model = transformers.AutoModelForCausalLM.from_config(config, dtype=torch.float32)
        if (folder / "generation_config.json").is_file():
            model.generation_config = transformers.GenerationConfig.from_pretrained(folder)
        return model

    return made_of(folder, make)


def _put(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    try:
        place = model.get_submodule(parent)
        if not isinstance(getattr(place, last), nn.Linear):
            raise AttributeError(f"{name} is not a Linear")
    except AttributeError as error:
        raise UnsupportedModel(f"config.json describes no module {name!r}: {error}") from error
    setattr(place, last, module)


def _is_tied(model: Any, missing: list[str]) -> bool:
    """A head that is the embedding is stored once."""
    return missing == ["lm_head.weight"] and bool(model.config.tie_word_embeddings)


# -- A linear layer whose weight is stored in few bits.


class WeightOnlyLinear(nn.Module):  # type: ignore[misc]
    """nn.Linear for inference; `kernel` names what multiplies."""

    def __init__(self, rounded: Rounded, bias: torch.Tensor | None, kernel: str) -> None:
        super().__init__()
        self.out_features, self.in_features = rounded.codes.shape
        self.kernel = kernel
        self.bits = rounded.format.bits
        packed = KERNELS[kernel].pack(rounded)
        self._names = tuple(packed)
        for name, tensor in packed.items():
            self.register_buffer(f"held_{name}", tensor)
        self.register_buffer("bias", bias)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        held = {name: self.get_buffer(f"held_{name}") for name in self._names}
        flat = x.reshape(-1, self.in_features).to(torch.float32)
        found = KERNELS[self.kernel].run(flat, held)
        if self.bias is not None:
            found = found + self.bias
        return found.reshape(*x.shape[:-1], self.out_features).to(x.dtype)

    def extra_repr(self) -> str:
        sizes = f"in_features={self.in_features}, out_features={self.out_features}"
        return f"{sizes}, bits={self.bits}, kernel={self.kernel!r}"
