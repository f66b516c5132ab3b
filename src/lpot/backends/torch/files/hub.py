"""What transformers expects of a folder and of a model: config.json, and `save_pretrained`."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from torch import nn

from lpot.backends.torch.modules.base import LowModule
from lpot.backends.torch.modules.dense import LowConv, LowLinear
from lpot.core.errors import UnsupportedModel

if TYPE_CHECKING:
    from lpot.backends.torch.model import TorchModel

CONFIG = "config.json"
GENERATION = "generation_config"


def is_transformers(native: nn.Module) -> bool:
    return type(native).__module__.startswith("transformers.") and hasattr(native, "config")


def write_config(native: Any, folder: Path, guard: str | None) -> None:
    """config.json with word that the weights are lpot's: lpot/backends/pretrained.py reads them."""
    native.config.architectures = [type(native).__name__]
    native.config.save_pretrained(folder)
    told = json.loads((folder / CONFIG).read_text("utf-8"))
    told.pop("quantization_config", None)
    if any(isinstance(part, LowModule) for part in native.modules()):
        told["quantization_config"] = {"quant_method": "lpot", "guard": guard}
    (folder / CONFIG).write_text(json.dumps(told, indent=2) + "\n", encoding="utf-8")
    if getattr(native, GENERATION, None) is not None:
        native.generation_config.save_pretrained(folder)


def guard_of(native: nn.Module) -> str | None:
    """The name of a weight that is INT8, under which an empty tensor is saved.

    Where lpot is not imported, transformers only warns of a quantization that it does not know,
    and would fill in random weights for those that are missing; a tensor of a wrong shape it
    refuses.
    """
    for name, part in native.named_modules():
        # The last layer may share its weight with the embedding.
        if isinstance(part, LowLinear | LowConv) and "head" not in name:
            return f"{name}.weight"
    return None


class Saver:
    """`save_pretrained` of a quantized model: the same folder that lpot's own `save` writes."""

    def __init__(self, model: TorchModel) -> None:
        # Without what verifies a save: that was done, or will be, by who made the model.
        self.made: dict[str, Any] = {
            "recipe": model.recipe,
            "skipped": model.skipped,
            "captured": model.captured,
            "folded": model.folded,
            "example": model.example,
        }
        self.backend = model.backend
        self.native = model.native

    def __deepcopy__(self, memo: dict[int, Any]) -> Saver:
        """For the copy of the model; what is known about how it was made is shared."""
        twin = Saver.__new__(Saver)
        memo[id(self)] = twin
        twin.made, twin.backend = self.made, self.backend
        twin.native = copy.deepcopy(self.native, memo)
        return twin

    def __call__(self, save_directory: Any, push_to_hub: bool = False, **others: Any) -> None:
        from lpot.backends.torch.model import TorchModel

        if push_to_hub:
            raise UnsupportedModel(
                "write a quantized model to a folder first, with save_pretrained(folder), then "
                "upload that with huggingface_hub.upload_folder"
            )
        TorchModel(self.backend, self.native, **self.made).save(Path(save_directory))


def adopt(model: TorchModel) -> None:
    """Let a model of transformers save itself in a form that can be read again."""
    native: Any = model.native
    if model.is_quantized and is_transformers(native):
        native.save_pretrained = Saver(model)
