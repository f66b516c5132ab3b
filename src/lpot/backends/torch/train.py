"""Quantization-aware training: a model to train, and the float model that came out of it."""

from __future__ import annotations

import copy

from torch import nn

from lpot.backends.torch.kinds import is_hf_conv1d
from lpot.backends.torch.modules.rounded import Rounded
from lpot.backends.torch.ranges import inlet_name
from lpot.backends.torch.workshop import Workshop
from lpot.core.backend import Observations
from lpot.core.errors import UnsupportedModel
from lpot.core.recipe import OpConfig, Recipe


def prepare_training(
    workshop: Workshop, recipe: Recipe, observations: Observations | None = None
) -> nn.Module:
    """A copy in train mode whose low-precision linears and convolutions round as int8 would.

    Batch norms stay apart: scaling a channel scales its weights' steps, so folding them later gives
    the same integers.
    """
    root = copy.deepcopy(workshop.root)
    for key, config in recipe.ops.items():
        site = workshop.sites.get(key.name)
        if site is None or config.is_float or site.spec.family not in ("linear", "conv"):
            continue
        path = key.name if site.module is workshop.names[key.name] else f"{key.name}.0"
        inner = root.get_submodule(path)
        axis = site.spec.axis if not is_hf_conv1d(site.module) else 1
        rounded = Rounded(
            inner,
            axis if config.weight and config.weight.granularity != "per_tensor" else None,
            config.activation.bits or 8,
            _span(key.name, config, observations),
        )
        root = replace_module(root, path, rounded)
    return root.train()


def _span(
    op: str, config: OpConfig, observations: Observations | None
) -> tuple[float, float] | None:
    stats = observations.tensors.get(inlet_name(op)) if observations is not None else None
    if stats is None:
        return None
    bits = config.activation.bits or 8
    return stats.range(config.activation.algorithm or "minmax", bits=bits)


def finish_training(workshop: Workshop, trained: nn.Module) -> Workshop:
    """The trained weights in the original's modules, to be calibrated and built as ever."""
    root = copy.deepcopy(trained)
    found = [name for name, module in root.named_modules() if isinstance(module, Rounded)]
    for name in found:
        root = replace_module(root, name, root.get_submodule(name).inner)
    if [name for name, _ in root.named_modules()] != list(workshop.names):
        raise UnsupportedModel(
            "q_func gave back a model with other modules than it was handed: train the model in "
            "place, or return the same one"
        )
    return Workshop(root.float().eval())


def replace_module(root: nn.Module, path: str, module: nn.Module) -> nn.Module:
    """`module` wherever the one at `path` was; returns the root, which may be replaced itself."""
    if not path:
        return module
    old = root.get_submodule(path)
    for parent in list(root.modules()):
        for name, child in parent._modules.items():
            if child is old:
                parent._modules[name] = module
    return root
