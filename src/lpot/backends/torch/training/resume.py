"""A torch training as arrays, to go on from: weights, optimizer and torch's random numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from torch import nn

from lpot.backends.torch.model import state
from lpot.core.compress.resume import Kept

Tensors = Mapping[str, torch.Tensor]


class TorchTraining:
    """What changes in a training loop of the yaml."""

    def __init__(self, module: nn.Module, optimizer: torch.optim.Optimizer) -> None:
        self.module, self.optimizer = module, optimizer

    def kept(self) -> Kept:
        told = self.optimizer.state_dict()
        tensors = {f"model/{name}": value for name, value in state(self.module).items()}
        plain: dict[str, dict[str, Any]] = {}
        for number, values in told["state"].items():
            plain[str(number)] = {}
            for name, value in values.items():
                if isinstance(value, torch.Tensor):
                    tensors[f"optimizer/{number}/{name}"] = value
                else:
                    plain[str(number)][name] = value
        arrays = {**packed(tensors), "random": torch.get_rng_state().numpy()}
        return Kept(arrays, {"state": plain, "groups": told["param_groups"]})

    def take(self, kept: Kept) -> None:
        known: dict[int, dict[str, Any]] = {
            int(number): dict(values) for number, values in kept.facts["state"].items()
        }
        weights: dict[str, torch.Tensor] = {}
        for name, value in kept.arrays.items():
            part, _, rest = name.partition("/")
            tensor = torch.from_numpy(value)
            if part == "model":
                weights[rest] = tensor
            elif part == "optimizer":
                number, _, key = rest.partition("/")
                known[int(number)][key] = tensor
        put_back(self.module, weights)
        groups = [dict(group) for group in kept.facts["groups"]]
        for group in groups:  # JSON has no tuples
            group |= {key: tuple(one) for key, one in group.items() if key == "betas"}
        self.optimizer.load_state_dict({"state": known, "param_groups": groups})
        torch.set_rng_state(torch.from_numpy(kept.arrays["random"]))


def packed(tensors: Tensors) -> dict[str, np.ndarray]:
    """As arrays of their own; NumPy has no bfloat16, which float32 holds exactly."""
    return {name: _wide(tensor).cpu().numpy().copy() for name, tensor in tensors.items()}


def _wide(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.detach().float() if tensor.dtype == torch.bfloat16 else tensor.detach()


def put_back(module: nn.Module, tensors: Tensors) -> None:
    """Values into the tensors that the module has; it must have these, in these shapes."""
    own = state(module)
    strange = sorted(own.keys() ^ tensors.keys())
    if strange:
        raise KeyError(f"{strange[0]!r} is in one of the two models only")
    for name, tensor in own.items():
        if tensor.shape != tensors[name].shape:
            raise ValueError(f"{name!r} is {list(tensors[name].shape)}, not {list(tensor.shape)}")
    with torch.no_grad():
        for name, tensor in own.items():
            tensor.copy_(tensors[name])
