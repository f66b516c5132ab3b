"""Modules prepared for training by torch.ao: their fake quantization taken out again."""

from __future__ import annotations

import copy
from typing import Any

from torch import nn

from lpot.core.errors import UnsupportedModel

_HOMES = ("torch.ao.nn.qat", "torch.ao.nn.intrinsic.qat", "torch.nn.qat", "torch.nn.intrinsic.qat")


def has_fake_quant(module: nn.Module) -> bool:
    return any(_is_fake(part) for part in module.modules())


def without_fake_quant(module: nn.Module) -> nn.Module:
    """The float model with the trained weights; batch norms that were fused are folded."""
    root = copy.deepcopy(module).eval()
    found = _strip(root)
    if not found:
        raise UnsupportedModel(
            f"{type(module).__name__} contains no fake quantization: give the model that was "
            "trained with torch.ao (prepare_qat), or quantize this one with Quantization"
        )
    return root


def _strip(part: nn.Module) -> int:
    count = 0
    for name, child in list(part.named_children()):
        if _is_fake(child):
            count += 1
            if name in ("activation_post_process", "weight_fake_quant"):
                del part._modules[name]
            else:
                part._modules[name] = nn.Identity()
            continue
        if type(child).__module__.startswith(_HOMES):
            count += 1
            made: Any = child
            child = made.to_float().eval()
            part._modules[name] = child
        _unhook(child)
        count += _strip(child)
    return count


def _is_fake(part: nn.Module) -> bool:
    return any(cls.__name__ in ("FakeQuantizeBase", "ObserverBase") for cls in type(part).__mro__)


def _unhook(part: nn.Module) -> None:
    """torch.ao hangs its observers on modules as hooks."""
    for hooks in (part._forward_hooks, part._forward_pre_hooks):
        for number, hook in list(hooks.items()):
            if getattr(hook, "__module__", "").startswith("torch.ao."):
                del hooks[number]
