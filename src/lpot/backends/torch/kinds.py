"""Which modules are ops that can run in low precision, and why the others can't."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn
from torch.jit import ScriptModule

from lpot.core.recipe import OpKey

Family = Literal["linear", "conv", "embedding", "recurrent", "attention"]


@dataclass(frozen=True)
class OpSpec:
    """What is common to all ops of one class."""

    family: Family
    axis: int = 0  # the weight's axis of output channels
    static: bool = False
    dynamic: bool = False
    per_channel: bool = True


_LINEAR = OpSpec("linear", static=True, dynamic=True)
_CONV = OpSpec("conv", static=True)
# fbgemm has no per-channel transposed convolution.
_CONV_TRANSPOSE = OpSpec("conv", axis=1, static=True, per_channel=False)
_LOOKUP = OpSpec("embedding", dynamic=True)
_RECURRENT = OpSpec("recurrent", dynamic=True)

CALLS = "_lpot_calls"  # where a module keeps which of its calls are layers

SPECS: Mapping[type[nn.Module], OpSpec] = {
    nn.Linear: _LINEAR,
    nn.Conv1d: _CONV,
    nn.Conv2d: _CONV,
    nn.Conv3d: _CONV,
    nn.ConvTranspose1d: _CONV_TRANSPOSE,
    nn.ConvTranspose2d: _CONV_TRANSPOSE,
    nn.ConvTranspose3d: _CONV_TRANSPOSE,
    nn.Embedding: _LOOKUP,
    nn.EmbeddingBag: _LOOKUP,
    nn.LSTM: _RECURRENT,
    nn.GRU: _RECURRENT,
    nn.MultiheadAttention: OpSpec("attention", dynamic=True),
}

_NORMS = (
    nn.modules.batchnorm._BatchNorm,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.modules.instancenorm._InstanceNorm,
    nn.LocalResponseNorm,
    nn.RMSNorm,
)
_POOLS = (
    nn.modules.pooling._MaxPoolNd,
    nn.modules.pooling._AvgPoolNd,
    nn.modules.pooling._AdaptiveAvgPoolNd,
    nn.modules.pooling._AdaptiveMaxPoolNd,
)
_MARKERS = ("QuantStub", "DeQuantStub", "FloatFunctional", "FXFloatFunctional", "QFunctional")


@dataclass(frozen=True, eq=False)
class Layer:
    """One op of one model: where it sits and the float modules that make it up.

    `norm` and `relu` belong to a module that the user fused by hand (ConvBnReLU2d and the like).
    """

    key: OpKey
    spec: OpSpec
    module: nn.Module  # the one with the weight
    norm: nn.Module | None = None
    relu: bool = False

    @property
    def name(self) -> str:
        return self.key.name


def is_hf_conv1d(module: nn.Module) -> bool:
    """GPT-2's Conv1D: a linear layer with its weight transposed."""
    kind = type(module)
    return kind.__name__ == "Conv1D" and kind.__module__.startswith("transformers.")


def is_fused(module: nn.Module) -> bool:
    """A result of fuse_modules, in float."""
    kind = type(module)
    return (
        isinstance(module, nn.Sequential)
        and ".nn.intrinsic." in f"{kind.__module__}."
        and ".qat." not in kind.__module__
        and len(module) > 1
    )


def is_frozen_norm(module: nn.Module) -> bool:
    """A batch norm of detection nets, whose four vectors are buffers (torchvision's, DETR's)."""
    names = {"weight", "bias", "running_mean", "running_var"}
    return (
        type(module).__name__.endswith("FrozenBatchNorm2d")
        and set(module._buffers) == names
        and not module._parameters
    )


def is_op(module: nn.Module) -> bool:
    """Is it one op, whatever it calls inside?"""
    return isinstance(_spec(module), OpSpec) or type(module) in SPECS or is_fused(module)


def find(root: nn.Module) -> tuple[dict[str, Layer], dict[OpKey, str]]:
    """The ops of a model by name, and the leaf modules that can't be low with the reason."""
    layers: dict[str, Layer] = {}
    others: dict[OpKey, str] = {}
    for name, module in _walk(root):
        key = OpKey(name, type(module).__name__)
        found = _recognise(key, module)
        if isinstance(found, Layer):
            layers[name] = found
        elif found:
            others[key] = found
    return layers, others


def _walk(root: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    """Modules in order, each once; what is inside an op is not walked."""
    seen: set[int] = set()
    stack = [("", root)]
    while stack:
        name, module = stack.pop()
        if id(module) in seen:
            continue
        seen.add(id(module))
        yield name, module
        if type(module) in SPECS or is_fused(module) or isinstance(module, ScriptModule):
            seen.update(id(inner) for inner in module.modules())
            continue
        prefix = f"{name}." if name else ""
        stack.extend(
            (prefix + child, inner)
            for child, inner in reversed(module._modules.items())
            if inner is not None
        )


def _recognise(key: OpKey, module: nn.Module) -> Layer | str:
    if isinstance(module, ScriptModule):
        return "compiled by TorchScript: its layers can't be replaced"
    if is_fused(module):
        return _fused(key, module)
    if module.__dict__.get(CALLS):
        return ""  # its calls are ops
    spec = _spec(module)
    if isinstance(spec, OpSpec):
        return Layer(key, spec, module)
    if spec:
        return spec
    if not any(True for _ in module.children()):
        return _why_not(module)
    large = [name for name, item in module._parameters.items() if _is_large(item)]
    return f"{', '.join(large)}: {_UNSEEN}" if large else ""


_UNSEEN = (
    "its forward uses the weight in a way that no INT8 layer serves (or that no calibration data "
    "showed): a product by nn.Linear or F.linear can be INT8"
)


def _is_large(parameter: nn.Parameter | None) -> bool:
    return parameter is not None and parameter.dim() > 1 and parameter.numel() >= 1024


def _spec(module: nn.Module) -> OpSpec | str:
    """The op's spec, the reason why this instance can't be served, or '' for no op at all."""
    kind = type(module)
    if is_hf_conv1d(module):
        base, spec = kind, _LINEAR
    else:
        found = next((cls for cls in kind.__mro__ if cls in SPECS), None)
        if found is None:
            return ""
        base, spec = found, SPECS[found]
    if _differs(module, kind, base):
        return (
            f"{kind.__name__} is a {base.__name__} with a custom forward in which no product with "
            "its weight was seen (calibration data show such calls)"
        )
    if module._forward_hooks or module._forward_pre_hooks:
        return (
            "it has forward hooks, which a replacement would lose: remove them while tuning, or "
            "put them on the module around it"
        )
    if kind.__module__.startswith("torch.ao.nn.qat"):
        return "it is already prepared for quantization-aware training"
    return _limits(module, spec)


def _differs(module: nn.Module, kind: type, base: type) -> bool:
    """Does it compute something of its own? Convolutions have a second place for that."""
    places = ("forward", "_conv_forward", "__call__")
    changed = any(getattr(kind, name, None) is not getattr(base, name, None) for name in places)
    return changed or "forward" in module.__dict__


def _limits(module: nn.Module, spec: OpSpec) -> OpSpec | str:
    """Instances that their kernels can't serve."""
    if isinstance(module, nn.Embedding | nn.EmbeddingBag) and module.max_norm is not None:
        return "max_norm changes the weights at run time"
    if isinstance(module, nn.EmbeddingBag) and module.mode == "max":
        return "no INT8 kernel for the bag mode 'max'"
    if isinstance(module, nn.LSTM) and module.proj_size:
        return "no INT8 kernel for an LSTM with projections"
    if isinstance(module, nn.MultiheadAttention):
        plain = module._qkv_same_embed_dim and module.bias_k is None and not module.add_zero_attn
        return spec if plain else "attention with separate key/value sizes or added biases"
    if type(module).__name__ == "NonDynamicallyQuantizableLinear":
        return "its weight is read by the attention around it"
    weight = getattr(module, "weight", None)
    if weight is not None and (weight.numel() == 0 or weight.is_meta):
        return "its weight is empty"
    if weight is not None and weight.dtype in (torch.float16, torch.bfloat16):
        return "it is in 16 bits amid layers in float32: it is left as it is"
    return spec


def _fused(key: OpKey, module: nn.Module) -> Layer | str:
    parts = list(module.children())
    spec = _spec(parts[0])
    if not isinstance(spec, OpSpec) or spec.family not in ("conv", "linear"):
        return f"no INT8 kernel for the fused {key.kind}"
    norm = next((part for part in parts[1:] if isinstance(part, _NORMS)), None)
    relu = isinstance(parts[-1], nn.ReLU)
    if len(parts) != 1 + (norm is not None) + relu:
        return f"no INT8 kernel for the fused {key.kind}"
    return Layer(key, spec, parts[0], norm, relu)


def _why_not(module: nn.Module) -> str:
    kind = type(module).__name__
    if kind in _MARKERS:
        return "a stub for manual quantization: not needed, has no effect"
    if isinstance(module, nn.modules.batchnorm._BatchNorm):
        return "folded into the convolution before it if there is one, FP32 otherwise"
    if isinstance(module, _NORMS):
        return "normalization: INT8 costs accuracy and gains nothing"
    if isinstance(module, _POOLS):
        return "pooling gains only between INT8 neighbours; no weights"
    if type(module).__module__.startswith("torch.ao.nn"):
        return "already quantized or prepared for it"
    if any(True for _ in module.parameters(recurse=False)):
        large = any(map(_is_large, module._parameters.values()))
        return f"{kind}: {_UNSEEN}" if large else f"no INT8 kernel for {kind}"
    return "no weights: cheap, stays FP32"


def has_products(module: nn.Module) -> bool:
    """Does it hold a matrix or a kernel, whatever it does with it? Norms and lookups do not."""
    if isinstance(module, (*_NORMS, nn.Embedding, nn.EmbeddingBag)):
        return False
    inherits = any(cls in SPECS for cls in type(module).__mro__)
    return inherits or any(_is_large(parameter) for parameter in module._parameters.values())
