"""Functions of the user's that train: what they return, and what they are given."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from lpot.core.errors import ConfigError, TrainingError, UnsupportedModel
from lpot.experimental import Distillation, Pruning

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

DRAW = np.random.default_rng(0)
DATA = [(DRAW.normal(size=(8, 4)).astype(np.float32), np.arange(8) % 3) for _ in range(3)]
TRAIN = {
    "end_epoch": 2,
    "optimizer": {"SGD": {"learning_rate": 0.1}},
    "criterion": {"KnowledgeDistillationLoss": {"temperature": 2.0, "loss_weights": [0.5, 0.5]}},
}
CONF = {
    "model": {"name": "net", "framework": "pytorch"},
    "pruning": {
        "train": {**TRAIN, "criterion": {"CrossEntropyLoss": {}}},
        "approach": {"weight_compression": {"target_sparsity": 0.5, "end_epoch": 2}},
    },
    "distillation": {"train": TRAIN},
}


def net(seed: int = 0, width: int = 8) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))


def first(model: nn.Module) -> Any:
    return model[0].weight.detach().clone()


class Pruned:
    """One component after the other under the same few words."""

    def __init__(self, train: Callable[[nn.Module], Any] | None = None) -> None:
        self.door = Pruning(CONF)
        self.net = self.door.model = net()
        self.door.train_dataloader = DATA
        if train is not None:
            self.door.pruning_func = lambda model: self._hooked(train, model)

    def _hooked(self, train: Callable[[nn.Module], Any], model: nn.Module) -> Any:
        for epoch in range(2):
            self.door.on_epoch_begin(epoch)
        return train(model)


class Distilled:
    def __init__(self, train: Callable[[nn.Module], Any] | None = None) -> None:
        self.door = Distillation(CONF)
        self.net = self.door.student_model = net()
        self.door.teacher_model = net(1)
        self.door.train_dataloader = DATA
        self.door.train_func = train


def moved(model: nn.Module) -> nn.Module:
    twin = copy.deepcopy(model)
    with torch.no_grad():
        for weight in twin.parameters():
            weight.add_(1.0)
    return twin


@pytest.mark.parametrize("kind", [Pruned, Distilled])
def test_another_model_that_is_returned_is_the_trained_one(kind: Any) -> None:
    returned: list[nn.Module] = []

    def train(model: nn.Module) -> nn.Module:
        returned.append(moved(model))
        return returned[0]

    job = kind(train)
    job.door()
    kept = first(job.net)
    there = kept != 0
    assert there.any() and torch.equal(kept[there], first(returned[0])[there])


@pytest.mark.parametrize("kind", [Pruned, Distilled])
@pytest.mark.parametrize(
    "returned",
    [lambda model: model, lambda model: None, lambda model: 0.5, nn.DataParallel, lambda model: {}],
    ids=["itself", "nothing", "a loss", "a wrapper", "a dict"],
)
def test_what_else_functions_return(kind: Any, returned: Any, capsys: Any) -> None:
    kind(returned).door()
    assert "another model" not in capsys.readouterr().err


def test_another_architecture_is_no_pruned_model() -> None:
    with pytest.raises(TrainingError, match="differ in name or shape"):
        Pruned(lambda model: net(width=9)).door()


def test_another_architecture_is_a_student_all_the_same() -> None:
    found = Distilled(lambda model: net(width=9)).door()
    assert found.native[0].out_features == 9


def test_a_student_that_learnt_nothing_is_told(capsys: Any) -> None:
    Distilled(lambda model: None).door()
    assert "train_func changed no weight" in capsys.readouterr().err


@pytest.mark.parametrize("kind", [Pruned, Distilled])
def test_frozen_models_are_told(kind: Any) -> None:
    job = kind()
    job.net.requires_grad_(False)
    with pytest.raises(TrainingError, match=r"frozen.*requires_grad_\(True\)"):
        job.door()


@pytest.mark.parametrize("kind", [Pruned, Distilled])
def test_torchscript_is_refused_in_words(kind: Any) -> None:
    job, script = kind(), torch.jit.script(net())
    setattr(job.door, "model" if kind is Pruned else "student_model", script)
    with pytest.raises(UnsupportedModel, match="TorchScript"):
        job.door()


@pytest.mark.parametrize("epoch", ["0", None, True])
def test_epochs_are_numbers(epoch: Any) -> None:
    job = Pruned()
    job.door.pruning_func = lambda model: job.door.on_epoch_begin(epoch)
    with pytest.raises(ConfigError, match="expected the number of the epoch"):
        job.door()


def test_options_of_an_optimizer_that_it_refuses_are_placed(tmp_path: Any) -> None:
    path = tmp_path / "prune.yaml"
    path.write_text(
        "model: {name: net, framework: pytorch}\npruning:\n  train:\n    end_epoch: 1\n"
        "    optimizer: {SGD: {learning_rate: -1}}\n    criterion: {CrossEntropyLoss: {}}\n"
        "  approach: {weight_compression: {target_sparsity: 0.5, end_epoch: 1}}\n"
    )
    prune = Pruning(str(path))
    prune.model, prune.train_dataloader = net(), DATA
    with pytest.raises(ConfigError, match=r"prune\.yaml:5: pruning\.train\.optimizer: SGD does"):
        prune()


class TestDistillation:
    def test_the_teacher_is_not_the_student(self) -> None:
        job = Distilled()
        job.door.teacher_model = job.net
        with pytest.raises(ConfigError, match="same object"):
            job.door()

    def test_what_is_no_function(self) -> None:
        with pytest.raises(ConfigError, match="train_func: given an int"):
            Distilled(3).door()  # type: ignore[arg-type]

    def test_an_evaluation_that_fails_loses_no_training(self, capsys: Any) -> None:
        job = Distilled()
        before = first(job.net)
        job.door.eval_func = lambda model: 1 / 0
        found = job.door()
        assert not torch.equal(first(found.native), before)
        assert job.door.accuracy is None and job.door.met is None
        said = capsys.readouterr().err
        assert "the teacher was not evaluated" in said and "the student was not evaluated" in said

    @pytest.mark.parametrize("given", ["computed", "output", "teacher", "two steps"])
    def test_loops_of_ones_own_learn_from_the_teacher(self, given: str) -> None:
        """With no labels at all: what is learnt is the teacher's."""

        def train(model: nn.Module) -> None:
            optimizer = torch.optim.Adam(model.parameters(), 0.03)
            for epoch in range(40):
                door.on_epoch_begin(epoch)
                for images, _ in DATA:
                    inputs = torch.tensor(images)
                    output = model(inputs)
                    if given == "two steps":
                        door.on_post_forward(inputs)
                        loss = door.criterion(output)
                    else:
                        known = {"output": teacher(inputs), "teacher": teacher}.get(given)
                        loss = door.on_after_compute_loss(inputs, output, 0.0, known)
                    optimizer.zero_grad()
                    loss.backward()
                    optimizer.step()
                    door.on_batch_end()
                door.on_epoch_end()

        job = Distilled(train)
        door, teacher = job.door, job.door.teacher_model
        inputs = torch.tensor(np.concatenate([images for images, _ in DATA]))

        def apart() -> float:
            with torch.no_grad():
                wanted, found = teacher(inputs).softmax(1), job.net(inputs).softmax(1)
            return float((wanted - found).abs().mean())

        before = apart()
        door()
        assert apart() < 0.3 * before

    def test_hooks_without_a_teacher(self) -> None:
        door = Distillation(CONF)
        with pytest.raises(ConfigError, match="nothing to learn from"):
            door.on_after_compute_loss(None, None, 0.0)
