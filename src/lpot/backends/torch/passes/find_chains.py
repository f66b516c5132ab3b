"""Which batch norm and activation belong to a convolution or linear, read from captured graphs."""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional

from lpot.backends.torch.kinds import Layer, is_frozen_norm
from lpot.backends.torch.passes.capture_graph import Capture

_RELU = (functional.relu, torch.relu, torch.relu_, functional.relu_)
_NORM_OF = {
    nn.Conv1d: nn.BatchNorm1d,
    nn.Conv2d: nn.BatchNorm2d,
    nn.Conv3d: nn.BatchNorm3d,
    nn.ConvTranspose1d: nn.BatchNorm1d,
    nn.ConvTranspose2d: nn.BatchNorm2d,
    nn.ConvTranspose3d: nn.BatchNorm3d,
}
# Nothing happens there outside of training.
_IDLE = (nn.Identity, nn.Dropout, nn.Dropout1d, nn.Dropout2d, nn.Dropout3d)
_NORM_ARGUMENTS = ("running_mean", "running_var", "weight", "bias", "training", "momentum", "eps")


@dataclass(frozen=True, eq=False)
class Chain:
    """An op with what is swallowed behind it. `last` is the node whose value the chain gives."""

    first: fx.Node
    last: fx.Node
    norm: str | None = None  # model-wide name of the batch norm
    relu: bool = False
    clip: float | None = None  # relu6's upper bound

    @cached_property
    def nodes(self) -> tuple[fx.Node, ...]:
        found = [self.first]
        while found[-1] is not self.last:
            found.append(next(iter(found[-1].users)))
        return tuple(found)


def find_chains(
    captured: Capture, layers: Mapping[str, Layer], modules: Mapping[str, nn.Module]
) -> dict[str, Chain]:
    """Op name → chain, for ops called once with nothing but their input; others keep their own
    output."""
    nodes = captured.graph.nodes
    calls = Counter(captured.layer_of(node) or norm_of(captured, node, modules) for node in nodes)
    chains: dict[str, Chain] = {}
    for node in captured.graph.nodes:
        name = captured.layer_of(node)
        layer = layers.get(name) if name is not None else None
        if name is None or layer is None or calls[name] != 1 or not _is_plain_call(node):
            continue
        chains[name] = _chain(captured, node, layer, modules, calls)
    return chains


def _is_plain_call(node: fx.Node) -> bool:
    """A transposed convolution may be told its output's size."""
    return len(node.args) == 1 and not node.kwargs


def _chain(
    captured: Capture,
    node: fx.Node,
    layer: Layer,
    modules: Mapping[str, nn.Module],
    calls: Mapping[str | None, int],
) -> Chain:
    last, norm_name = node, None
    if layer.spec.family == "conv" and layer.norm is None and not layer.relu:
        after = _only_user(node)
        name = norm_of(captured, after, modules) if after is not None else None
        if after is not None and name is not None and calls[name] == 1:
            last, norm_name = (after, name) if _folds(layer.module, modules[name]) else (node, None)
    if layer.spec.family not in ("conv", "linear") or layer.relu:
        return Chain(node, last, norm_name)
    after = _only_user(last)
    while after is not None and _is_idle(captured, after, modules):
        after = _only_user(after)
    if after is not None and is_relu(captured, after, modules):
        return Chain(node, after, norm_name, relu=True)
    # A linear gives floats, which nothing would clip; a convolution's codes end where relu6 does.
    if after is not None and layer.spec.family == "conv" and _is_relu6(captured, after, modules):
        return Chain(node, after, norm_name, relu=True, clip=6.0)
    return Chain(node, last, norm_name)


def _only_user(node: fx.Node) -> fx.Node | None:
    users = list(node.users)
    if len(users) != 1 or users[0].op == "output" or users[0].args[:1] != (node,):
        return None
    return users[0]


def norm_of(captured: Capture, node: fx.Node, modules: Mapping[str, nn.Module]) -> str | None:
    """The model-wide name of the batch norm that a node computes and nothing else.

    Classes that go on to activate (timm's BatchNormAct2d) call the function with their tensors.
    """
    if node.op == "call_module":
        name = captured.layer_of(node)
        return name if name is not None and is_bare(modules[name]) else None
    if node.op != "call_function" or node.target not in (functional.batch_norm, torch.batch_norm):
        return None
    given = {**dict(zip(_NORM_ARGUMENTS, node.args[1:], strict=False)), **node.kwargs}
    owner = captured.owner_of(given.get("running_mean"))
    if owner is None or given.get("training") or not _reads_all(captured, given, owner):
        return None
    norm = modules[owner]
    fits = isinstance(norm, nn.modules.batchnorm._BatchNorm) and given.get("eps") == norm.eps
    return owner if fits else None


def _reads_all(captured: Capture, given: Mapping[str, Any], owner: str) -> bool:
    """Are the vectors those of one module, each in its place?"""
    for name in _NORM_ARGUMENTS[:4]:
        value: Any = given.get(name)
        right = captured.owner_of(value) == owner and str(value.target).endswith(f".{name}")
        if not right:
            return False
    return True


def _folds(conv: nn.Module, norm: nn.Module) -> bool:
    wanted = _NORM_OF.get(type(conv))
    if wanted is None or norm.running_mean is None or norm.running_var is None:
        return False
    kind = wanted is nn.BatchNorm2d if is_frozen_norm(norm) else isinstance(norm, wanted)
    return kind and len(norm.running_mean) == conv.out_channels


def is_bare(norm: nn.Module) -> bool:
    """Does it normalize and nothing else?"""
    return type(norm) in _NORM_OF.values() or is_frozen_norm(norm)


def gap_for(norm: nn.Module) -> nn.Module:
    """What stands where a folded batch norm was. One that does more goes on doing that."""
    if is_bare(norm):
        return nn.Identity().eval()
    twin: Any = copy.deepcopy(norm).eval()
    twin.eps = 0.0
    with torch.no_grad():
        for tensor, value in ((twin.running_mean, 0.0), (twin.running_var, 1.0)):
            tensor.fill_(value)
        twin.weight.fill_(1.0)
        twin.bias.fill_(0.0)
    return twin


def _is_idle(captured: Capture, node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    if node.op != "call_module":
        return False
    return type(modules[captured.targets[str(node.target)]]) in _IDLE


def is_relu(captured: Capture, node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return type(modules[captured.targets[str(node.target)]]) is nn.ReLU
    if node.op == "call_function":
        return node.target in _RELU
    return node.op == "call_method" and node.target in ("relu", "relu_")


def _is_relu6(captured: Capture, node: fx.Node, modules: Mapping[str, nn.Module]) -> bool:
    if node.op == "call_module":
        return type(modules[captured.targets[str(node.target)]]) is nn.ReLU6
    return node.op == "call_function" and node.target is functional.relu6


def swallowed(chains: Iterable[Chain]) -> dict[fx.Node, Chain]:
    """Every node of the chains, so that a walk over the graph can tell what belongs together."""
    return {node: chain for chain in chains for node in chain.nodes}
