"""What all low-precision modules share: the original's attributes and plain int8 buffers."""

from __future__ import annotations

import functools
from collections import OrderedDict
from collections.abc import Mapping
from typing import Any

import torch
from torch import fx, nn

from lpot.backends.torch.kernels.codes import is_coded
from lpot.backends.torch.weights import Weights
from lpot.core.errors import UnsupportedModel

RELOAD = "load the other model from its folder, with lpot.load(folder, module=module)"
MOVE = (
    "a quantized module stays on the CPU and in its dtype: tune the model in the dtype that you "
    "want (model.half()), and the INT8 model takes and returns that"
)
TRACED = (
    "a quantized module can't be traced or scripted (torch.jit, torch.fx): run it as it is, or "
    "write it with result.model.export(path), to *.onnx or *.pt2, and evaluate it untraced"
)
PICKLE = (
    "a quantized module can't be pickled (by torch.save, or for a spawned process): save it with "
    "result.model.save(folder) and load it there with lpot.load(folder, module=module); its "
    "state_dict() holds plain tensors and can be saved"
)

ASKED = "asked"  # the name of a parameter without values
# Values of the original that are copied.
_PLAIN = (int, float, str, bool, tuple, list, type(None))


class StandIn(nn.Module):  # type: ignore[misc]
    """A module in the place of another one. A forward that asks `isinstance(layer, nn.Conv2d)` gets
    the answer that it would have got from the original; `type` tells the truth."""

    def stand_for(self, original: nn.Module) -> None:
        self.__dict__["_stands_for"] = original.__class__

    @property  # type: ignore[misc]
    def __class__(self) -> Any:
        return self.__dict__.get("_stands_for", type(self))

    def _get_name(self) -> str:
        return type(self).__name__

    def take_after(self, original: nn.Module) -> None:
        """The original's attributes: code may ask for `in_features` or `stride`."""
        for name, value in original.__dict__.items():
            if not name.startswith("_") and isinstance(value, _PLAIN) and name not in self.__dict__:
                self.__dict__[name] = value

    def settle(self) -> None:
        """Really be of the original's class from now on: torch.export makes classes from the one
        that a module claims to be of."""
        kind: Any = type(self)
        original = self.__dict__.get("_stands_for", kind)
        if not issubclass(kind, original):
            _CLASS.__set__(self, _settled(kind, original))


_CLASS: Any = object.__dict__["__class__"]


@functools.cache
def _settled(kind: type, original: type) -> type:
    return type(kind.__name__, (kind, original), {"__class__": _CLASS})


class LowModule(StandIn):
    """Holds int8 weights under `<name>_int8`, `<name>_scale` and biases under their own names.

    `parts` maps a weight's name in the original ("weight", "weight_ih_l0") to its integers. Only
    these buffers go into a state dict; what kernels pack from them is derived.
    """

    kind: str  # class of the module replaced

    def __init__(self, original: nn.Module, parts: Mapping[str, Weights]) -> None:
        super().__init__()
        self.take_after(original)
        self.stand_for(original)
        self.kind = type(original).__name__
        self.parts = dict(parts)
        self._real: dict[str, torch.Tensor] = {}
        for name, weights in self.parts.items():
            self.register_buffer(f"{name}_int8", weights.values)
            self.register_buffer(f"{name}_scale", weights.scale)
            self.register_buffer(bias_name(name), weights.bias)
            if weights.smooth is not None:
                self.register_buffer(f"{name}_smooth", weights.smooth)
        # Code asks `next(model.parameters())` for device and dtype, of a net wholly in int8, too.
        dtype = next((p.dtype for p in original.parameters() if p.is_floating_point()), None)
        self.register_parameter(ASKED, nn.Parameter(torch.empty(0, dtype=dtype), False))
        self.training = False

    def _save_to_state_dict(self, destination: Any, prefix: str, keep_vars: bool) -> None:
        super()._save_to_state_dict(destination, prefix, keep_vars)
        destination.pop(prefix + ASKED, None)

    def __deepcopy__(self, memo: dict[int, Any]) -> LowModule:
        """A module of its own that shares integers and packs, which never change."""
        twin = type(self).__new__(type(self))
        memo[id(self)] = twin
        containers = {
            name: value.copy() if type(value) in (dict, OrderedDict) else value
            for name, value in self.__dict__.items()
        }
        twin.__dict__.update(containers)
        return twin

    def __reduce_ex__(self, protocol: Any) -> Any:
        raise UnsupportedModel(PICKLE)

    def _apply(self, fn: Any, recurse: bool = True) -> LowModule:
        """What .to(), .half() and .cuda() call: packed integers can't follow them."""
        scale = next(iter(self.parts.values())).scale
        moved = fn(scale.clone())
        if moved.dtype != scale.dtype or moved.device != scale.device:
            raise UnsupportedModel(MOVE)
        made: LowModule = super()._apply(fn, recurse)
        return made

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        unexpected_keys: list[str],
        error_msgs: list[str],
    ) -> None:
        """Its own tensors are there already: those of another model would go unnoticed by what was
        packed from them."""
        wrong = self.strangers(state_dict, prefix)
        error_msgs.extend(f"{key} is packed and can't be replaced: {RELOAD}" for key in wrong)
        names = {prefix + name for name, mine in self._buffers.items() if mine is not None}
        missing_keys.extend(sorted(names - set(state_dict)))
        if strict:
            unexpected_keys.extend(
                key for key in state_dict if key.startswith(prefix) and key not in names
            )

    def strangers(self, state_dict: Mapping[str, Any], prefix: str) -> list[str]:
        """The keys of a state dict that hold other values than this module, or the original's."""
        given = {name: state_dict.get(prefix + name) for name in {*self.parts, *self._buffers}}
        return [
            prefix + name
            for name, value in given.items()
            if value is not None and not _equal(value, self._buffers.get(name))
        ]

    def real(self, name: str) -> torch.Tensor:
        """A weight as floats: what the integers stand for, made when somebody asks."""
        if name not in self._real:
            self._real[name] = self.parts[name].real()
        return self._real[name]

    @property
    def weight(self) -> torch.Tensor:
        return self.real("weight")

    def facts(self) -> dict[str, Any]:
        """All that is needed besides the tensors to make this module again. JSON."""
        raise NotImplementedError

    def extra_repr(self) -> str:
        return ", ".join(f"{key}={value}" for key, value in self.facts().items())


def _equal(given: torch.Tensor, mine: torch.Tensor | None) -> bool:
    return mine is not None and given.shape == mine.shape and torch.equal(given, mine)


def refuse_strangers(root: nn.Module) -> None:
    """Let a model refuse another one's state before any tensor of it is taken over."""
    root.register_load_state_dict_pre_hook(_refuse)


def _refuse(root: nn.Module, state_dict: Mapping[str, Any], prefix: str, *others: Any) -> None:
    for name, part in root.named_modules(prefix=prefix.removesuffix(".")):
        wrong = (
            part.strangers(state_dict, f"{name}." if name else "")
            if isinstance(part, LowModule)
            else ()
        )
        if wrong:
            raise RuntimeError(f"{wrong[0]} is packed and can't be replaced: {RELOAD}")


def refuse_tracing(x: Any) -> None:
    """torch.jit.trace and torch.fx can't follow a call into packed integers."""
    if torch._C._get_tracing_state() is not None or isinstance(x, fx.Proxy):
        raise UnsupportedModel(TRACED)


def bias_name(weight: str) -> str:
    """weight → bias, weight_ih_l0 → bias_ih_l0, in_proj_weight → in_proj_bias."""
    return weight.replace("weight", "bias")


def as_inlet(x: torch.Tensor) -> torch.Tensor:
    refuse_tracing(x)
    return x if x.dtype == torch.float32 or is_coded(x) else x.float()
