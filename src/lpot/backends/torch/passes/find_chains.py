"""Which batch norm and activation belong to a convolution or linear, read from captured graphs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import fx, nn
from torch.nn import functional

from lpot.backends.torch.kinds import Site
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
    captured: Capture, sites: Mapping[str, Site], modules: Mapping[str, nn.Module]
) -> dict[str, Chain]:
    """Op name → chain, for ops called once; an op called again keeps its own output."""
    calls = Counter(captured.site_of(node) for node in captured.graph.nodes)
    chains: dict[str, Chain] = {}
    for node in captured.graph.nodes:
        name = captured.site_of(node)
        site = sites.get(name) if name is not None else None
        if name is None or site is None or calls[name] != 1:
            continue
        chains[name] = _chain(captured, node, site, modules, calls)
    return chains


def _chain(
    captured: Capture,
    node: fx.Node,
    site: Site,
    modules: Mapping[str, nn.Module],
    calls: Mapping[str | None, int],
) -> Chain:
    last, norm_name = node, None
    if site.spec.family == "conv" and site.norm is None and not site.relu:
        after = _only_user(node)
        name = captured.site_of(after) if after is not None else None
        if after is not None and name is not None and calls[name] == 1:
            last, norm_name = (after, name) if _folds(site.module, modules[name]) else (node, None)
    if site.spec.family not in ("conv", "linear") or site.relu:
        return Chain(node, last, norm_name)
    after = _only_user(last)
    if after is not None and is_relu(captured, after, modules):
        return Chain(node, after, norm_name, relu=True)
    # A linear gives floats, which nothing would clip; a convolution's codes end where relu6 does.
    if after is not None and site.spec.family == "conv" and _is_relu6(captured, after, modules):
        return Chain(node, after, norm_name, relu=True, clip=6.0)
    return Chain(node, last, norm_name)


def _only_user(node: fx.Node) -> fx.Node | None:
    users = list(node.users)
    if len(users) != 1 or users[0].op == "output" or users[0].args[:1] != (node,):
        return None
    return users[0]


def _folds(conv: nn.Module, norm: nn.Module) -> bool:
    wanted = _NORM_OF.get(type(conv))
    return (
        wanted is not None
        and type(norm) is wanted
        and norm.running_mean is not None
        and norm.running_var is not None
        and norm.num_features == conv.out_channels
    )


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
