"""Whole heads set to zero, as the original's files and loops have it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from tests.compress.test_pruners import conf, loop_of  # noqa: E402
from torch import nn  # noqa: E402

from lpot.core.errors import ConfigError  # noqa: E402
from lpot.experimental import Pruning  # noqa: E402


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.query, self.out = nn.Linear(8, 8), nn.Linear(8, 8)


class Layers(nn.Module):
    """Two layers of an encoder, named as those of transformers are."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.ModuleList(Attention() for _ in range(2))
        self.fc = nn.Linear(8, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layer:
            x = layer.out(torch.tanh(layer.query(x)))
        return self.fc(x)


HEADS = """\
model: {name: heads, framework: pytorch}
pruning:
  train:
    frequency: 2
  approach:
    weight_compression:
      start_epoch: 0
      end_epoch: 1
      frequency: 1
      pruners:
        - !Pruner
            prune_type: gradient_sensitivity
            update_frequency: 0.1
            names: ['layer.*.query.weight', 'layer.*.query.bias']
            parameters: {target: 3, normalize: True, stride: 2, transpose: False,
                         importance_inputs: ['head_mask'], importance_metric: abs_gradient}
        - !Pruner
            prune_type: gradient_sensitivity
            names: ['layer.*.out']
            parameters: {target: 3, stride: 2, transpose: True}
"""


def test_heads_go_as_the_original_s_files_and_loops_have_it(tmp_path: Path) -> None:
    """So many heads stay, with their biases; gradients are cleared before the batch ends, and no
    epoch is said to begin."""
    path = tmp_path / "heads.yaml"
    path.write_text(HEADS)
    prune = Pruning(str(path))
    torch.manual_seed(0)
    net = Layers()
    before = copy.deepcopy(net.state_dict())

    def pruning_func(model: Any) -> None:
        nn.functional.cross_entropy(model(torch.randn(4, 8)), torch.tensor([0, 1, 2, 0])).backward()
        model.zero_grad()
        prune.on_batch_end()
        prune.on_epoch_end()

    prune.model, prune.pruning_func = net, pruning_func
    prune()
    ranked_by_size = []
    for name, layer in zip(("layer.0", "layer.1"), net.layer, strict=True):
        gone = (layer.query.weight == 0).all(1)
        assert int(gone.sum()) == 2 and torch.equal(gone, layer.query.bias == 0)
        assert torch.equal(gone[::2], gone[1::2])  # heads of two rows
        columns = (layer.out.weight == 0).all(0)
        assert int(columns.sum()) == 2 and layer.out.bias.all()
        sizes = before[f"{name}.query.weight"].abs().reshape(4, -1).mean(1)
        ranked_by_size.append(int(sizes.argmin()) == int(gone.nonzero()[0]) // 2)
    assert not all(ranked_by_size)
    assert any(
        "pruning.train.frequency: 2: it has no effect" in note for note in prune.result.notes
    )
    assert any("on_epoch_begin(epoch) was never called" in note for note in prune.result.notes)
    assert not any(tensor._post_accumulate_grad_hooks for tensor in net.parameters())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"names": ["layer.*.nothing"]}, "is not a weight of this model"),
        ({"names": ["layer.0.query.bias"]}, "a bias goes with the outputs of its weight"),
        ({"parameters": {"target": 0}}, "given 0, expected the number of heads"),
        ({"update_frequency": 0}, "update_frequency"),
    ],
)
def test_what_heads_can_t_be(given: dict[str, Any], said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        prune = Pruning(conf(prune_type="gradient_sensitivity", **given))
        prune.model, prune.pruning_func = Layers(), loop_of(prune)
        prune()
