"""What a training can't be made of: data that end, losses that explode, gradients nobody tells."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402

import lpot  # noqa: E402
from lpot.core.compress.training_data import TrainingData  # noqa: E402
from lpot.core.errors import (  # noqa: E402
    ConfigError,
    DataError,
    EvaluationError,
    TrainingError,
    UnsupportedModel,
)
from lpot.data.draw import generator  # noqa: E402
from lpot.experimental import Distillation, Pruning, common  # noqa: E402

DRAW = np.random.default_rng(0)
BATCHES = [(DRAW.normal(size=(8, 6)).astype(np.float32), DRAW.integers(0, 3, 8)) for _ in range(2)]
TEACHES = {"KnowledgeDistillationLoss": {}}


class Once:
    """Its own iterator, which does not go back to the beginning."""

    def __init__(self) -> None:
        self.left = iter(BATCHES)

    def __iter__(self) -> Iterator[Any]:
        return self

    def __next__(self) -> Any:
        return next(self.left)


class Indexed:
    """No `__iter__`, and no IndexError at its end."""

    def __len__(self) -> int:
        return 2

    def __getitem__(self, index: int) -> Any:
        return BATCHES[index % 2]


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).eval()


def train(rate: float = 0.1, **more: Any) -> dict[str, Any]:
    optimizer = {"SGD": {"learning_rate": rate}}
    return {"end_epoch": 3, "optimizer": optimizer, "criterion": {"CrossEntropyLoss": {}}, **more}


def conf(rate: float = 0.1, **pruner: Any) -> dict[str, Any]:
    compression = {"end_epoch": 3, "target_sparsity": 0.5, "pruners": [pruner] if pruner else []}
    approach = {"weight_compression": compression}
    return {"pruning": {"train": train(rate), "approach": approach}}


def pruned(loader: Any, **how: Any) -> Pruning:
    prune = Pruning(conf(**how))
    prune.model, prune.train_dataloader = net(), loader
    prune()
    return prune


BAD = [
    ([], "train_dataloader yields no batches"),
    ((batch for batch in BATCHES), "is a generator, which can be read only once"),
    (Once(), "yields no batches when it was read again"),
    (5, "is an int: expected something to iterate over"),
    ("data", "is a str: expected something to iterate over"),
]


@pytest.mark.parametrize(("loader", "said"), BAD)
def test_data_that_can_t_be_trained_on_are_told(loader: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        pruned(loader)


@pytest.mark.parametrize("loader", [Indexed(), lambda: iter(BATCHES), BATCHES])
def test_data_in_any_form_are_read_in_every_epoch(loader: Any) -> None:
    data = TrainingData(loader)
    assert len(list(data)) == len(list(data)) == 2
    assert pruned(loader).result.sparsity.share == 0.5


class Noted:
    """A dataset that tells which samples were asked for, with a draw of its own for each."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.draws: list[float] = []

    def __len__(self) -> int:
        return 12

    def __getitem__(self, index: int) -> Any:
        self.asked.append(index)
        self.draws.append(float(generator().random()))
        return BATCHES[0][0][index % 8], index % 3


def test_each_epoch_has_another_order_and_other_random_transforms() -> None:
    data = Noted()
    pruned(common.DataLoader(data, batch_size=4, shuffle=True))
    asked, draws = data.asked[-36:], data.draws[-36:]  # before, some were read to fit layers to
    epochs = [tuple(asked[at : at + 12]) for at in (0, 12, 24)]
    assert all(sorted(epoch) == list(range(12)) for epoch in epochs)
    assert len(set(epochs)) == 3
    assert len(set(draws)) == 36


def test_samplers_of_torch_are_told_the_epoch() -> None:
    class Sampler(torch.utils.data.Sampler):
        def __init__(self) -> None:
            self.epochs: list[int] = []

        def set_epoch(self, epoch: int) -> None:
            self.epochs.append(epoch)

        def __iter__(self) -> Iterator[int]:
            return iter(range(12))

    sampler = Sampler()
    loader = TrainingData(torch.utils.data.DataLoader(Noted(), batch_size=4, sampler=sampler))
    for _ in range(3):
        assert len(list(loader)) == 3
    assert sampler.epochs == [0, 1, 2]


@pytest.mark.parametrize("loader", [[], (batch for batch in BATCHES)], ids=["none", "once"])
def test_distillation_and_structured_pruning_say_the_same(loader: Any, tmp_path: Any) -> None:
    distill = Distillation({"distillation": {"train": train(criterion=TEACHES)}})
    distill.student_model, distill.teacher_model = net(), net()
    distill.train_dataloader = loader
    with pytest.raises(DataError, match="train_dataloader"):
        distill()
    with pytest.raises(DataError, match="train_dataloader"):
        lpot.tune(
            net(),
            BATCHES,
            lambda model: 1.0,
            config={"pruning": {"approach": {"structured": {"ratio": 0.3, "epochs": 1}}}},
            train_loader=loader,
            workspace=tmp_path,
            measure_speed=False,
        )


def test_a_loss_that_explodes_ends_the_training() -> None:
    with pytest.raises(TrainingError, match=r"the loss became (nan|inf) in batch . of epoch ."):
        pruned(BATCHES, rate=1e30)


def test_what_the_training_raises_comes_with_its_line() -> None:
    prune = Pruning(conf())
    prune.model = net()

    def pruning_func(model: Any) -> None:
        raise KeyError("labels")

    prune.pruning_func = pruning_func
    with pytest.raises(TrainingError, match=r"pruning_func raised KeyError.*test_training_data"):
        prune()
    prune.pruning_func = 3
    with pytest.raises(ConfigError, match="pruning_func: given an int, expected a function"):
        prune()


def loop(prune: Pruning, tells: bool) -> Any:
    def pruning_func(model: Any) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        for epoch in range(3):
            prune.on_epoch_begin(epoch)
            for inputs, labels in BATCHES:
                optimizer.zero_grad()
                output = model(torch.tensor(inputs))
                nn.functional.cross_entropy(output, torch.tensor(labels)).backward()
                if tells:
                    prune.on_post_grad()
                optimizer.step()
                prune.on_batch_end()
            prune.on_epoch_end()

    return pruning_func


def test_a_loop_without_on_post_grad_still_ranks_by_gradients_and_a_penalty_is_told() -> None:
    zeros = {}
    for kind in ("basic_magnitude", "gradient_sensitivity"):
        prune = Pruning(conf(prune_type=kind, names=["0"]))
        prune.model, prune.pruning_func = net(), loop(prune, False)
        zeros[kind] = prune().native[0].weight == 0
    assert not torch.equal(*zeros.values())
    prune = Pruning(conf(prune_type="group_lasso"))
    prune.model, prune.pruning_func = net(), loop(prune, False)
    with pytest.raises(ConfigError, match=r"group_lasso saw no gradients .*call on_post_grad\(\)"):
        prune()
    prune.model, prune.pruning_func = net(), loop(prune, True)
    prune()
    assert prune.result.sparsity.share == 0.5


class Shared(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.words = nn.Embedding(30, 16)
        self.attention = nn.MultiheadAttention(16, 4, batch_first=True, add_bias_kv=True)
        self.recurrent = nn.LSTM(16, 8, 2, batch_first=True)
        self.own = nn.Parameter(torch.randn(8, 16))
        self.out = nn.Linear(16, 30, bias=False)
        self.out.weight = self.words.weight

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        hidden = self.words(tokens)
        hidden = self.attention(hidden, hidden, hidden)[0]
        return self.out(self.recurrent(hidden)[0] @ self.own)[:, 0]


def sparse(names: list[str]) -> dict[str, float]:
    torch.manual_seed(0)
    prune = Pruning(conf(names=names, prune_type="basic_magnitude"))
    prune.model = Shared()
    tokens = DRAW.integers(0, 30, (8, 5))
    prune.train_dataloader = [(tokens, tokens[:, 0])]
    prune()
    return {layer.name: layer.share for layer in prune.result.sparsity.layers if layer.pruned}


def test_a_part_stands_for_all_of_its_weights_and_a_shared_one_for_itself() -> None:
    assert set(sparse([])) == {
        "attention.in_proj_weight",
        "attention.out_proj.weight",
        *(f"recurrent.weight_{side}_l{layer}" for side in ("ih", "hh") for layer in (0, 1)),
    }
    assert len(sparse(["recurrent"])) == 4
    assert sparse(["own"]) == {"own": 0.5}
    assert sparse(["out.weight", "words"]) == {"words.weight": 0.5}
    with pytest.raises(ConfigError, match=r"given 'attention.bias_k', which has no weights"):
        sparse(["attention.in_proj_weight", "attention.bias_k"])


@pytest.mark.parametrize("model", ["model.pt", np.zeros(3)])
def test_what_is_no_module_is_told(model: Any) -> None:
    prune = Pruning({"model": {"framework": "pytorch"}, **conf()})
    prune.model, prune.train_dataloader = model, BATCHES
    with pytest.raises(UnsupportedModel, match="can't be trained here: give the torch module"):
        prune()
    distill = Distillation({"distillation": {"train": train(criterion=TEACHES)}})
    distill.student_model, distill.teacher_model = net(), model
    distill.train_dataloader = BATCHES
    with pytest.raises(UnsupportedModel, match="can't be trained here: give the torch module"):
        distill()


def test_a_teacher_with_other_classes_is_told() -> None:
    distill = Distillation({"distillation": {"train": train(criterion=TEACHES)}})
    distill.student_model, distill.teacher_model = net(), nn.Linear(6, 7)
    distill.train_dataloader = BATCHES
    with pytest.raises(TrainingError, match=r"the teacher gives \[8, 7\] where the student gives"):
        distill()


def test_an_evaluation_that_fails_says_its_line_and_later_costs_no_training() -> None:
    scores: list[float] = []

    def evaluate(model: Any) -> float:
        scores.append(1 / (len(scores) % 2))
        return scores[-1]

    prune = Pruning({**conf(), "tuning": {"accuracy_criterion": {"relative": 0.5, "really": True}}})
    prune.model, prune.train_dataloader, prune.eval_func = net(), BATCHES, evaluate
    with pytest.raises(EvaluationError, match=r"ZeroDivisionError.*test_training_data"):
        prune()
    given = chain([0.9, float("nan"), 0.8], repeat(float("nan")))
    prune.model, prune.eval_func = net(), lambda model: next(given)
    prune()
    assert prune.result.met and not prune.result.reached and prune.result.accuracy == 0.8
    assert prune.result.sparsity.share == pytest.approx(0.25, abs=0.01)
    assert sum("such a state does not count" in note for note in prune.result.notes) == 1


@pytest.mark.parametrize("mode", [False, True])
def test_the_mode_of_a_module_is_as_it_was(mode: bool) -> None:
    prune = Pruning(conf())
    module = net().train(mode)
    prune.model, prune.train_dataloader = module, BATCHES
    prune()
    assert module.training is mode


def one_hot(labels: Any) -> Any:
    return np.eye(3, dtype=np.float32)[labels]


@pytest.mark.parametrize(
    "change",
    [one_hot, lambda labels: labels[:, None], lambda labels: labels.astype(np.float32), list],
    ids=["one hot", "a column", "floats", "a list"],
)
def test_labels_of_any_shape_give_the_same(change: Any) -> None:
    plain = pruned(BATCHES).model
    other = pruned([(inputs, change(labels)) for inputs, labels in BATCHES]).model
    for one, two in zip(plain.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one, two)


@pytest.mark.parametrize(
    ("labels", "said"),
    [
        (np.arange(8), "the label 7, but the model gives 3 classes"),
        (np.zeros(5, np.int64), r"labels of shape \[5\] for outputs of shape \[8, 3\]"),
        (["cat"] * 8, "expected class numbers"),
    ],
)
def test_labels_that_do_not_fit_are_told(labels: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        pruned([(BATCHES[0][0], labels)])


def test_maps_have_a_class_for_each_place() -> None:
    images = DRAW.normal(size=(4, 2, 5, 5)).astype(np.float32)
    classes = DRAW.integers(0, 3, (4, 5, 5))
    prune = Pruning(conf())
    prune.model, prune.train_dataloader = nn.Conv2d(2, 3, 3, padding=1), [(images, classes)]
    prune()
    assert prune.result.sparsity.share == 0.5


def test_every_hook_of_a_component_is_called() -> None:
    prune, told = Pruning(conf()), []
    for scope in ("pre_epoch_begin", "on_epoch_begin", "on_epoch_end", "post_epoch_end"):
        prune.register_hook(scope, lambda *args, scope=scope: told.append(scope))
    prune.model, prune.train_dataloader = net(), BATCHES
    prune()
    assert told == ["pre_epoch_begin", *["on_epoch_begin", "on_epoch_end"] * 3, "post_epoch_end"]
