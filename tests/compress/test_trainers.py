"""Optimizers and losses by name: those of the frameworks, and the user's own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from lpot.core.compress.trainers import CRITERIONS, OPTIMIZERS
from lpot.core.errors import ConfigError
from lpot.experimental import Pruning, common
from lpot.experimental.common.criterion import criterion_registry
from lpot.experimental.common.optimizer import optimizer_registry

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

YAML = """
model: {name: net, framework: pytorch}
pruning:
  train:
    start_epoch: 0
    end_epoch: 2
    optimizer:
      %s
    criterion:
      %s
  approach:
    weight_compression: {target_sparsity: 0.5, end_epoch: 2}
"""


def pruned(folder: Path, optimizer: str, criterion: str = "CrossEntropyLoss: {}") -> Pruning:
    path = folder / "prune.yaml"
    path.write_text(YAML % (optimizer, criterion))
    torch.manual_seed(0)
    prune = Pruning(str(path))
    prune.model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3))
    draw = np.random.default_rng(0)
    data = [(draw.normal(size=(8, 4)).astype(np.float32), np.arange(8) % 3) for _ in range(2)]
    prune.train_dataloader = data
    prune()
    return prune


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch):
    for known in (OPTIMIZERS, CRITERIONS):
        copied = {framework: dict(names) for framework, names in known._known.items()}
        monkeypatch.setattr(known, "_known", copied)


def test_the_original_s_lists() -> None:
    optimizers, criterions = common.Optimizers("pytorch"), common.Criterions("pytorch_fx")
    kind, given = optimizers["SGD"]({"learning_rate": 0.1, "momentum": 0.9})()
    assert kind is torch.optim.SGD and given == {"lr": 0.1, "momentum": 0.9}
    kind, given = criterions["CrossEntropyLoss"]({"reduction": "sum"})()
    assert kind is nn.CrossEntropyLoss and given == {"reduction": "sum"}
    assert "AdamW" in optimizers and "Lion" not in optimizers


@pytest.mark.parametrize("name", ["SGD", "Adam", "AdamW"])
def test_each_optimizer_of_a_yaml_is_the_one_that_trains(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran: list[str] = []
    for kind in (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW):
        step = kind.step

        def noted(self, *args, step=step, **kwargs):
            ran.append(type(self).__name__)
            return step(self, *args, **kwargs)

        monkeypatch.setattr(kind, "step", noted)
    pruned(tmp_path, f"{name}: {{learning_rate: 0.01}}")
    # AdamW is a kind of Adam and may step through it.
    assert set(ran) == {name}


def test_the_learning_rate_falls_to_nothing_by_a_cosine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rates: list[float] = []
    step = torch.optim.SGD.step

    def noted(self, *args, **kwargs):
        rates.append(self.param_groups[0]["lr"])
        return step(self, *args, **kwargs)

    monkeypatch.setattr(torch.optim.SGD, "step", noted)
    pruned(tmp_path, "SGD: {learning_rate: 0.1}\n    learning_rate_decay: cosine")
    assert rates == pytest.approx([0.1, 0.0854, 0.05, 0.0146], abs=1e-4)
    rates.clear()
    pruned(tmp_path, "SGD: {learning_rate: 0.1}")
    assert rates == [0.1] * 4
    with pytest.raises(ConfigError, match=r"prune\.yaml:\d+.*learning_rate_decay"):
        pruned(tmp_path, "SGD: {learning_rate: 0.1}\n    learning_rate_decay: steep")


def test_optimizers_and_losses_of_one_s_own(tmp_path: Path) -> None:
    steps: list[float] = []

    @optimizer_registry("Slow", "pytorch, tensorflow")
    class Slow:  # in the original's form
        def __init__(self, options):
            self.options = options

        def __call__(self, **kwargs):
            return torch.optim.SGD, {"lr": self.options["learning_rate"] / 10}

    class Squares(nn.Module):  # a class of the framework
        def __init__(self, factor: float = 1.0) -> None:
            super().__init__()
            self.factor = factor

        def forward(self, output, labels):
            steps.append(self.factor)
            return self.factor * output.square().mean()

    criterion_registry("Squares", "pytorch")(Squares)
    pruned(tmp_path, "Slow: {learning_rate: 0.1}", "Squares: {factor: 2.0}")
    assert steps == [2.0] * 4


def test_an_unknown_name_tells_the_line_and_what_is_accepted(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as told:
        pruned(tmp_path, "Adma: {learning_rate: 0.1}")
    said = str(told.value)
    assert "prune.yaml:" in said and "'Adma', did you mean 'Adam'" in said and "AdamW" in said


def test_options_that_a_class_does_not_take(tmp_path: Path) -> None:
    optimizer_registry("Lion", "pytorch")(torch.optim.Adagrad)
    with pytest.raises(ConfigError, match="Lion does not accept its options"):
        pruned(tmp_path, "Lion: {speed: 3}")


def test_what_can_t_be_registered() -> None:
    with pytest.raises(ConfigError, match="built-in optimizer 'SGD'"):
        common.Optimizers("pytorch").register("SGD", torch.optim.SGD)
    with pytest.raises(ConfigError, match="unknown framework 'caffe'"):
        optimizer_registry("Mine", "caffe")(torch.optim.SGD)
    with pytest.raises(ConfigError, match="expected a class"):
        common.Criterions("pytorch").register("Mine", 3)
    with pytest.raises(ConfigError, match="does not train"):
        common.Optimizers("onnx")


def test_the_loss_of_distillation_in_a_loop_of_one_s_own() -> None:
    kind, given = common.Criterions("pytorch")["KnowledgeDistillationLoss"](
        {"temperature": 2.0, "loss_types": ["CE", "KL"], "loss_weights": [0.5, 0.5]}
    )()
    loss = kind(**given)
    x, labels = torch.randn(6, 4), torch.arange(6) % 3
    teacher = nn.Linear(4, 3)
    with pytest.raises(ConfigError, match="teacher_model_forward"):
        loss(teacher(x), labels)
    loss.teacher_model = teacher
    loss.teacher_model_forward(x)
    alike = loss(teacher(x), labels)
    assert torch.allclose(alike, 0.5 * nn.functional.cross_entropy(teacher(x), labels))
    assert loss(teacher(x) + torch.randn(6, 3), labels) != alike
