"""Layers that are left after a cut make up for it, by least squares."""

from __future__ import annotations

import copy

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from torch import nn  # noqa: E402

from lpot.backends.torch.prune import refit as refitting  # noqa: E402
from lpot.backends.torch.prune.cut import left_of, removed, skipped  # noqa: E402
from lpot.backends.torch.prune.distill import watched_layers  # noqa: E402
from lpot.backends.torch.prune.measure import importance, sound_groups  # noqa: E402
from lpot.backends.torch.prune.refit import refit  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Block(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(width, 12, 3, padding=1), nn.Conv2d(12, width, 3, padding=1)

    def forward(self, x):
        return torch.relu(x + self.b(torch.relu(self.a(x))))


def net() -> nn.Module:
    torch.manual_seed(0)
    blocks = nn.Sequential(*(Block(8) for _ in range(3)))
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), blocks, *head).eval()


def batches(count: int, seed: int) -> list[tuple[np.ndarray]]:
    draw = np.random.default_rng(seed)
    return [(draw.normal(size=(16, 3, 12, 12)).astype(np.float32),) for _ in range(count)]


def error(one: nn.Module, other: nn.Module) -> float:
    """On batches that nothing was fitted to."""
    with torch.no_grad():
        pairs = [(one(torch.tensor(x)), other(torch.tensor(x))) for (x,) in batches(2, 9)]
    return float(sum((a - b).square().mean() / b.square().mean() for a, b in pairs))


def test_a_block_that_is_gone_is_made_up_for() -> None:
    full = net()
    small = skipped(full, ["1.1"], {})
    before = error(small, full)
    fitted = refit(small, full, batches(3, 1))
    assert error(small, full) < 0.5 * before
    # What lies before the cut sees what it always saw, and stays.
    assert fitted == ["1.2.a", "1.2.b", "4"]


def test_a_residual_makes_up_for_its_stream(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sum is fitted, not the branch alone: the stream lacks what the cut block added to it."""
    full, errors = net(), []
    for sums in (True, False):
        if not sums:
            monkeypatch.setattr(
                refitting,
                "_wanted",
                lambda layers, small, large, kept: refitting._targets(layers[1], large.made),
            )
        small = skipped(full, ["1.1"], {})
        assert refit(small, full, batches(3, 1), most=2) == ["1.2.a", "1.2.b"]
        with torch.no_grad():
            (x,) = batches(1, 9)[0]
            start, wanted = full[0](torch.tensor(x)), full[:2](torch.tensor(x))
            errors.append(float((small[1](start) - wanted).square().mean()))
    assert errors[0] < 0.8 * errors[1]


def test_a_quick_look_fits_layers_behind_each_cut() -> None:
    """Not only behind the first, or two cuts look worse than they are beside one."""
    torch.manual_seed(0)
    full = nn.Sequential(
        nn.Conv2d(3, 8, 3, padding=1),
        nn.Sequential(*(Block(8) for _ in range(6))),
    )
    full.eval()
    small = skipped(full, ["1.0", "1.3"], {})
    wanted = ["1.1.a", "1.1.b", "1.4.a", "1.4.b"]
    assert refit(small, full, batches(3, 1), most=2) == wanted


def test_channels_that_are_gone_are_made_up_for() -> None:
    full, few = net(), batches(3, 1)
    groups = sound_groups(full, few[0])
    found = importance(full, groups, few)
    kept = {group.name: tuple(range(6)) for group in groups if group.name == "1.1.a"}
    assert kept and found["1.1.a"].size == 12
    small = removed(full, groups, kept)
    rows = {
        name: mask.nonzero()[:, 0].tolist()
        for (name, axis), mask in left_of(full, groups, kept).items()
        if axis == 0
    }
    before = error(small, full)
    refit(small, full, few, rows)
    assert error(small, full) < 0.7 * before


def test_a_model_that_was_not_cut_stays_to_the_last_bit() -> None:
    full = net()
    twin = copy.deepcopy(full)
    assert refit(twin, full, batches(2, 1)) == []
    for one, other in zip(twin.parameters(), full.parameters(), strict=True):
        assert torch.equal(one, other)


@pytest.mark.parametrize("bias", [True, False])
def test_convolutions_of_one_dimension_and_layers_without_bias(bias: bool) -> None:
    torch.manual_seed(1)

    class Wave(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first = nn.Conv1d(2, 6, 3, padding=1, bias=bias)
            self.skip = nn.Sequential(nn.Conv1d(6, 6, 1), nn.ReLU(), nn.Conv1d(6, 6, 1))
            self.last = nn.Conv1d(6, 4, 3, stride=2, dilation=2, bias=bias)
            self.head = nn.Linear(4, 3, bias=bias)

        def forward(self, x):
            return self.head(self.last(self.skip(self.first(x))).mean(-1))

    full = Wave().eval()
    small = skipped(full, ["skip"], {})
    draw = np.random.default_rng(0)
    few = [(draw.normal(size=(32, 2, 20)).astype(np.float32),) for _ in range(2)]
    x = torch.tensor(draw.normal(size=(16, 2, 20)).astype(np.float32))
    with torch.no_grad():
        before = float((small(x) - full(x)).square().mean())
        assert refit(small, full, few) == ["last", "head"]
        assert float((small(x) - full(x)).square().mean()) < before


def test_blocks_are_compared_with_the_ones_they_stand_in_for() -> None:
    full = nn.Sequential(*(Block(8) for _ in range(6)))
    small = skipped(full, ["0", "2", "3"], {})
    # 0: nothing before it could give it; 1 gives what 3 gave; 4 and 5 their own.
    assert watched_layers(small, full) == ["3", "4", "5"]
    assert watched_layers(full, full) == ["0", "2", "3", "5"]
