"""Zeros by magnitude, gradient, pattern and group: exact, kept in training, named, and told."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from tests.compress.nets import Batches, Residual, scorer, trained  # noqa: E402
from torch import nn  # noqa: E402

import lpot  # noqa: E402
from lpot.config import load  # noqa: E402
from lpot.core.compress import masks  # noqa: E402
from lpot.core.errors import ConfigError, TrainingError  # noqa: E402
from lpot.experimental import Component, Distillation, Pruning, Quantization, Scheduler  # noqa: E402

STATIC = "post_training_static_quant"
TRAIN, TEST = Batches(0, 600), Batches(600, 900)


@pytest.fixture(scope="module")
def original() -> Any:
    torch.manual_seed(1)
    return trained(Residual(), TRAIN)


@pytest.fixture
def net(original: Any) -> Any:
    return copy.deepcopy(original)


def conf(target: float = 0.5, end: int = 3, loss: float = 0.9, **pruner: Any) -> dict[str, Any]:
    compression: dict[str, Any] = {"start_epoch": 0, "end_epoch": end, "target_sparsity": target}
    if pruner:
        compression["pruners"] = [pruner]
    return {
        "pruning": {
            "train": {
                "start_epoch": 0,
                "end_epoch": end,
                "optimizer": {"SGD": {"learning_rate": 0.02, "momentum": 0.9}},
                "criterion": {"CrossEntropyLoss": {}},
            },
            "approach": {"weight_compression": compression},
        },
        "tuning": {"accuracy_criterion": {"relative": loss}},
    }


def loop_of(prune: Any, epochs: int = 3) -> Any:
    def pruning_func(model: Any) -> None:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.02, momentum=0.9)
        for epoch in range(epochs):
            prune.on_epoch_begin(epoch)
            model.train()
            for number, (images, labels) in enumerate(TRAIN):
                prune.on_batch_begin(number)
                optimizer.zero_grad()
                output = model(torch.tensor(images))
                torch.nn.functional.cross_entropy(output, torch.tensor(labels)).backward()
                prune.on_post_grad()
                optimizer.step()
                prune.on_batch_end()
            prune.on_epoch_end()

    return pruning_func


@pytest.mark.parametrize("target", [0.5, 0.8])
def test_magnitude_pruning_reaches_its_target_exactly(net: Any, target: float) -> None:
    prune = Pruning(conf(target))
    prune.model, prune.pruning_func, prune.eval_func = net, loop_of(prune, 8), scorer(TEST)
    model = prune()
    found = prune.result
    assert found.met and found.reached and found.accuracy > 0.5
    assert "no CPU runtime here runs such a model faster" in found.notes[-1]
    for layer in found.sparsity.layers:
        weight = dict(model.native.named_parameters())[layer.name].detach().numpy()
        assert layer.zeros == int((weight == 0).sum()) == round(target * layer.total)
    assert f"{found.sparsity.layers[0].zeros} of" in found.sparsity.table()


def test_the_yaml_trains_without_a_loop_and_the_first_door_gives_the_native_model(
    net: Any,
) -> None:
    native = lpot.Pruning(conf(0.5))(net, TRAIN, eval_func=scorer(TEST))
    assert isinstance(native, Residual)
    assert int((native.fc.weight == 0).sum()) == 40


def test_only_the_layers_named_are_pruned_and_pattern_lock_keeps_zeros(net: Any) -> None:
    prune = Pruning(conf(0.5, prune_type="basic_magnitude", names=["fc"]))
    prune.model, prune.pruning_func = net, loop_of(prune, 1)
    prune()
    shares = {layer.name: layer.share for layer in prune.result.sparsity.layers}
    assert shares.pop("fc.weight") == 0.5 and set(shares.values()) == {0.0}
    lock = Pruning(conf(0.9, prune_type="pattern_lock", names=["fc"]))
    lock.model, lock.pruning_func = net, loop_of(lock, 1)
    before = net.fc.weight.detach() == 0
    lock()
    assert torch.equal(before, net.fc.weight.detach() == 0)


@pytest.mark.parametrize("kind", ["gradient_sensitivity", "group_lasso"])
def test_other_pruners_zero_whole_tiles(net: Any, kind: str) -> None:
    options = {"pattern": "tile_pattern_2x2"}
    prune = Pruning(conf(0.5, prune_type=kind, names=["blocks.0.a"], parameters=options))
    prune.model, prune.pruning_func = net, loop_of(prune, 2)
    prune()
    zero = (net.blocks[0].a.weight.detach().numpy() == 0).reshape(16, -1)
    tiles = zero.reshape(8, 2, -1, 2)
    assert tiles.all((1, 3)).sum() == 8 * 36 // 2 == tiles.any((1, 3)).sum()


def test_a_target_that_misses_the_bar_gives_the_sparsest_that_holds_it(net: Any) -> None:
    prune = Pruning(conf(0.98, end=4, loss=0.08))
    prune.model, prune.pruning_func, prune.eval_func = net, loop_of(prune, 4), scorer(TEST)
    model = prune()
    found = prune.result
    assert found.met and not found.reached and found.sparsity.share < 0.98
    assert any("the sparsest state that met it is returned" in note for note in found.notes)
    assert scorer(TEST)(model.native) == found.accuracy


def test_a_schedule_that_leaps_is_looked_at_in_between(net: Any) -> None:
    """No epoch but the first holds the bar, and that has no zeros at all."""
    prune = Pruning(conf(0.98, end=2, loss=0.1))
    prune.model, prune.eval_func = net, scorer(TEST)

    def leap(model: Any) -> None:
        for epoch in range(2):
            prune.on_epoch_begin(epoch)
            prune.on_epoch_end()

    prune.pruning_func = leap
    model = prune()
    found = prune.result
    assert found.met and not found.reached and 0 < found.sparsity.share < 0.98
    assert scorer(TEST)(model.native) == found.accuracy
    assert model.report_sparsity()[1] == pytest.approx(100 * found.sparsity.share)


def test_a_loss_with_a_teacher_compares_with_the_model_as_it_was() -> None:
    torch.manual_seed(1)
    layers = (nn.Flatten(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 10))
    given = conf(0.5, end=6)
    given["pruning"]["train"]["optimizer"] = {"Adam": {"learning_rate": 0.005}}
    loss = {"temperature": 2.0, "loss_types": ["CE", "KL"], "loss_weights": [0.0, 1.0]}
    given["pruning"]["train"]["criterion"] = {"KnowledgeDistillationLoss": loss}
    prune = Pruning(given)
    prune.model, prune.eval_func = trained(nn.Sequential(*layers), TRAIN), scorer(TEST)
    prune.train_dataloader = [(images, None) for images, _ in TRAIN]  # no labels
    prune()
    found = prune.result
    assert found.sparsity.share == pytest.approx(0.5, abs=0.01) and found.reached
    assert found.accuracy > 0.9 * found.baseline


def test_where_no_epoch_holds_the_bar_the_model_comes_back_as_it_was(net: Any) -> None:
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    given = conf(0.5)
    given["pruning"]["approach"]["weight_compression"]["initial_sparsity"] = 0.25
    prune = Pruning(given)
    prune.model, prune.pruning_func = net, loop_of(prune)
    prune.eval_func = lambda model: float(all(bool(w.all()) for w in model.fc.parameters()))
    prune()
    found = prune.result
    assert (found.met, found.reached, found.accuracy) == (True, False, found.baseline)
    assert found.sparsity.share == 0
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())


def test_a_training_that_ends_before_the_zeros_do_is_told(net: Any) -> None:
    prune = Pruning(conf(0.5, end=5))
    prune.model, prune.pruning_func = net, loop_of(prune, 2)
    prune()
    said = "ended with epoch 1, before the pruners' end_epoch (5): the zeros from 12.5 to 50 %"
    assert any(said in note for note in prune.result.notes)


def test_a_loop_without_hooks_and_hooks_without_a_loop_are_told(net: Any) -> None:
    prune = Pruning(conf())
    prune.model, prune.pruning_func = net, lambda model: None
    with pytest.raises(TrainingError, match="without calling on_epoch_begin"):
        prune()
    with pytest.raises(ConfigError, match="while the pruning runs"):
        prune.on_epoch_begin(0)


@pytest.mark.parametrize(
    ("lines", "said"),
    [
        ("initial_sparsity: 0.5\n      target_sparsity: 0.2", ":7: .*below initial_sparsity"),
        ("end_epoch: 0", ":6: .*end_epoch"),
        ("start_epoch: 5\n      end_epoch: 2", ":7: .*before start_epoch"),
        ("pruners:\n        - {names: [fz.weight]}", ":7: .*did you mean 'fc.weight'"),
        ("pruners:\n        - {names: [blocks.0.norm]}", ":7: .*has no weights to prune"),
        ("pruners:\n        - {prune_type: magnitude}", ":7: .*allowed: basic_magnitude"),
        (
            "pruners:\n        - {initial_sparsity: 0.9, target_sparsity: 0.1}",
            ":7: .*below initial",
        ),
        (
            "initial_sparsity: 0.5\n      pruners:\n        - {target_sparsity: 0.1}",
            r":8: .*pruners\[0\]: target_sparsity is 0.1, below the initial sparsity \(0.5\)",
        ),
        (
            "pruners:\n        - {parameters: {pattern: 4x4}}",
            ":7: .*parameters: pattern: .*tile_pattern_1x1",
        ),
        (
            "pruners:\n        - {parameters: {stride: 0}}",
            ":7: .*parameters: stride: given 0, expected a number of rows",
        ),
        (
            "pruners:\n        - {parameters: {patern: 4x4}}",
            ":7: .*unknown parameter 'patern', did you mean 'pattern'",
        ),
        (
            "pruners:\n        - {prune_type: group_lasso, parameters: {alpha: little}}",
            ":7: .*alpha: given 'little', expected a number",
        ),
    ],
)
def test_mistakes_come_with_file_and_line(tmp_path: Path, net: Any, lines: str, said: str) -> None:
    path = tmp_path / "prune.yaml"
    path.write_text(
        "model: {name: net, framework: pytorch}\npruning:\n  train: {end_epoch: 1}\n  approach:\n"
        f"    weight_compression:\n      {lines}\n"
    )
    with pytest.raises(ConfigError, match=said):
        prune = Pruning(str(path))
        prune.model, prune.pruning_func = net, loop_of(prune)
        prune()


def test_what_can_not_be_as_sparse_as_asked_for_is_told(net: Any) -> None:
    told = conf(0.5)
    told["pruning"]["approach"]["weight_compression"]["pruners"] = [
        {"names": ["fc"], "method": "global", "parameters": {"stride": 64}}
    ]
    prune = Pruning(told)
    prune.model, prune.train_dataloader = net, TRAIN
    prune()
    said = " ".join(prune.result.notes)
    assert "fc.weight has 0.0 % zeros instead of 50 %" in said and not prune.result.reached
    assert "'global' has no effect" in said


def test_both_kinds_of_pruning_at_once_are_refused(net: Any) -> None:
    told = conf(0.5)
    told["pruning"]["approach"]["structured"] = {"ratio": 0.3}
    prune = Pruning(told)
    prune.model, prune.train_dataloader, prune.eval_func = net, TRAIN, scorer(TEST)
    with pytest.raises(ConfigError, match="expected one of them"):
        prune()


def test_a_train_section_that_trains_nothing_is_told(tmp_path: Path, net: Any) -> None:
    given = conf()
    given["pruning"]["train"]["end_epoch"] = 0
    prune = Pruning(given)
    prune.model, prune.train_dataloader = net, TRAIN
    with pytest.raises(ConfigError, match="given 0: expected more than start_epoch"):
        prune()


def test_a_student_learns_from_its_teacher_by_the_yaml(net: Any) -> None:
    torch.manual_seed(2)
    student = Residual(6, 1)
    distiller = Distillation(
        {
            "distillation": {
                "train": {
                    "end_epoch": 16,
                    "optimizer": {"SGD": {"learning_rate": 0.1, "momentum": 0.9}},
                    "criterion": {
                        "KnowledgeDistillationLoss": {
                            "temperature": 2.0,
                            "loss_types": ["CE", "KL"],
                            "loss_weights": [0.5, 0.5],
                        }
                    },
                }
            },
            "tuning": {"accuracy_criterion": {"relative": 0.9, "really": True}},
        }
    )
    before = scorer(TEST)(student.eval())
    distiller.student_model, distiller.teacher_model = student, net
    distiller.train_dataloader, distiller.eval_func = TRAIN, scorer(TEST)
    distiller()
    assert distiller.accuracy > max(0.3, before) and distiller.met


def test_a_chain_prunes_and_then_quantizes_with_one_report(net: Any, tmp_path: Path) -> None:
    prune = Pruning(conf(0.5))
    prune.pruning_func, prune.eval_func = loop_of(prune, 2), scorer(TEST)
    quantizer = Quantization(
        {
            "tuning": {
                "workspace": {"path": str(tmp_path)},
                "accuracy_criterion": {"relative": 0.5, "really": True},
            }
        }
    )
    quantizer.calib_dataloader, quantizer.eval_func = TRAIN, scorer(TEST)
    quantizer.measure_speed = False
    scheduler = Scheduler()
    scheduler.model = net
    scheduler.append(prune, quantizer)
    model = scheduler()
    assert model.is_quantized
    assert [step.name for step in scheduler.steps] == ["Pruning", "Quantization"]
    assert scheduler.report().startswith("1. Pruning: ")


@pytest.mark.parametrize("by_yaml", [True, False])
def test_a_chain_that_distills_keeps_the_zeros(net: Any, by_yaml: bool, tmp_path: Path) -> None:
    teacher = copy.deepcopy(net)
    prune = Pruning(conf(0.5))
    prune.pruning_func = loop_of(prune)
    loss = {"KnowledgeDistillationLoss": {"temperature": 2.0}}
    train = {"end_epoch": 1, "optimizer": {"SGD": {"learning_rate": 0.02}}, "criterion": loss}
    distiller = Distillation({"distillation": {"train": train}})
    distiller.teacher_model, distiller.train_dataloader = teacher, TRAIN
    if not by_yaml:  # a loop that knows of no hooks
        distiller.train_func = lambda model: [w.data.add_(0.01) for w in model.parameters()]
    quantizer = Quantization({"tuning": {"workspace": {"path": str(tmp_path)}}})
    quantizer.calib_dataloader = TRAIN
    quantizer.measure_speed = False
    scheduler = Scheduler()
    scheduler.model = net
    scheduler.append(prune, distiller, quantizer)
    model = scheduler()
    assert model.is_quantized and distiller.sparsity.share == prune.result.sparsity.share
    zeros = {name: (t == 0).float().mean() for name, t in distiller.model.native.named_parameters()}
    assert all(zeros[layer.name] == layer.share for layer in prune.result.sparsity.layers)
    assert [line.split(", ")[-1] for line in scheduler.report().splitlines()[:2]] == [
        "1. Pruning: 50.0 % zeros",
        "2. Distillation: 50.0 % zeros",
    ]


def loose(folder: Path) -> dict[str, Any]:
    return {
        "workspace": {"path": str(folder)},
        "accuracy_criterion": {"relative": 0.5, "really": True},
    }


def test_training_for_int8_and_pruning_are_combined(net: Any, tmp_path: Path) -> None:
    aware = {"approach": "quant_aware_training"}
    quantizer = Quantization({"quantization": aware, "tuning": loose(tmp_path)})
    quantizer.calib_dataloader, quantizer.eval_func = TRAIN, scorer(TEST)
    quantizer.measure_speed = False
    prune = Pruning(conf(0.5))
    prune.pruning_func = loop_of(prune, 2)
    scheduler = Scheduler()
    scheduler.model = net
    scheduler.append(scheduler.combine(prune, quantizer))
    model = scheduler()
    weight = model.native.fc.weight.dequantize() if model.is_quantized else model.native.fc.weight
    assert prune.result.sparsity.share == pytest.approx(0.5, abs=0.01)
    assert int((weight == 0).sum()) >= 38
    assert scheduler.report().endswith("50.0 % zeros")
    with pytest.raises(ConfigError, match="quant_aware_training"):
        scheduler.combine(prune, Quantization({"quantization": {"approach": STATIC}}))


def test_a_combination_takes_what_its_parts_take(net: Any, tmp_path: Path) -> None:
    """As scripts of the original have it: one loop, with the hooks of the combination."""
    aware = {"approach": "quant_aware_training"}
    quantizer = Quantization({"quantization": aware, "tuning": loose(tmp_path)})
    quantizer.measure_speed = False
    prune = Pruning(conf(0.5))
    scheduler = Scheduler()
    combined = scheduler.combine(prune, quantizer)
    seen: list[int] = []
    combined.register_hook("on_epoch_begin", seen.append)
    combined.train_func = loop_of(combined, 2)
    combined.calib_dataloader, combined.eval_func = TRAIN, scorer(TEST)
    scheduler.model = net
    scheduler.append(combined)
    scheduler()
    assert seen == [0, 1] and prune.result.sparsity.share == pytest.approx(0.5, abs=0.01)
    with pytest.warns(UserWarning, match="did you mean 'train_func'"):
        combined.train_fun = print


def test_components_of_ones_own_run_with_hooks() -> None:
    seen: list[Any] = []

    class Mine(Component):
        def execute(self) -> str:
            self.on_epoch_begin(1)
            return f"{self.model}!"

    mine = Mine()
    mine.register_hook("on_epoch_begin", seen.append)
    scheduler = Scheduler()
    scheduler.model = "model"
    scheduler.append(mine)
    assert scheduler() == "model!" and seen == [1]
    with pytest.raises(ConfigError, match="did you mean 'on_epoch_end'"):
        mine.register_hook("on_epoch_ends", print)


def test_masks_are_exact_and_tiles_are_whole() -> None:
    draw = np.random.default_rng(0)
    weight = draw.normal(size=(7, 5, 3))
    for share in (0.0, 0.33, 0.9):
        assert (~masks.magnitude(weight, share)).sum() == round(share * weight.size)
    assert masks.magnitude(np.ones((4, 4)), 0.5).sum() == 8  # ties too
    with pytest.raises(ConfigError, match="tile_pattern_1x1"):
        masks.tile_of("4x4")
    assert load({"pruning": {"approach": {"weight_compression": {}}}}).pruning is not None


def test_a_lock_holds_without_epochs_and_says_nothing_of_targets(net: Any) -> None:
    with torch.no_grad():
        net.fc.weight[:, :4] = 0
    lock = Pruning(conf(0.9, prune_type="pattern_lock", names=["fc"]))

    def pruning_func(model: Any) -> None:
        with torch.no_grad():
            model.fc.weight.add_(1.0)
        lock.on_batch_end()

    lock.model, lock.pruning_func = net, pruning_func
    lock()
    assert not net.fc.weight[:, :4].any() and net.fc.weight[:, 4:].all()
    assert not any("warning" in note for note in lock.result.notes)
