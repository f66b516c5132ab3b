"""Copies that share tensors: modules held in odd places follow, state does not leak."""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, default, noise
from lpot.backends.torch.clone import Cloner


class Holder:
    def __init__(self, module: nn.Module) -> None:
        self.module = module


class Odd(nn.Module):
    """Refers to its own children from a list, a method, a partial and an object."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = nn.Linear(4, 4)
        self.again = self.fc  # registered twice
        self.norm = nn.BatchNorm1d(4)
        self.register_buffer("table", torch.zeros(300, 300))
        self.steps = [self.fc, self.norm]
        self.method = self.fc.forward
        self.partial = functools.partial(self.call, self.fc)
        self.holder = Holder(self.fc)
        self.seen: list[int] = []

    def call(self, module: nn.Module, x: torch.Tensor) -> torch.Tensor:
        return module(x)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen.append(len(x))
        return self.partial(self.method(self.steps[0](x))) + self.holder.module(x)


@pytest.fixture
def original() -> Odd:
    return Odd().eval()


def test_a_copy_shares_weights_and_nothing_else(original: Odd) -> None:
    twin: Any = Cloner(original)()
    assert twin is not original
    assert twin.fc is not original.fc
    assert twin.fc.weight is original.fc.weight
    assert twin.table is original.table
    assert twin.norm.running_mean is not original.norm.running_mean
    twin.train()
    twin.norm(torch.randn(3, 4))
    twin.register_forward_hook(lambda *_: None)
    twin(torch.randn(3, 4))
    assert not original.training
    assert not original.seen
    assert not original._forward_hooks
    assert torch.equal(original.norm.running_mean, torch.zeros(4))


def test_references_follow_into_the_copy(original: Odd) -> None:
    twin: Any = Cloner(original)()
    assert twin.again is twin.fc
    assert twin.steps == [twin.fc, twin.norm]
    assert twin.method.__self__ is twin.fc
    assert twin.partial.args[0] is twin.fc
    assert twin.holder.module is twin.fc
    assert original.holder.module is original.fc


def test_a_substitute_is_found_everywhere(original: Odd) -> None:
    new = nn.Identity()
    twin: Any = Cloner(original)({id(original.fc): new})
    assert twin.fc is twin.again is twin.steps[0] is twin.holder.module is new
    assert original.fc is original.steps[0]


def test_a_root_can_be_replaced() -> None:
    root, new = nn.Linear(2, 2), nn.Identity()
    assert Cloner(root)({id(root): new}) is new


def _by_method(module: nn.Module) -> None:
    module.forward = MethodType(lambda self, x: 2 * type(self).forward(self, x), module)


def _by_closure(module: nn.Module) -> None:
    old = module.forward
    module.forward = lambda x: 2 * old(x)


def _by_partial(module: nn.Module) -> None:
    module.forward = functools.partial(lambda self, x: 2 * type(self).forward(self, x), module)


@pytest.mark.parametrize("replace", [_by_method, _by_closure, _by_partial])
def test_a_forward_put_on_a_module_counts(replace: Callable[[nn.Module], None]) -> None:
    """Its class has another one, which must not be read in its place; and it runs the copy."""
    module = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1))
    replace(nets.seeded(module).eval())
    model = BACKEND.load(module)
    batches = nets.images()
    observations = BACKEND.observe(model, batches, (0,))[0]
    built = BACKEND.build(model, default(model), observations)
    assert noise(model, built, batches) > 25
    truth, found = (BACKEND.run(item, batches[0])[0] for item in (model, built))
    assert (truth != found).any()  # it is INT8 indeed
