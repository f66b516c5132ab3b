"""Quantization-aware training brings back what post-training quantization lost."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, default, made
from lpot.backends.torch.model import TorchModel
from lpot.backends.torch.modules.rounded import (
    Rounded,
    Rounding,
    clipped,
    input_energy,
    make_rounded,
)
from lpot.backends.torch.prepare import Prepared
from lpot.core.errors import TrainingError


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
        return self.fc(self.fc_input(x))

    def fc_input(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.norm(self.conv(x))) * self.stretch
        return torch.relu(self.second(x)).flatten(1)


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

    trainee = BACKEND.prepare_training(model, recipe, observations, 100)
    assert trainee.native.training
    assert isinstance(trainee.native.second, Rounded)
    train(trainee.native, train_x, train_y, 4, 3e-3)
    assert [len(inputs[0]) for inputs in trainee.seen] == [64, 64], "100 samples were asked for"
    trained = BACKEND.finish_training(model, trainee)
    again = BACKEND.observe(trained, calibration, (0,))[0]
    found = accuracy(BACKEND.build(trained, recipe, again), test_x, test_y)
    assert found > truth - 0.01
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


@pytest.mark.parametrize("name", ["cnn", "stubbed", "shapes", "gpt2", "linear"])
def test_every_kind_can_be_trained(name: str) -> None:
    model, batches, observations = made(name)
    trainee = BACKEND.prepare_training(model, default(model), observations, 100)
    root = trainee.native
    assert list(root.state_dict()) == list(model.native.state_dict())
    optimizer = torch.optim.SGD(root.parameters(), 1e-3)
    inputs = batches[0]
    output = root(**inputs)[0] if isinstance(inputs, dict) else root(*inputs)
    output.float().square().mean().backward()
    moved = [part for part in root.modules() if isinstance(part, Rounded)]
    assert moved
    assert all(part.weight.grad is not None for part in moved)
    optimizer.step()
    finished = BACKEND.finish_training(model, trainee)
    one, other = BACKEND.run(model, inputs)[0], BACKEND.run(finished, inputs)[0]
    assert one.shape == other.shape
    assert not any(isinstance(part, Rounded) for part in finished.native.modules())


def test_rounding_is_what_int8_does() -> None:
    """In eval mode the trainee computes what the built model computes, up to the last step."""
    model, batches, observations = made("linear")
    recipe = default(model)
    trainee = BACKEND.prepare_training(model, recipe, observations, 1).native.eval()
    built = BACKEND.build(model, recipe, observations)
    with torch.no_grad():
        mine = trainee(*batches[0]).numpy()
    truth = BACKEND.run(model, batches[0])[0]
    theirs = BACKEND.run(built, batches[0])[0]
    assert np.abs(mine - theirs).max() < np.abs(truth - theirs).max()


@pytest.mark.parametrize("bits", [7, 8])
def test_the_trained_model_is_watched_as_int8_computes_it(bits: int) -> None:
    """Small channels round to nothing: in float they would reach the next layer, and its range
    would be theirs."""
    x, y = digits()
    module = uneven_net(x[:1200], y[:1200])
    with torch.no_grad():
        module.second.weight[:, module.stretch.flatten() < 0.02] *= 10  # met by zeros alone
        plain = float(module.fc_input(x[:200]).max())
    rounding = {name: Rounding(0, bits) for name in ("conv", "second", "fc")}
    prepared = Prepared(module, rounding=rounding)
    seen = BACKEND.observe(TorchModel(BACKEND, module, prepared=prepared), [(x[:200],)], (0,))[0]
    simulated = prepared.fresh()
    for name, item in rounding.items():
        make_rounded(
            simulated.get_submodule(name), item, seen.tensors[f"{name}:in"].range("minmax")
        )
    with torch.no_grad():
        rounded = float(simulated.fc_input(x[:200]).max())
    assert plain > 3 * rounded, "the net is not hard enough to show anything"
    assert seen.tensors["fc:in"].range("minmax")[1] == pytest.approx(rounded, rel=0.05)


def test_how_it_was_rounded_is_kept_with_the_weights(tmp_path: Path) -> None:
    model, batches, observations = made("cnn")
    trainee = BACKEND.prepare_training(model, default(model), observations, 10)
    trainee.native(*batches[0])
    finished = BACKEND.finish_training(model, touched(trainee))
    BACKEND.save(finished, tmp_path / "trained")
    again = BACKEND.resume_training(model, tmp_path / "trained")
    assert again.prepared.rounding == finished.prepared.rounding == trainee.rounding
    one, other = (BACKEND.observe(item, batches, (0,))[0] for item in (finished, again))
    assert {name: stats.range("minmax") for name, stats in one.tensors.items()} == {
        name: stats.range("minmax") for name, stats in other.tensors.items()
    }


@pytest.mark.parametrize("kind", ["linear", "conv", "grouped", "transposed"])
def test_weights_that_meet_nothing_are_cut(kind: str) -> None:
    torch.manual_seed(0)
    module, shape, axis = {
        "linear": (nn.Linear(4, 6), (32, 4), 0),
        "conv": (nn.Conv2d(4, 6, 3), (8, 4, 5, 5), 0),
        "grouped": (nn.Conv1d(4, 6, 3, groups=2), (8, 4, 9), 0),
        "transposed": (nn.ConvTranspose2d(4, 6, 3), (8, 4, 5, 5), None),
    }[kind]
    x = torch.rand(shape)
    place = (slice(None), 1) if kind in ("linear", "conv", "grouped") else (1,)
    x[:, [1, 3] if kind == "grouped" else [1]] = 0.0  # in each group the second channel
    before = module.weight.detach().clone()
    with torch.no_grad():
        module.weight[place] *= 50
        found = clipped(module.weight, axis, 127, input_energy(module, x))
        assert float(found[place].abs().max()) < 3 * float(before.abs().max())
        module.weight.copy_(before)
        kept = clipped(module.weight, axis, 127, input_energy(module, torch.rand(shape)))
    assert float((kept - before).abs().max()) < 0.15 * float(before.abs().max())


def test_users_find_the_modules_they_know() -> None:
    model, _, observations = made("cnn")
    root = BACKEND.prepare_training(model, default(model), observations, 1).native
    assert isinstance(root.fc, nn.Linear)
    assert root.fc.in_features == model.native.fc.in_features
    root.load_state_dict(model.native.state_dict())
    assert root.fc.weight is dict(root.named_parameters())["fc.weight"]


def test_frozen_layers_stay_frozen() -> None:
    module = nets.seeded(nets.Cnn())
    module.fc.weight.requires_grad_(False)
    model = BACKEND.load(module)
    root = BACKEND.prepare_training(model, default(model), None, 1).native
    assert not root.fc.weight.requires_grad
    assert root.fc.bias.requires_grad


def touched(trainee: Any) -> Any:
    with torch.no_grad():
        for parameter in trainee.native.parameters():
            parameter.mul_(1.01)
    return trainee


@pytest.mark.parametrize("wrapped", ["copy", "parallel", "number", "itself"])
def test_what_q_func_returns_is_understood(wrapped: str) -> None:
    model, batches, observations = made("cnn")
    trainee = touched(BACKEND.prepare_training(model, default(model), observations, 10))
    trainee.native(*batches[0])
    returned: Any = {
        "copy": copy.deepcopy(trainee.native),
        "parallel": nn.DataParallel(trainee.native),
        "number": 0.93,
        "itself": trainee.native,
    }[wrapped]
    finished = BACKEND.finish_training(model, trainee, returned)
    weight = model.native.fc.weight * 1.01
    assert torch.allclose(finished.native.fc.weight, weight)
    assert type(finished.native.fc) is nn.Linear
    assert not finished.native._forward_pre_hooks
    assert list(finished.native.state_dict()) == list(model.native.state_dict())


def test_another_model_from_q_func_is_refused() -> None:
    model, _, observations = made("cnn")
    trainee = BACKEND.prepare_training(model, default(model), observations, 1)
    with pytest.raises(TrainingError, match="q_func"):
        BACKEND.finish_training(model, trainee, nets.Branching())


def test_nan_weights_are_named() -> None:
    model, _, observations = made("cnn")
    trainee = BACKEND.prepare_training(model, default(model), observations, 1)
    with torch.no_grad():
        trainee.native.fc.weight[0, 0] = float("nan")
    with pytest.raises(TrainingError, match=r"'fc\.weight'.*learning rate"):
        BACKEND.finish_training(model, trainee)


def test_a_model_that_was_not_trained_is_said() -> None:
    model, batches, observations = made("linear")
    trainee = BACKEND.prepare_training(model, default(model), observations, 1)
    with pytest.raises(TrainingError, match="without running"):
        BACKEND.finish_training(model, trainee)
    trainee.native(*batches[0])
    with pytest.raises(TrainingError, match="optimizer"):
        BACKEND.finish_training(model, trainee)
