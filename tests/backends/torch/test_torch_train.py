"""Quantization-aware training brings back what post-training quantization lost."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, default, made
from lpot.backends.torch.modules.rounded import Rounded
from lpot.core.errors import UnsupportedModel


class Uneven(nn.Module):
    """Between its layers channels are stretched by factors that are no one's weights."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(1, 16, 3, padding=1)
        self.norm = nn.BatchNorm2d(16)
        self.second = nn.Conv2d(16, 16, 3, stride=2, padding=1)
        self.fc = nn.Linear(16 * 16, 10)
        self.register_buffer("stretch", 3.0 ** torch.arange(-5.0, 3.0).repeat(2).view(1, 16, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(x))) * self.stretch
        return self.fc(torch.relu(self.second(x)).flatten(1))


def digits() -> tuple[torch.Tensor, torch.Tensor]:
    datasets = pytest.importorskip("sklearn.datasets")
    x, y = datasets.load_digits(return_X_y=True)
    images = torch.tensor(x, dtype=torch.float32).view(-1, 1, 8, 8) / 8 - 1
    return images, torch.tensor(y)


def train(module: nn.Module, x: torch.Tensor, y: torch.Tensor, epochs: int, rate: float) -> None:
    """An ordinary training loop, as a user would write it for q_func."""
    module.train()
    optimizer = torch.optim.Adam(module.parameters(), rate)
    generator = torch.Generator().manual_seed(0)
    for _ in range(epochs):
        for index in torch.randperm(len(x), generator=generator).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x[index]), y[index]).backward()
            optimizer.step()


def accuracy(model: Any, x: torch.Tensor, y: torch.Tensor) -> float:
    return float(np.mean(BACKEND.run(model, (x,))[0].argmax(1) == y.numpy()))


def uneven_net(x: torch.Tensor, y: torch.Tensor) -> nn.Module:
    """Trained evenly, then torn: the second layer undoes what the stretching does."""
    torch.manual_seed(0)
    module = Uneven()
    stretch = module.stretch.clone()
    module.stretch.fill_(1.0)
    train(module, x, y, 4, 3e-3)
    with torch.no_grad():
        module.stretch.copy_(stretch)
        module.second.weight.div_(stretch)
    return module.eval()


def test_training_recovers_what_rounding_lost() -> None:
    x, y = digits()
    train_x, train_y, test_x, test_y = x[:1200], y[:1200], x[1200:], y[1200:]
    module = uneven_net(train_x, train_y)
    before = {name: value.clone() for name, value in module.state_dict().items()}
    model = BACKEND.load(module)
    calibration = [(train_x[:100],), (train_x[100:200],)]
    observations = BACKEND.observe(model, calibration, (0,))[0]
    recipe = default(model)
    truth = accuracy(model, test_x, test_y)
    lost = accuracy(BACKEND.build(model, recipe, observations), test_x, test_y)
    assert lost < truth - 0.03, "the net is not hard enough to show anything"

    trainee = BACKEND.prepare_training(model, recipe, observations)
    assert trainee.training
    assert isinstance(trainee.second, Rounded)
    train(trainee, train_x, train_y, 4, 3e-3)
    trained = BACKEND.finish_training(model, trainee)
    again = BACKEND.observe(trained, calibration, (0,))[0]
    found = accuracy(BACKEND.build(trained, recipe, again), test_x, test_y)
    assert found > truth - 0.01
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


@pytest.mark.parametrize("name", ["cnn", "stubbed", "shapes", "gpt2", "linear"])
def test_every_kind_can_be_trained(name: str) -> None:
    model, batches, observations = made(name)
    trainee = BACKEND.prepare_training(model, default(model), observations)
    inputs = batches[0]
    output = trainee(**inputs)[0] if isinstance(inputs, dict) else trainee(*inputs)
    output.float().square().mean().backward()
    moved = [part for part in trainee.modules() if isinstance(part, Rounded)]
    assert moved
    assert all(part.weight.grad is not None for part in moved)
    finished = BACKEND.finish_training(model, trainee)
    one, other = BACKEND.run(model, inputs)[0], BACKEND.run(finished, inputs)[0]
    assert one.shape == other.shape
    assert not any(isinstance(part, Rounded) for part in finished.native.modules())


def test_another_model_from_q_func_is_refused() -> None:
    model, _, observations = made("cnn")
    BACKEND.prepare_training(model, default(model), observations)
    with pytest.raises(UnsupportedModel, match="q_func"):
        BACKEND.finish_training(model, nets.Branching())
