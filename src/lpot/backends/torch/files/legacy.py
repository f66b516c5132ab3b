"""Checkpoints of lpot 1.x: the state of torch's own quantized modules, read into ours.

Each op's int8 weight is taken as it is. The range of an op's input is that of the value it reads,
which the file has under the module (or QuantStub) that made it: the data flow tells which.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import fx, nn

from lpot.backends.torch.abilities import activation_bits
from lpot.backends.torch.clone import Cloner
from lpot.backends.torch.describe import FORMAT, Described
from lpot.backends.torch.kernels.codes import is_coded, weight_parts
from lpot.backends.torch.kinds import Layer, is_fused
from lpot.backends.torch.passes.trace_calls import TRACE_ERRORS, Tracer
from lpot.backends.torch.prepare import Prepared
from lpot.core.errors import UnsupportedModel, a_kind
from lpot.core.recipe import OpConfig, OpKey, Recipe, TensorConfig

_PACKED = "._packed_params._packed_params"
_WRAPPED = ".module."  # 1.x puts an op that goes back to FP32 between two stubs
_MARKS = (".scale", ".zero_point", "._packed_params.dtype", _PACKED)


def translate(
    state: Mapping[str, Any], config: Mapping[str, Any], module: nn.Module, where: str
) -> Described:
    """The same model in our own words; what can't be carried over is refused by name."""
    prepared = Prepared(module)
    state = _unwrapped(state)
    tensors: dict[str, torch.Tensor] = {}
    ops: dict[str, dict[str, Any]] = {}
    recipe: dict[OpKey, OpConfig] = {}
    graph: fx.Graph | None = None
    for name, (weight, bias) in _packed(state, where):
        layer = prepared.layers.get(name)
        if layer is None or layer.spec.family not in ("linear", "conv"):
            raise UnsupportedModel(
                f"{where}: {name!r} is an int8 op in the file, but not a linear or convolution of "
                f"{type(module).__name__}: give the module that was tuned, with its stubs and "
                "fused modules"
            )
        dynamic = _is_dynamic(state, config, layer)
        ops[name] = {"kind": layer.key.kind}
        if not dynamic:
            graph = graph or _flow(module, state, where)
            ops[name]["inlet"] = _inlet(graph, state, name, where)
            ops[name]["outlet"] = _affine(_range(state, f"{name}.scale"))
        recipe[layer.key] = _op_config(weight, dynamic)
        tensors |= _weights(name, weight, bias, where)
    floats = {
        name: value
        for name, value in state.items()
        if isinstance(value, torch.Tensor) and not is_coded(value) and not _is_mark(name, state)
    }
    facts = {
        "format": FORMAT,
        "recipe": Recipe(recipe).to_json(),
        "ops": ops,
        "skipped": {},
        "parts": {},
        "folded": [],
        "aliases": {},
    }
    return Described({**floats, **tensors}, facts)


def _unwrapped(state: Mapping[str, Any]) -> dict[str, Any]:
    """Without the stubs that 1.x puts around an op left in FP32; the second has its range."""
    found = {}
    for key, value in state.items():
        head, mark, tail = key.rpartition(_WRAPPED)
        if mark and f"{head}.quant.scale" in state:
            key = f"{head}.{tail}"
        for end in (".scale", ".zero_point"):
            inner = key.removesuffix(f".quant{end}")
            if inner != key and any(other.startswith(f"{inner}{_WRAPPED}") for other in state):
                key = f"{inner}{end}"
        found[key] = value
    return found


def _packed(state: Mapping[str, Any], where: str) -> Iterator[tuple[str, tuple[Any, Any]]]:
    for key, value in state.items():
        if key.endswith(_PACKED):
            if not (isinstance(value, tuple) and len(value) == 2):
                raise UnsupportedModel(f"{where}: {key!r} is not a pair of weight and bias")
            yield key.removesuffix(_PACKED), value
        elif isinstance(value, torch.Tensor) and is_coded(value):
            if not key.endswith(".weight"):
                raise UnsupportedModel(f"{where}: {key!r} is an int8 tensor that no op here uses")
            name = key.removesuffix(".weight")
            yield name, (value, state.get(f"{name}.bias"))
        elif not isinstance(value, torch.Tensor) and not key.endswith(_MARKS):
            raise UnsupportedModel(
                f"{where}: {key!r} holds {a_kind(value)}, a kind of int8 module that is "
                "not supported: tune the FP32 model again"
            )


def _is_mark(name: str, state: Mapping[str, Any]) -> bool:
    """Ranges and words of int8 modules, and of stubs: no weights."""
    head, _, tail = name.rpartition(".")
    return tail in ("scale", "zero_point") and {f"{head}.scale", f"{head}.zero_point"} <= set(state)


def _is_dynamic(state: Mapping[str, Any], config: Mapping[str, Any], layer: Layer) -> bool:
    """A dynamic linear has the range of a module that was never calibrated: 1 and 0."""
    word = config.get("approach")
    if word is not None:
        return "dynamic" in str(word)
    scale = float(state.get(f"{layer.name}.scale", 1.0))
    stubs = any(key.endswith("quant.scale") for key in state)
    return scale == 1.0 and not stubs


def _inlet(graph: fx.Graph, state: Mapping[str, Any], name: str, where: str) -> dict[str, Any]:
    for node in graph.nodes:
        if node.op == "call_module" and node.target == name:
            found = {_range(state, key) for key in _sources(node, state)}
            if len(found) == 1:
                return _affine(found.pop())
    raise UnsupportedModel(
        f"{where}: the range of the input of {name!r} can't be derived from the module's data "
        "flow: tune the FP32 model again"
    )


def _sources(node: fx.Node, state: Mapping[str, Any]) -> Iterator[str]:
    """The names under which the file has the ranges of the values that an op reads."""
    own = f"{str(node.target).replace('.', '_')}_input_scale_0"  # of the graph mode's first op
    if own in state:
        yield own
        return
    stack = list(node.all_input_nodes)[:1]
    seen = set(stack)
    while stack:
        one = stack.pop()
        # FloatFunctional adds in the open, and its range is noted by a module inside it.
        module = str(one.target).removesuffix(".activation_post_process")
        known = [key for key in (f"{module}.scale", f"{one.name}_scale_0") if key in state]
        if known:
            yield known[0]
            continue
        fresh = [other for other in one.all_input_nodes if other not in seen]
        seen.update(fresh)
        stack += fresh


class _Tracer(Tracer):
    """Stops at everything that the file may hold a range of."""

    def __init__(self, state: Mapping[str, Any]) -> None:
        super().__init__()
        self._state = state

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        known = f"{module_qualified_name}.scale" in self._state
        return known or is_fused(m) or bool(super().is_leaf_module(m, module_qualified_name))


def _flow(module: nn.Module, state: Mapping[str, Any], where: str) -> fx.Graph:
    try:
        return _Tracer(state).trace(Cloner(module)())
    except TRACE_ERRORS as error:
        raise UnsupportedModel(
            f"{where}: the data flow of {type(module).__name__} can't be read ({error}), and "
            "without it the ranges in a file of lpot 1.x mean nothing: tune the FP32 model again"
        ) from error


def _range(state: Mapping[str, Any], key: str) -> tuple[float, int]:
    return float(state[key]), int(state[key.replace("scale", "zero_point")])


def _affine(found: tuple[float, int]) -> dict[str, Any]:
    return {"scale": found[0], "zero_point": found[1]}


def _op_config(weight: torch.Tensor, dynamic: bool) -> OpConfig:
    per_channel = weight.qscheme() in (torch.per_channel_affine, torch.per_channel_symmetric)
    activation = TensorConfig("uint8", "asym", "per_tensor", "minmax", activation_bits())
    granularity = "per_channel" if per_channel else "per_tensor"
    return OpConfig(
        activation,
        TensorConfig("int8", "sym", granularity, "minmax", 8),
        "dynamic" if dynamic else "static",
    )


def _weights(
    name: str, weight: torch.Tensor, bias: torch.Tensor | None, where: str
) -> dict[str, torch.Tensor]:
    parts = weight_parts(weight)
    if parts is None:
        raise UnsupportedModel(f"{where}: the weight of {name!r} is {weight.dtype}, not qint8")
    values, scale, zeros = parts
    if bool((zeros != 0).any()):
        raise UnsupportedModel(
            f"{where}: the weight of {name!r} is asymmetric, which the kernels here don't support: "
            "tune the FP32 model again"
        )
    found = {f"{name}.weight_int8": values, f"{name}.weight_scale": scale.float()}
    if bias is not None:
        found[f"{name}.bias"] = bias.detach()
    return found
