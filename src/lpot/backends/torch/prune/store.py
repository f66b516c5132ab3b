"""The weights of a torch module in training, for pruners that set some of them to zero."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from lpot.backends.torch.kinds import is_hf_conv1d
from lpot.backends.torch.model import state
from lpot.backends.torch.training.resume import packed, put_back
from lpot.core.errors import UnsupportedModel, a_kind

_LAYERS = (
    nn.Linear,
    nn.Bilinear,
    nn.modules.conv._ConvNd,
    nn.RNNBase,
    nn.RNNCellBase,
    nn.MultiheadAttention,
)
_BIASES = ("bias_k", "bias_v")  # of attention: they have an axis more than they need


def check_trainable(given: Any) -> None:
    if not isinstance(given, nn.Module):
        raise UnsupportedModel(f"{a_kind(given)} can't be trained here: give the torch module")


class ModuleWeights:
    """Reads and masks parameters in place. `prefix` stands before their names in what was wrapped
    around the module (`module.` of DataParallel), and may be written so, too."""

    def __init__(self, root: nn.Module, prefix: str = "") -> None:
        check_trainable(root)
        self.root = root
        self._prefix = prefix
        self._own = dict(root.named_parameters())
        owners = {name: root.get_submodule(name.rpartition(".")[0]) for name in self._own}
        self._seen: dict[str, torch.Tensor] = {}
        self._hooks: list[Any] = []
        self._names = [
            name
            for name, tensor in self._own.items()
            if tensor.dim() > 1
            and (isinstance(owners[name], _LAYERS) or is_hf_conv1d(owners[name]))
            and not _is_bias(name)
        ]

    def names(self) -> list[str]:
        return self._names

    def further(self) -> dict[str, str]:
        first = {id(tensor): name for name, tensor in self._own.items()}
        found = {
            name: first[id(tensor)]
            for name, tensor in self.root.named_parameters(remove_duplicate=False)
            if tensor.dim() > 1 and name not in self._names and not _is_bias(name)
        }
        if self._prefix:
            every = {name: name for name in self._names} | found
            found |= {f"{self._prefix}{name}": stands for name, stands in every.items()}
        return found

    def others(self) -> list[str]:
        modules = [name for name, _ in self.root.named_modules() if name]
        return [*modules, *(name for name in self._own if name not in self._names)]

    def computed(self) -> list[str]:
        return [
            f"{name}.weight".removeprefix(".")
            for name, module in self.root.named_modules()
            if isinstance(module, _LAYERS)
            and "weight" not in module._parameters
            and isinstance(getattr(module, "weight", None), torch.Tensor)
        ]

    def read(self, name: str) -> np.ndarray:
        found: np.ndarray = self._own[name].detach().float().cpu().numpy()
        return found

    def mask(self, name: str, keep: np.ndarray) -> None:
        tensor = self._own[name]
        with torch.no_grad():
            tensor.mul_(torch.from_numpy(keep).to(tensor.device, tensor.dtype))

    def watch(self, names: Iterable[str]) -> None:
        for name in names:
            self._hooks.append(
                self._own[name].register_post_accumulate_grad_hook(self._keeping(name))
            )

    def _keeping(self, name: str) -> Callable[[torch.Tensor], None]:
        def keep(tensor: torch.Tensor) -> None:
            self._seen[name] = tensor.grad.detach().clone()

        return keep

    def release(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._hooks.clear()

    def gradient(self, name: str) -> np.ndarray | None:
        grad = self._own[name].grad
        grad = self._seen.get(name) if grad is None else grad
        return None if grad is None else grad.detach().float().cpu().numpy()

    def pull(self, name: str, amount: np.ndarray) -> None:
        grad = self._own[name].grad
        if grad is not None:
            grad.add_(torch.from_numpy(amount).to(grad.device, grad.dtype))

    def snapshot(self) -> Any:
        return {name: value.detach().clone() for name, value in state(self.root).items()}

    def restore(self, snapshot: Any) -> None:
        put_back(self.root, snapshot)

    def packed(self, snapshot: Any) -> dict[str, np.ndarray]:
        return packed(snapshot)

    def unpacked(self, arrays: Mapping[str, np.ndarray]) -> Any:
        return {name: torch.from_numpy(value) for name, value in arrays.items()}


def _is_bias(name: str) -> bool:
    return name.rpartition(".")[2] in _BIASES
