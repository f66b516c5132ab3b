"""Programs of torch.export: functions that read weights made layers again, under their old names.

An exported program is one flat graph of aten's functions, and layers are what is tuned.
"""

from __future__ import annotations

import copy
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

_aten: Any = torch.ops.aten
# A function's arguments by name; tensors stand for nodes that are weights.
Given = Mapping[str, Any]

_CONVS: Mapping[Any, type[nn.Module]] = {
    _aten.conv1d.default: nn.Conv1d,
    _aten.conv1d.padding: nn.Conv1d,
    _aten.conv2d.default: nn.Conv2d,
    _aten.conv2d.padding: nn.Conv2d,
    _aten.conv3d.default: nn.Conv3d,
    _aten.conv3d.padding: nn.Conv3d,
    _aten.conv_transpose1d.default: nn.ConvTranspose1d,
    _aten.conv_transpose2d.input: nn.ConvTranspose2d,
    _aten.conv_transpose3d.input: nn.ConvTranspose3d,
}
_NORMS = {2: nn.BatchNorm1d, 3: nn.BatchNorm1d, 4: nn.BatchNorm2d, 5: nn.BatchNorm3d}
# By these names the passes know what INT8 values go through.
_FUNCTIONS: Mapping[Any, Callable[..., Any]] = {
    _aten.relu.default: functional.relu,
    _aten.relu_.default: torch.relu_,
    _aten.add.Tensor: operator.add,
    _aten.add_.Tensor: operator.iadd,
    _aten.cat.default: torch.cat,
    _aten.flatten.using_ints: torch.flatten,
    _aten.max_pool2d.default: functional.max_pool2d,
    _aten.avg_pool2d.default: functional.avg_pool2d,
    _aten.adaptive_avg_pool2d.default: functional.adaptive_avg_pool2d,
}


def is_exported(source: Any) -> bool:
    """A program, or the module that its method `module` gives."""
    if isinstance(source, torch.export.ExportedProgram):
        return True
    return isinstance(source, fx.GraphModule) and hasattr(source, "range_constraints")


def layered(source: Any) -> nn.Module:
    """The program as a module of layers, which share its parameters."""
    flat = source.module() if isinstance(source, torch.export.ExportedProgram) else source
    graph = copy.deepcopy(flat.graph)
    _recompose(graph)
    layers = _Layers(flat)
    for node in list(graph.nodes):
        if node.op == "call_module" and _is_check(flat.get_submodule(str(node.target))):
            graph.erase_node(node)
        elif node.op == "call_function" and not layers.replace(node) and not node.kwargs:
            node.target = _FUNCTIONS.get(node.target, node.target)
    parts = layers.parts
    for node in list(graph.nodes):
        if node.op == "get_attr" and not node.users:
            graph.erase_node(node)
        elif node.op == "get_attr":
            parts[node.target] = operator.attrgetter(node.target)(flat)
        elif node.op == "call_module":
            parts.setdefault(node.target, flat._modules.get(node.target))
    made: Any = fx.GraphModule(parts, graph)
    made._in_spec, made._out_spec = flat._in_spec, flat._out_spec
    module: nn.Module = made.eval()
    return module


def _recompose(graph: fx.Graph) -> None:
    """What `run_decompositions` took apart: products with a turned weight, convolutions."""
    for node in list(graph.nodes):
        if node.target is _aten.convolution.default:
            x, weight, bias, stride, padding, dilation, turned, out, groups = node.args
            dims = len(stride)
            kind = getattr(_aten, f"conv{'_transpose' if turned else ''}{dims}d")
            more = (out, groups, dilation) if turned else (dilation, groups)
            node.args = (x, weight, bias, stride, padding, *more)
            node.target = kind.input if turned and dims > 1 else kind.default
        elif node.target in (_aten.addmm.default, _aten.mm.default) and not node.kwargs:
            bias, x, turned = (None, *node.args)[-3:]
            weight = _unturned(turned)
            if weight is not None:
                node.target, node.args = _aten.linear.default, (x, weight, bias)
                if not turned.users:
                    graph.erase_node(turned)


def _unturned(node: Any) -> fx.Node | None:
    """The weight of which this is the transpose."""
    if not isinstance(node, fx.Node) or node.kwargs:
        return None
    swaps = node.target is _aten.t.default or (
        node.target is _aten.permute.default and list(node.args[1]) == [1, 0]
    )
    weight = node.args[0] if swaps else None
    return weight if isinstance(weight, fx.Node) and weight.op == "get_attr" else None


def _is_check(module: nn.Module) -> bool:
    """Of the inputs' shapes: torch puts it in front."""
    return type(module).__name__ == "GuardsFn"


class _Layers:
    """Makes layers, one for all calls that are alike."""

    def __init__(self, flat: fx.GraphModule) -> None:
        self._flat = flat
        self._known: dict[str, str] = {}  # function and arguments but the input → name
        self.parts: dict[str, Any] = {}  # layers by name

    def replace(self, node: fx.Node) -> bool:
        given = self._given(node)
        weight = None if given is None else given.get("weight")
        if given is None or not isinstance(weight, fx.Node):
            return False
        data = given.get("input", given.get("indices"))
        rest = {name: value for name, value in given.items() if value is not data}
        tensors = {n: self._tensor(value) for n, value in rest.items()}
        if not isinstance(data, fx.Node) or any(isinstance(v, fx.Node) for v in tensors.values()):
            return False
        layer = _layer(node, data, tensors)
        if layer is None:
            return False
        known = f"{node.target} {rest}"
        name = self._known.setdefault(known, self._name(str(weight.target), node))
        self.parts.setdefault(name, layer)
        node.op, node.target, node.args, node.kwargs = "call_module", name, (data,), {}
        return True

    def _given(self, node: fx.Node) -> dict[str, Any] | None:
        schema = getattr(node.target, "_schema", None)
        if schema is None:
            return None
        defaults = {item.name: item.default_value for item in schema.arguments}
        given = dict(zip(defaults, node.args, strict=False))
        return {**defaults, **given, **node.kwargs}

    def _tensor(self, value: Any) -> Any:
        """What a node reads of the program; a node that computes stays one."""
        if isinstance(value, fx.Node) and value.op == "get_attr":
            return operator.attrgetter(str(value.target))(self._flat)
        return value

    def _name(self, weight: str, node: fx.Node) -> str:
        """The name that its owner had, where no other layer has it."""
        owner, _, leaf = weight.rpartition(".")
        return owner if owner and leaf == "weight" and owner not in self.parts else node.name


def _layer(node: fx.Node, data: fx.Node, given: Given) -> nn.Module | None:
    """What computes the node, None where no layer does."""
    target, weight = node.target, given["weight"]
    if target is _aten.linear.default and weight.dim() == 2:
        return _filled(nn.Linear(*reversed(weight.shape), device="meta"), given)
    if target is _aten.embedding.default:
        padding = given["padding_idx"]
        return _filled(
            nn.Embedding(*weight.shape, padding if padding >= 0 else None, device="meta"), given
        )
    if target is _aten.layer_norm.default:
        size, eps = tuple(given["normalized_shape"]), given["eps"]
        return _filled(nn.LayerNorm(size, eps, device="meta"), given)
    if target is _aten.batch_norm.default:
        kind = _NORMS.get(data.meta["val"].dim()) if "val" in data.meta else None
        if kind is None or given["training"] or given["running_mean"] is None:
            return None
        return _filled(kind(len(weight), given["eps"], device="meta"), given)
    return _convolution(_CONVS[target], given) if target in _CONVS else None


def _convolution(kind: Any, given: Given) -> nn.Module:
    weight, groups = given["weight"], given["groups"]
    first, second = weight.shape[:2]
    names = ("stride", "padding", "dilation", "output_padding")
    options = {n: _plain(given[n]) for n in names if n in given}
    up = issubclass(kind, nn.modules.conv._ConvTransposeNd)
    inside, outside = (first, second * groups) if up else (second * groups, first)
    made = kind(inside, outside, tuple(weight.shape[2:]), groups=groups, device="meta", **options)
    return _filled(made, given)


def _plain(value: Any) -> Any:
    return value if isinstance(value, str) else tuple(value)


def _filled(layer: nn.Module, given: Given) -> nn.Module:
    """With the program's own tensors."""
    for name in layer._parameters:
        value = given.get(name)
        is_own = value is None or isinstance(value, nn.Parameter)
        layer._parameters[name] = value if is_own else nn.Parameter(value, requires_grad=False)
    for name in layer._buffers:
        layer._buffers[name] = given.get(name, torch.tensor(0))
    return layer.eval()
