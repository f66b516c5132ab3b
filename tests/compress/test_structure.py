"""Which channels go together, and what is left when they go: equal to ignoring them, in any net."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from torch import nn  # noqa: E402
from torch.nn import functional  # noqa: E402

from lpot.backends.torch.prune.cut import (  # noqa: E402
    Shape,
    Skip,
    removed,
    reshape,
    shape_of,
    silenced,
    skipped,
)
from lpot.backends.torch.prune.measure import (  # noqa: E402
    find_blocks,
    importance,
    sound_groups,
)
from lpot.core.compress.groups import strongest  # noqa: E402
from lpot.core.errors import UnsupportedModel  # noqa: E402


class Joined(nn.Module):
    """A residual, a join, a depthwise and a grouped convolution, a gate and a flattened picture."""

    def __init__(self) -> None:
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.inner = nn.Conv2d(8, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.left = nn.Conv2d(8, 6, 1)
        self.depth = nn.Conv2d(14, 14, 3, padding=1, groups=14)
        self.grouped = nn.Conv2d(14, 12, 1)
        self.four = nn.Conv2d(12, 12, 3, padding=1, groups=4)
        self.squeeze, self.excite = nn.Linear(12, 4), nn.Linear(4, 12)
        self.fc1, self.fc2 = nn.Linear(12 * 16, 10), nn.Linear(10, 3)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = functional.relu(self.stem(x))
        x = functional.silu(x + self.norm(self.inner(x)))
        x = torch.cat([functional.relu(self.left(x)), x], 1)
        x = self.four(functional.gelu(self.grouped(self.depth(x))))
        gate = torch.sigmoid(self.excite(functional.relu(self.squeeze(x.mean((2, 3))))))
        x = functional.max_pool2d(x * gate[:, :, None, None], 2)
        return self.fc2(functional.relu(self.fc1(x.flatten(1))))


@pytest.fixture
def net() -> Joined:
    torch.manual_seed(0)
    made = Joined().eval()
    made.norm.running_mean.uniform_(-1, 1)
    return made


INPUTS = (np.random.default_rng(0).normal(size=(2, 3, 8, 8)).astype(np.float32),)


def test_every_group_of_a_joined_net_is_found_and_goes_exactly(net: Joined) -> None:
    groups = {group.name: group for group in sound_groups(net, INPUTS)}
    assert set(groups) == {"inner", "excite", "squeeze", "fc1"}
    joined = groups["inner"]  # the residual, the join, and the depthwise convolution behind it
    assert joined.size == 14 and joined.block == 1
    touched = {slot.place.tensor for slot in joined.slots}
    assert {"stem.weight", "norm.running_mean", "left.weight", "depth.weight"} <= touched
    gated = groups["excite"]  # four groups of filters with three channels each
    assert (gated.size, gated.block, gated.units) == (12, 3, 4)
    x = torch.tensor(INPUTS[0])
    for group in groups.values():
        gone = [0, group.units - 1] if group.units > 2 else [0]
        kept = tuple(unit for unit in range(group.units) if unit not in gone)
        small = removed(net, [group], {group.name: kept})
        torch.testing.assert_close(small(x), silenced(net, group, gone)(x))
        assert sum(t.numel() for t in small.parameters()) < sum(t.numel() for t in net.parameters())


def test_all_groups_at_once_and_a_fresh_net_takes_the_shape(net: Joined) -> None:
    groups = sound_groups(net, INPUTS)
    weight = importance(net, groups, [INPUTS])
    kept = {group.name: strongest(weight[group.name], 0.5) for group in groups}
    small = removed(net, groups, kept)
    assert small.depth.groups == small.depth.in_channels == 7 and small.four.groups == 2
    fresh = Joined().eval()
    reshape(fresh, Shape.from_json(shape_of(small, net).to_json()))
    fresh.load_state_dict(small.state_dict())
    x = torch.tensor(INPUTS[0])
    assert torch.equal(fresh(x), small(x))
    with pytest.raises(UnsupportedModel, match="another one"):
        reshape(Joined(), Shape({"fc2.weight": (3, 99)}))


def test_what_counts_on_its_size_is_left_alone() -> None:
    class Rigid(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b, self.c = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            x = self.a(x).view(-1, 6)  # a number in the code
            shared = self.b(self.b(x))  # one weight at two places
            return self.c(functional.softmax(shared, -1))  # a norm over the channels

    assert sound_groups(Rigid().eval(), (np.ones((2, 4), np.float32),)) == []


def test_heads_and_the_layers_of_an_encoder_go_as_a_whole() -> None:
    transformers = pytest.importorskip("transformers")
    config = transformers.BertConfig(
        hidden_size=24,
        num_hidden_layers=2,
        num_attention_heads=3,
        intermediate_size=32,
        vocab_size=40,
        max_position_embeddings=16,
    )
    torch.manual_seed(0)
    net = transformers.BertForSequenceClassification(config).eval()
    ids = np.arange(14).reshape(2, 7)
    inputs: dict[str, Any] = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    groups = {group.name: group for group in sound_groups(net, inputs)}
    heads = groups["bert.encoder.layer.0.attention.self.key"]
    assert (heads.units, heads.block) == (3, 8)
    assert groups["bert.encoder.layer.1.intermediate.dense"].units == 32
    small = removed(net, [heads], {heads.name: (0, 2)})
    inner = small.bert.encoder.layer[0].attention.self
    assert inner.query.out_features == 16 and inner.num_attention_heads == 2
    blocks = find_blocks(net, inputs)
    assert set(blocks) == {"bert.encoder.layer.0", "bert.encoder.layer.1"}
    thin = skipped(net, ["bert.encoder.layer.1"], blocks)
    assert isinstance(thin.bert.encoder.layer[1], Skip)
    tensors = {name: torch.tensor(value) for name, value in inputs.items()}
    assert thin(**tensors).logits.shape == (2, 2)
