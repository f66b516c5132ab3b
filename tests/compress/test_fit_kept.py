"""The weights that are left beside zeros are fitted to what the full model's layers give."""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

from lpot.backends.torch.prune.fit_kept import fit_kept
from lpot.core.compress.masks import magnitude
from lpot.experimental import Pruning

DRAW = np.random.default_rng(0)
# Inputs that hang together, as those of real layers do: 24 of them from 8.
MIX = DRAW.normal(size=(8, 24)).astype(np.float32)
BATCHES = [((DRAW.normal(size=(128, 8)).astype(np.float32) @ MIX),) for _ in range(4)]


class Net(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(24, 32), nn.Linear(32, 24, bias=False)
        self.drop, self.last = nn.Dropout(0.5), nn.Linear(24, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        inner = self.second(functional.relu(self.first(x)))
        return self.last(self.drop(x + inner))


def thinned(net: nn.Module, share: float, names: tuple[str, ...]) -> dict[str, Any]:
    keep = {}
    for name in names:
        weight = net.get_parameter(name)
        keep[name] = magnitude(weight.detach().numpy(), share)
        with torch.no_grad():
            weight.mul_(torch.from_numpy(keep[name]))
    return keep


def apart(one: nn.Module, other: nn.Module) -> float:
    with torch.no_grad():
        found = [(net.eval()(torch.tensor(BATCHES[0][0]))) for net in (one, other)]
    return float((found[0] - found[1]).square().mean() / found[1].square().mean())


@pytest.mark.parametrize("mode", [False, True])
def test_outputs_come_nearer_and_zeros_stay(mode: bool) -> None:
    full = Net().eval()
    small = copy.deepcopy(full).train(mode)
    keep = thinned(small, 0.6, ("first.weight", "second.weight"))
    before = apart(copy.deepcopy(small), full)
    last = small.last.weight.detach().clone()
    assert fit_kept(small, full, keep, BATCHES) == ["first", "second"]
    assert small.training is mode
    assert apart(copy.deepcopy(small), full) < 0.3 * before
    for name, mask in keep.items():
        assert not small.get_parameter(name).detach().numpy()[~mask].any()
    assert torch.equal(small.last.weight, last)  # it is not pruned


def test_a_convolution_is_fitted_as_exactly_as_it_can_be() -> None:
    """Against the normal equations, solved row by row."""
    torch.manual_seed(0)
    full = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1))
    images = [(DRAW.normal(size=(8, 3, 6, 6)).astype(np.float32),)]
    small = copy.deepcopy(full)
    keep = thinned(small, 0.5, ("0.weight",))
    fit_kept(small, full, keep, images)
    columns = functional.unfold(torch.tensor(images[0][0]), 3, padding=1)
    rows = columns.transpose(1, 2).reshape(-1, 27).double()
    rows = torch.cat([rows, torch.ones(len(rows), 1).double()], 1)
    with torch.no_grad():
        wanted = full(torch.tensor(images[0][0])).flatten(2).transpose(1, 2).reshape(-1, 4)
    for row in range(4):
        chosen = [*np.flatnonzero(keep["0.weight"][row].reshape(-1)), 27]
        exact = torch.linalg.lstsq(rows[:, chosen], wanted[:, row].double()).solution
        found = torch.cat([small[0].weight[row].flatten(), small[0].bias[row : row + 1]])[chosen]
        torch.testing.assert_close(found.double(), exact, rtol=0.1, atol=0.01)


def pruned(refit: bool, net: nn.Module) -> Pruning:
    """No step of the training moves anything."""
    section = {"target_sparsity": 0.6, "end_epoch": 3, "refit": refit}
    train = {
        "end_epoch": 3,
        "optimizer": {"SGD": {"learning_rate": 1e-9}},
        "criterion": {"KnowledgeDistillationLoss": {"loss_weights": [0.0, 1.0]}},
    }
    door = Pruning(
        {
            "model": {"name": "net", "framework": "pytorch"},
            "pruning": {"train": train, "approach": {"weight_compression": section}},
        }
    )
    door.model, door.train_dataloader = net, [(inputs, None) for (inputs,) in BATCHES]
    door()
    return door


def test_pruning_by_yaml_fits_and_can_be_told_not_to() -> None:
    full = Net().eval()
    found = {}
    for refit in (False, True):
        net = copy.deepcopy(full)
        result = pruned(refit, net).result
        assert result is not None
        assert all(abs(layer.share - 0.6) < 0.01 for layer in result.sparsity.layers)
        found[refit] = apart(net, full)
    assert found[True] < 0.3 * found[False]


def test_a_model_that_can_not_be_fitted_is_told_and_trained() -> None:
    class Fickle(Net):
        """In eval mode it takes something else."""

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            if not self.training:
                raise ValueError("only for training")
            return super().forward(x)

    net = Fickle()
    net.last = nn.Linear(24, 4)
    section = {"target_sparsity": 0.5, "end_epoch": 2}
    train = {
        "end_epoch": 2,
        "optimizer": {"SGD": {"learning_rate": 0.01}},
        "criterion": {"CrossEntropyLoss": {}},
    }
    approach = {"weight_compression": section}
    conf = {"model": {"name": "net", "framework": "pytorch"}}
    door = Pruning({**conf, "pruning": {"train": train, "approach": approach}})
    door.model = net
    door.train_dataloader = [(inputs, np.arange(128) % 4) for (inputs,) in BATCHES]
    door()
    assert door.result is not None and door.result.sparsity.share == pytest.approx(0.5, abs=0.01)
    (told,) = [note for note in door.result.notes if "not fitted" in note]
    assert "only for training" in told
