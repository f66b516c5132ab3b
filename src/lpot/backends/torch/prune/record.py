"""Which channels belong together, read from the ops of one real run.

The run is watched below Python (`TorchDispatchMode`), so that any control flow is followed and
models that torch.fx can't read are served, too. Rules are in rules.py; what no rule knows fixes the
channels that it touches.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from lpot.backends.torch.data import arguments
from lpot.backends.torch.prune.flow import Flow
from lpot.backends.torch.prune.rules import RULES
from lpot.core.batch import Inputs
from lpot.core.compress.groups import Group, group_of
from lpot.core.compress.samples import first


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Hands each op to its rule."""

    def __init__(self, flow: Flow) -> None:
        super().__init__()
        self.flow = flow

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        out = func(*args, **kwargs)
        flow = self.flow
        given = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, torch.Tensor)]
        made = [leaf for leaf in tree_leaves(out) if isinstance(leaf, torch.Tensor)]
        flow.hold(given, made)
        rule = RULES.get(func.overloadpacket)
        if rule is None or not rule(flow, args, kwargs, out):
            flow.fix(given)
        return out


def find_groups(module: nn.Module, inputs: Inputs) -> list[Group]:
    """Every group of channels that could be removed, as far as rules tell."""
    positional, named = arguments(module, one_sample(inputs))
    own = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    names = {id(tensor): name for name, tensor in own.items()}
    flow = Flow(names, {name: tuple(tensor.shape) for name, tensor in own.items()})
    with torch.no_grad(), _layers_one_by_one(), _Recorder(flow):
        output = module(*positional, **named)
    flow.fix(leaf for leaf in tree_leaves(output) if isinstance(leaf, torch.Tensor))
    found = [
        group_of(stream, flow.places, flow.widths, flow.blocks) for stream in flow.ties.streams()
    ]
    return sorted((group for group in found if group is not None), key=lambda group: group.name)


@contextmanager
def _layers_one_by_one() -> Iterator[None]:
    """torch's encoder layers are one op in eval mode, in which no channels are seen."""
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def one_sample(inputs: Inputs) -> Inputs:
    """With one sample, views that merge the batch with heads can still be read."""
    return first(inputs, 1)
