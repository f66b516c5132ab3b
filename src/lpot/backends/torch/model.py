"""The handle of a torch model: the module users run, and what trials are built from."""

from __future__ import annotations

import hashlib
import re
import weakref
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from torch import nn

from lpot.backends.torch.data import Example, required_names, sketch
from lpot.backends.torch.files.hub import CONFIG, adopt
from lpot.backends.torch.halves import names_stored
from lpot.backends.torch.modules import LowModule
from lpot.backends.torch.modules.base import refuse_strangers
from lpot.backends.torch.run import CALL_ERRORS, call
from lpot.core.batch import Inputs, Runs
from lpot.core.errors import ConfigError, DataError, did_you_mean
from lpot.core.model import Model
from lpot.core.recipe import OpKey, Recipe

if TYPE_CHECKING:
    from lpot.backends.torch import TorchBackend
    from lpot.backends.torch.prepare import Prepared
    from lpot.backends.torch.prune.cut import Shape
    from lpot.core.compress.prunable import Variant

_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")
# How modules were made that are in users' hands without their handles, as long as they live.
_MADE: WeakKeyDictionary[nn.Module, dict[str, Any]] = WeakKeyDictionary()
_ARCHITECTURES: WeakKeyDictionary[nn.Module, Callable[[], nn.Module | None]] = WeakKeyDictionary()


class TorchModel(Model):
    """`native` is handed to users. `prepared` (the FP32 model only) is what builds trials.

    `skipped` names the ops of the recipe that stayed float, with the reason.
    """

    backend: Any
    holds_architecture = False

    def __init__(
        self,
        backend: TorchBackend,
        native: nn.Module,
        *,
        prepared: Prepared | None = None,
        recipe: Recipe | None = None,
        names: tuple[str, ...] = (),
        skipped: Mapping[OpKey, str] | None = None,
        captured: Mapping[str, dict[str, Any]] | None = None,
        folded: tuple[str, ...] = (),
        origin: Prepared | None = None,
        probe: Inputs | None = None,
        rounding: Mapping[str, Any] | None = None,
        example: Example | None = None,
        remake: Callable[[], nn.Module] | None = None,
    ) -> None:
        self.backend = backend
        self.prepared = prepared
        self.recipe = recipe
        self.skipped = dict(skipped or {})
        self.captured = dict(captured or {})  # parts that keep int8 between their ops, and how
        self.folded = folded  # batch norms that went into their convolutions
        self.origin = origin  # the prepared it was built in
        self.remake = remake  # the same once more, as it was before anybody ran it
        self.probe = probe  # one batch of inputs, to verify what is saved
        self.example = example or sketch(probe)  # what such a batch looks like
        # How a model that was trained with rounding was rounded: op → axis, bits, weight's bits.
        self.rounding = rounding
        self.shape: Shape | None = None  # what pruning made of the architecture
        self.variants: dict[str, Variant[TorchModel]] = {}  # pruned, by their word in recipes
        self._native = native
        self._names = names
        self._architecture: Callable[[], nn.Module | None]
        self._architecture = _ARCHITECTURES.get(native, lambda: None)
        if recipe is not None:
            adopt(self)
            refuse_strangers(native)
            _MADE[native] = {
                "recipe": recipe,
                "skipped": self.skipped,
                "captured": self.captured,
                "folded": folded,
                "example": self.example,
            }
        if origin is not None:
            self.comes_from(origin.root)

    def comes_from(self, module: nn.Module) -> None:
        """The FP32 module, for processes that need it beside the file. It is not kept alive."""
        self._architecture = weakref.ref(module)
        if self._native in _MADE:
            _ARCHITECTURES[self._native] = self._architecture

    @property
    def native(self) -> nn.Module:
        return self._native

    @property
    def input_names(self) -> tuple[str, ...] | None:
        """As configured, or as `forward` has them when none is optional."""
        return self._names or required_names(self._native)

    def tries(self) -> Runs:
        """`forward` may have arguments that are optional, or are containers themselves."""

        def runs(inputs: Inputs) -> str:
            try:
                call(self._native, inputs)
            except (*CALL_ERRORS, DataError) as error:
                return str(error) or type(error).__name__
            return ""

        return runs

    @property
    def nbytes(self) -> int:
        """As it is saved."""
        halves = names_stored(self._native, self.recipe, self.skipped)
        seen: dict[int, int] = {}
        for name, tensor in state(self._native).items():
            size = 2 if name in halves else tensor.element_size()
            seen[tensor.data_ptr()] = tensor.numel() * size
        return sum(seen.values())

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256(_ADDRESS.sub("", repr(self._native)).encode())
        for name, tensor in sorted(state(self._native).items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            flat = tensor.detach().contiguous().reshape(-1).view(torch.uint8)
            digest.update(memoryview(flat.numpy()))
        return digest.hexdigest()

    def fingerprint(self) -> str:
        return self._fingerprint

    @property
    def precisions(self) -> dict[OpKey, str]:  # type: ignore[override]  # made when asked for
        """What each op of the recipe really became."""
        ops = {} if self.recipe is None else self.recipe.ops
        return {
            key: "removed"
            if self.shape is not None and self.shape.is_gone(key.name)
            else "fp32"
            if key in self.skipped
            else config.precision
            for key, config in ops.items()
        }

    @property
    def skeleton(self) -> nn.Module | None:
        """The FP32 module that another process needs beside the file; transformers' need none."""
        prepared = self.origin or self.prepared
        return self._architecture() if prepared is None else prepared.root

    def describes_itself(self, path: Path) -> bool:
        return (path / CONFIG).is_file()

    @property
    def is_quantized(self) -> bool:
        return any(isinstance(module, LowModule) for module in self._native.modules())

    def export(self, path: str | Path, inputs: Inputs | None = None) -> Path:
        """Write the model for another runtime: *.onnx with Q/DQ pairs, or *.pt2."""
        from lpot.backends.torch.files.export import export

        return export(self, Path(path), inputs)

    def export_onnx(self, path: str | Path, inputs: Inputs | None = None) -> Path:
        """The model as ONNX with Q/DQ pairs."""
        return self.export(path, inputs)

    @property
    def tune_cfg(self) -> dict[str, Any]:
        """The recipe in the words of the original tool."""
        from lpot.backends.torch.files.checkpoint import to_tune_cfg

        return to_tune_cfg(self.recipe) if self.recipe is not None else {}

    def get_all_weight_names(self) -> list[str]:
        return [name for name, _ in self._native.named_parameters()]

    def get_weight(self, tensor_name: str) -> torch.Tensor:
        return self._weight(tensor_name).detach()

    def update_weights(self, tensor_name: str, new_tensor: Any) -> None:
        """New values for a weight, in place."""
        weight = self._weight(tensor_name)
        values = torch.as_tensor(new_tensor)
        if values.shape != weight.shape:
            raise ConfigError(
                f"given values of shape {list(values.shape)}, expected {list(weight.shape)}",
                tensor_name,
            )
        with torch.no_grad():
            weight.copy_(values)

    def prune_weights_(self, tensor_name: str, mask: Any) -> None:
        """Zero where the mask is."""
        self.update_weights(
            tensor_name, self.get_weight(tensor_name) * torch.as_tensor(mask).float()
        )

    def get_gradient(self, input_tensor: Any) -> np.ndarray:
        """Of a weight, by its name, or of a tensor."""
        named = isinstance(input_tensor, str)
        tensor = self._weight(input_tensor) if named else input_tensor
        if tensor.grad is None:
            raise ConfigError(
                f"{input_tensor if named else 'the tensor'} has no gradient: call backward() first"
            )
        found: np.ndarray = tensor.grad.detach().cpu().numpy()
        return found

    def _weight(self, name: str) -> torch.Tensor:
        known = state(self._native) | dict(self._native.named_parameters())
        if name not in known:
            raise ConfigError(
                f"the model has no weight {name!r}{did_you_mean(name, known) or ';'} "
                "get_all_weight_names() lists them"
            )
        return known[name]


def handle_of(backend: TorchBackend, native: nn.Module, names: tuple[str, ...]) -> TorchModel:
    """A handle for a module that lpot quantized, to run it; of a copy, how it was made is not
    known."""
    made = _MADE.get(native, {"recipe": Recipe({})})
    return TorchModel(backend, native, names=names, **made)


def state(module: nn.Module) -> dict[str, torch.Tensor]:
    """The tensors of a state dict; what modules put there besides tensors is left out."""
    return {
        name: value
        for name, value in module.state_dict().items()
        if isinstance(value, torch.Tensor)
    }
