"""Shapes of yaml that LPOT 1.0 to 1.6 and its successor wrote for pruning and its relatives."""

from __future__ import annotations

from pathlib import Path

import pytest

from lpot.config import load
from lpot.config.availability import unavailable
from lpot.jobs.compress.specs import idle, specs

TRAIN = """\
  train:
    start_epoch: 0
    end_epoch: 4
    iteration: 100
    dataloader: {batch_size: 256, dataset: {ImageFolder: {root: /path/to/train}}}
    optimizer: {SGD: {learning_rate: 0.001, momentum: 0.1, nesterov: True, weight_decay: 0.1}}
    criterion: {CrossEntropyLoss: {reduction: mean}}
"""
SHAPES = {
    "1.0": """\
pruning:
  magnitude:
    prune1:
      weights: ['layer1.0.conv1.weight', 'layer1.0.conv2.weight']
      target_sparsity: 0.3
      start_epoch: 1
      end_epoch: 3
    prune2:
      weights: ['layer1.0.conv3.weight']
      target_sparsity: 0.2
  start_epoch: 0
  end_epoch: 20
  frequency: 1
  init_sparsity: 0.05
  target_sparsity: 0.25
""",
    "1.2": f"""\
pruning:
{TRAIN}\
  approach:
    weight_compression:
      initial_sparsity: 0.0
      target_sparsity: 0.97
      start_epoch: 0
      end_epoch: 4
""",
    "1.3": f"""\
pruning:
{TRAIN}\
  approach:
    weight_compression:
      initial_sparsity: 0.0
      target_sparsity: 0.97
      start_epoch: 0
      end_epoch: 2
      pruners:
        - !Pruner
            start_epoch: 1
            end_epoch: 3
            prune_type: basic_magnitude
            names: ['layer1.0.conv1.weight']
        - !Pruner
            target_sparsity: 0.6
            prune_type: gradient_sensitivity
            update_frequency: 2
            names: ['layer1.0.conv2.weight']
            parameters: {{stride: 64, transpose: False, normalize: True, index: 0,
                          importance_inputs: ['head_mask'], importance_metric: abs_gradient}}
""",
    "1.6": """\
pruning:
  approach:
    weight_compression:
      start_epoch: 0
      end_epoch: 1
      pruners:
        - !Pruner
            prune_type: pattern_lock
            names: ['module.fc.weight']
        - {prune_type: group_lasso, names: [conv1.weight],
           parameters: {alpha: 0.006, pattern: tile_pattern_1x16}}
""",
}
OTHERS = [
    "distillation:\n  train:\n    end_epoch: 2\n    optimizer: {SGD: {learning_rate: 0.1}}\n"
    "    criterion: {KnowledgeDistillationLoss: {temperature: 1.0, loss_types: ['CE', 'KL'],\n"
    "      loss_weights: [0.5, 0.5]}}\n",
    "model_conversion: {source: QAT, destination: default}\n",
    "graph_optimization: {precisions: ['bf16']}\n",
    "mixed_precision: {precisions: bf16}\n",
    "tuning: {tensorboard: true, diagnosis: true}\n",
]


@pytest.mark.parametrize("version", SHAPES)
def test_pruning_of_every_age_is_read_and_acted_upon(version: str, tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text("model: {name: net, framework: pytorch}\n" + SHAPES[version])
    config = load(path)
    assert not unavailable(config)
    found = specs(config)
    assert found
    if version == "1.0":
        assert [(spec.schedule.target, spec.schedule.initial) for spec in found] == [
            (0.3, 0.05),
            (0.2, 0.05),
        ]
    if version == "1.3":
        assert found[0].schedule.target == 0.97 and found[1].tile[0] == 64


@pytest.mark.parametrize("text", OTHERS)
def test_the_sections_around_it_are_acted_upon(text: str, tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text("model: {name: net, framework: pytorch}\n" + text)
    assert not unavailable(load(path))


DOCUMENTED = """\
pruning:
  train:
    start_epoch: 0
    end_epoch: 10
    frequency: 2
    hostfile: hosts
    criterion: {CrossEntropyLoss: {reduction: None}}
    optimizer: {SGD: {learning_rate: 0.1}}
  approach:
    weight_compression:
      frequency: 3
      pruners:
        - !Pruner
            update_frequency: 0.1
            names: ['layer1.0.conv1.weight']
        - !Pruner
            names: ['layer1.0.conv2.weight']
"""


def test_what_the_original_s_own_pages_show_is_read_and_what_has_no_effect_is_told(
    tmp_path: Path,
) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text("model: {name: net, framework: pytorch}\n" + DOCUMENTED)
    config = load(path)
    assert [spec.schedule.frequency for spec in specs(config)] == [1, 3]
    assert config.pruning.train.criterion.CrossEntropyLoss.reduction == "none"
    told = unavailable(config)
    assert [f"conf.yaml:{line}: pruning.train" in told[at] for at, line in ((0, 6), (1, 7))] == [
        True,
        True,
    ]


@pytest.mark.parametrize("empty", ["", " ~", " {}"])
def test_an_empty_weight_compression_has_all_its_defaults(empty: str, tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(
        "model: {name: net, framework: pytorch}\n"
        f"pruning:\n  approach:\n    weight_compression:{empty}\n"
    )
    (spec,) = specs(load(path))
    assert (spec.kind, spec.schedule.target, spec.schedule.end) == ("basic_magnitude", 0.97, 4)


def test_a_target_of_nothing_is_told_with_its_line(tmp_path: Path) -> None:
    path = tmp_path / "conf.yaml"
    path.write_text(
        "model: {name: net, framework: pytorch}\n"
        "pruning:\n  approach:\n    weight_compression:\n      target_sparsity: 0\n"
        "      pruners:\n        - !Pruner\n          names: [fc1]\n"
        "        - !Pruner {names: [fc2], target_sparsity: 0.5}\n"
        "        - !Pruner {names: [fc3], prune_type: pattern_lock}\n"
    )
    config = load(path)
    (told,) = idle(config, specs(config))
    assert "conf.yaml:8" in told and "sets no weight to zero" in told
