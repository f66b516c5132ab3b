"""Models in half or double precision: computed in float32, with results in the user's dtype."""

from __future__ import annotations

import copy
import functools
import importlib
import logging
import types
from collections.abc import Iterator
from typing import Any

import torch
from torch import nn
from torch.nn.utils import prune
from torch.utils import _pytree as pytree

from lpot.backends.torch.clone import rebind

# The function of the same name hides the module.
_WeightNorm: Any = importlib.import_module("torch.nn.utils.weight_norm").WeightNorm

logger = logging.getLogger(__name__)

FLOAT32 = "float32"
NARROW = (torch.float16, torch.bfloat16)
_MARK = "_lpot_dtype"  # on the root of a model whose user computes in another dtype


def copied(module: nn.Module) -> nn.Module:
    """A deep copy. Tensors that were computed (old-style weight_norm keeps one before the first
    run) are copied as plain ones, which deepcopy refuses to do; locks and files, of which there is
    only one, are shared; hooks follow into the copy."""
    computed: dict[int, Any] = {
        id(value): value.detach().clone()
        for part in module.modules()
        for value in part.__dict__.values()
        if isinstance(value, torch.Tensor) and not value.is_leaf
    }
    parts = list(module.modules())
    memo = dict(computed)
    try:
        twin = copy.deepcopy(module, memo)
    except TypeError:
        memo = {id(value): value for part in parts for value in _unique(part)} | computed
        twin = copy.deepcopy(module, memo)
    rebind(parts, {id(part): memo[id(part)] for part in parts if id(part) in memo})
    return twin


def _unique(part: nn.Module) -> Iterator[Any]:
    """Attributes that can't be copied: a lock, an open file, a generator."""
    for value in part.__dict__.values():
        try:
            copy.copy(value)
        except TypeError:
            yield value


def private(module: nn.Module, dtype: str | None = None) -> nn.Module:
    """Our own copy in float32 and eval mode, weights settled; it remembers the user's dtype."""
    unwrap_parts(module)
    settle(module)
    own = dtype or _own_dtype(module)
    if own != FLOAT32 and dtype is None:
        logger.warning(
            "the model is in %s: a float32 copy is the baseline and the starting point of every "
            "trial; outputs are returned in %s",
            own,
            own,
        )
    _widen_weights(module)
    module.eval()  # whose own train() may forget to return it
    if own != FLOAT32:
        setattr(module, _MARK, own)
    return module


def _widen_weights(module: nn.Module) -> None:
    """To float32; but layers that are in 16 bits amid others in float32 stay so, for the forward
    around them casts by hand."""
    parameters = [tensor for tensor in module.parameters() if tensor.is_floating_point()]
    narrow = sum(tensor.numel() for tensor in parameters if tensor.dtype in NARROW)
    if not narrow or 2 * narrow >= sum(tensor.numel() for tensor in parameters):
        module.float()
        return
    for part in module.modules():
        if not any(tensor.dtype in NARROW for tensor in part.parameters(recurse=False)):
            part._apply(_float, recurse=False)


def _own_dtype(module: nn.Module) -> str:
    """The one dtype of all float parameters, float32 where they differ."""
    found = {tensor.dtype for tensor in module.parameters() if tensor.is_floating_point()}
    return str(found.pop()).removeprefix("torch.") if len(found) == 1 else FLOAT32


def dtype_of(module: nn.Module) -> str:
    return str(getattr(module, _MARK, FLOAT32))


def unwrap_parts(module: nn.Module) -> None:
    """Parts as they were before torch.compile: its wrappers run code made for other modules."""
    for part in list(module.modules()):
        for name, child in part._modules.items():
            inner = getattr(child, "_orig_mod", None)
            if isinstance(inner, nn.Module):
                part._modules[name] = inner
    for part in module.modules():
        if not isinstance(part, torch.jit.ScriptModule):
            _unwrap_forward(part)


def _unwrap_forward(part: nn.Module) -> None:
    """`forward` that was compiled by itself, on the module or on its class."""
    own = _before_compile(part.__dict__.get("forward"))
    if own is not None:
        del part.__dict__["forward"]
        function = getattr(own, "__func__", own)
        if function is not type(part).forward:
            part.forward = types.MethodType(function, part)
    plain = _before_compile(type(part).forward)
    if plain is not None:
        kind: Any = type(part)
        part.__class__ = _plain_class(kind, plain)


def _before_compile(function: Any) -> Any:
    """What torch.compile made a function from, None if it did not; methods it wraps twice."""
    plain = getattr(function, "_torchdynamo_orig_callable", None)
    inner = getattr(plain, "__wrapped__", None)
    return inner if isinstance(inner, types.MethodType) else plain


@functools.cache
def _plain_class(cls: type[nn.Module], forward: Any) -> type[nn.Module]:
    made: type[nn.Module] = type(
        cls.__name__, (cls,), {"forward": forward, "__module__": cls.__module__}
    )
    return made


def settle(module: nn.Module) -> None:
    """Weights that hooks make anew at each call (old-style weight_norm, pruning) become plain."""
    for part in module.modules():
        for hook in list(part._forward_pre_hooks.values()):
            if isinstance(hook, _WeightNorm):
                torch.nn.utils.remove_weight_norm(part, hook.name)
            elif isinstance(hook, prune.BasePruningMethod):
                prune.remove(part, hook._tensor_name)


def speak(root: nn.Module) -> None:
    """Let a model take and give tensors of its user's dtype."""
    name = dtype_of(root)
    if name == FLOAT32:
        return
    root.register_forward_pre_hook(_widen, with_kwargs=True)
    root.register_forward_hook(_Narrow(getattr(torch, name)))


def _widen(module: nn.Module, args: Any, kwargs: Any) -> Any:
    return pytree.tree_map_only(torch.Tensor, _float, (args, kwargs))


def _float(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.float() if tensor.is_floating_point() else tensor


class _Narrow:
    """A hook that gives outputs in the user's dtype."""

    def __init__(self, dtype: torch.dtype) -> None:
        self.dtype = dtype

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        def change(tensor: torch.Tensor) -> torch.Tensor:
            return tensor.to(self.dtype) if tensor.dtype == torch.float32 else tensor

        return pytree.tree_map_only(torch.Tensor, change, output)
