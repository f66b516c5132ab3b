"""Models as strangers have them: wrapped, in other types, quantized, without values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

import lpot
from lpot.core.errors import ConfigError, DataError, LpotError, TrainingError, UnsupportedModel
from lpot.experimental import Distillation, Pruning

DRAW = np.random.default_rng(0)
BATCHES = [(DRAW.normal(size=(8, 6)).astype(np.float32), DRAW.integers(0, 3, 8)) for _ in range(2)]

MODEL = {"name": "net", "framework": "pytorch"}


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(6, 16), nn.ReLU(), nn.Linear(16, 3)).eval()


def train(criterion: str = "CrossEntropyLoss") -> dict[str, Any]:
    optimizer = {"SGD": {"learning_rate": 0.1}}
    return {"end_epoch": 2, "optimizer": optimizer, "criterion": {criterion: {}}}


def pruned(model: Any, *names: str) -> Pruning:
    section = {"target_sparsity": 0.5, "end_epoch": 2, "pruners": [{"names": list(names)}]}
    approach = {"weight_compression": section}
    prune = Pruning({"model": MODEL, "pruning": {"train": train(), "approach": approach}})
    prune.model, prune.train_dataloader = model, BATCHES
    prune()
    return prune


def normed() -> nn.Module:
    model = net()
    nn.utils.parametrizations.weight_norm(model[0])
    return model


def compiled(model: nn.Module) -> Any:
    return torch.compile(model, backend="eager")  # for which no compiler is needed


WRAPPED = [nn.DataParallel, compiled, lambda model: compiled(nn.DataParallel(model))]


@pytest.mark.parametrize("wrap", WRAPPED, ids=["parallel", "compiled", "both"])
def test_names_are_those_of_the_module_or_of_what_is_around_it(wrap: Callable[[Any], Any]) -> None:
    outer = wrap(net())
    (own,) = [name for name, _ in outer.named_parameters() if name.endswith("0.weight")]
    for name in ("0.weight", "0", own, own.removesuffix(".weight")):
        prune = pruned(outer, name)
        share = {layer.name: layer.share for layer in prune.result.sparsity.layers}
        assert share["0.weight"] == 0.5
    with pytest.raises(ConfigError, match="did you mean"):
        pruned(outer, "module.0.weigth")


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float64])
def test_other_types_are_trained_as_they_are(kind: torch.dtype) -> None:
    model = net().to(kind)
    assert pruned(model, "0").result.sparsity.share == 0.5
    assert all(each.dtype == kind for each in model.parameters())
    teach = Distillation({"distillation": {"train": train("KnowledgeDistillationLoss")}})
    teach.student_model, teach.teacher_model, teach.train_dataloader = (
        net().to(kind),
        net(),
        BATCHES,
    )
    teach()


def int8() -> nn.Module:
    made = lpot.tune(net(), [batch for batch, _ in BATCHES], measure_speed=False).model
    found: nn.Module = made.native
    return found


BAD: list[tuple[Callable[[], Any], type[LpotError], str]] = [
    (lambda: net().half(), TrainingError, "call model.float()"),
    (lambda: net().to("meta"), UnsupportedModel, "has no values"),
    (int8, UnsupportedModel, "already quantized, by lpot"),
    (
        lambda: torch.export.export(net(), (torch.zeros(2, 6),)).module(),
        UnsupportedModel,
        "give the nn.Module it was made from",
    ),
    (lambda: nn.Linear, UnsupportedModel, "the class Linear can't be trained"),
    (lambda: 3, UnsupportedModel, "an int can't be trained"),
    (normed, ConfigError, "computed from other tensors"),
]


@pytest.mark.parametrize(("made", "kind", "said"), BAD, ids=[said for _, _, said in BAD])
def test_what_can_not_be_trained_says_why(
    made: Callable[[], Any], kind: type[LpotError], said: str, tmp_path: Any, monkeypatch: Any
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(kind, match=said.replace("(", r"\(").replace(")", r"\)")):
        pruned(made(), "0.weight")


def test_a_computed_weight_that_is_left_out_is_told() -> None:
    model = normed()
    section = {"target_sparsity": 0.5, "end_epoch": 2}
    prune = Pruning({"pruning": {"train": train(), "approach": {"weight_compression": section}}})
    prune.model, prune.train_dataloader = model, BATCHES
    prune()
    assert any("0.weight is not pruned" in note for note in prune.result.notes)


def test_an_int8_teacher_teaches(tmp_path: Any, monkeypatch: Any) -> None:
    monkeypatch.chdir(tmp_path)
    teach = Distillation({"distillation": {"train": train("KnowledgeDistillationLoss")}})
    teach.student_model, teach.teacher_model, teach.train_dataloader = net(), int8(), BATCHES
    assert teach().native is not None


def test_what_is_set_beside_a_function_that_evaluates_is_told() -> None:
    section = {"target_sparsity": 0.5, "end_epoch": 2}
    prune = Pruning({"pruning": {"train": train(), "approach": {"weight_compression": section}}})
    prune.model, prune.train_dataloader, prune.eval_func = net(), BATCHES, lambda model: 1.0
    prune.eval_dataloader = BATCHES
    prune()
    assert any("eval_dataloader have no effect" in note for note in prune.result.notes)


def test_a_function_that_makes_no_loader_and_a_missing_teacher_are_told() -> None:
    prune = Pruning({"pruning": {"train": train(), "approach": {"weight_compression": {}}}})
    prune.model, prune.train_dataloader = net(), lambda: 3
    with pytest.raises(DataError, match="train_dataloader\\(\\) gave an int"):
        prune()
    teach = Distillation({"distillation": {"train": train("KnowledgeDistillationLoss")}})
    teach.student_model, teach.train_dataloader = net(), BATCHES
    with pytest.raises(ConfigError, match="teacher_model: none was given"):
        teach()
