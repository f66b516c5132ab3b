"""One convolution that stands for a block: found where it can, fitted, quantized, saved, loaded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
from tests.backends.torch.test_torch_models import default  # noqa: E402
from torch import nn  # noqa: E402

from lpot.backends.torch import TorchBackend  # noqa: E402
from lpot.backends.torch.prune.cut import Shape, reshape, shape_of  # noqa: E402
from lpot.backends.torch.prune.measure import find_blocks  # noqa: E402
from lpot.backends.torch.prune.merge import Merged, Merger, find_mergers, merged  # noqa: E402
from lpot.backends.torch.prune.refit import refit  # noqa: E402
from lpot.core.compress.groups import Left  # noqa: E402
from lpot.core.errors import UnsupportedModel  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Residual(nn.Module):
    """Its convolutions lie below a Sequential, with norms; the last is a small one."""

    def __init__(self, width: int, relu: bool = True) -> None:
        super().__init__()
        self.branch = nn.Sequential(
            nn.Conv2d(width, 12, 1),
            nn.BatchNorm2d(12),
            nn.ReLU(),
            nn.Conv2d(12, 12, 5, padding=2, groups=12),
            nn.Conv2d(12, width, 1),
        )
        self.relu = nn.ReLU() if relu else nn.Identity()

    def forward(self, x: Any) -> Any:
        return self.relu(x + self.branch(x))


class Simple(nn.Module):
    """What it gives is what one convolution gives."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv, self.layer = nn.Conv2d(width, width, 1), nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Any) -> Any:
        return torch.relu(self.layer(self.conv(x)))


class Even(nn.Module):
    """No odd kernel, no merger."""

    def __init__(self, width: int) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(width, 8, 2), nn.ConvTranspose2d(8, width, 2)
        self.c = nn.Conv2d(width, width, 1)

    def forward(self, x: Any) -> Any:
        return self.c(self.b(torch.relu(self.a(x))))


def net() -> nn.Module:
    torch.manual_seed(0)
    blocks = (Residual(8), Residual(8, relu=False), Simple(8), Even(8))
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(8, 5))
    return nn.Sequential(nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), *blocks, *head).eval()


def batches(count: int, seed: int = 1) -> list[tuple[np.ndarray]]:
    draw = np.random.default_rng(seed)
    return [(draw.normal(size=(16, 3, 12, 12)).astype(np.float32),) for _ in range(count)]


def error(one: nn.Module, other: nn.Module) -> float:
    """On a batch that nothing was fitted to."""
    (x,) = batches(1, 9)[0]
    with torch.no_grad():
        made, truth = one(torch.tensor(x)), other(torch.tensor(x))
    return float((made - truth).square().mean() / truth.square().mean())


def mergers(full: nn.Module) -> dict[str, Merger]:
    inputs = batches(1)[0]
    return find_mergers(full, inputs, find_blocks(full, inputs))


def test_how_one_convolution_could_stand_for_each_block() -> None:
    assert mergers(net()) == {
        "2": Merger("branch.4", "branch.0", 8, 8, 5, relu=True),
        "3": Merger("branch.4", "branch.0", 8, 8, 5, relu=False),
        "4": Merger("layer", "conv", 8, 8, 3, relu=True),
    }


def test_a_block_of_tokens_has_no_merger() -> None:
    class Mlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 8)

        def forward(self, x: Any) -> Any:
            return x + self.b(self.a(x))

    full, inputs = nn.Sequential(Mlp(), Mlp()).eval(), (np.ones((2, 8), np.float32),)
    blocks = find_blocks(full, inputs)
    assert set(blocks) == {"0", "1"} and find_mergers(full, inputs, blocks) == {}


def test_what_one_convolution_can_give_is_given_though_a_relu_hides_half_of_it() -> None:
    full = net()
    small = merged(full, ["4"], mergers(full))
    assert isinstance(small[4], Merged) and error(small[:5], full[:5]) > 0.5
    refit(small, full, batches(4), most=0)  # it is fitted, whatever the limit
    assert error(small[:5], full[:5]) < 0.01


@pytest.mark.parametrize("block", ["2", "3"])
def test_a_merged_block_is_nearer_than_none(block: str) -> None:
    full = net()
    small = merged(full, [block], mergers(full))
    before = error(small, full)  # it hands on what comes in
    refit(small, full, batches(4), most=0)
    assert error(small, full) < 0.3 * before


def test_merged_blocks_of_a_pruned_width_are_quantized_saved_and_loaded(tmp_path: Path) -> None:
    class Wide(nn.Module):
        """The width of its stream can be pruned, too."""

        def __init__(self) -> None:
            super().__init__()
            self.stem, self.blocks = nn.Conv2d(3, 16, 3), nn.Sequential(Residual(16), Residual(16))
            self.last = nn.Conv2d(16, 4, 1)

        def forward(self, x: Any) -> Any:
            return self.last(self.blocks(torch.relu(self.stem(x)))).mean((2, 3))

    torch.manual_seed(0)
    full, backend, data = Wide().eval(), TorchBackend(), batches(3)
    model = backend.load(full)
    parts = backend.parts(model, data)
    stream = next(group for group in parts.groups if group.size == 16)
    left = Left({stream.name: tuple(range(12))}, merged=("blocks.1",))
    small = backend.refitted(model, parts, left, data)
    conv: Any = small.native.get_submodule("blocks.1.branch.4")
    assert conv.weight.shape[:2] == (12, 12)
    observed = backend.observe(small, data, (0,))[0]
    low = backend.build(small, default(model), observed)
    low.shape = small.shape
    precisions = {key.name: found for key, found in low.precisions.items()}
    assert precisions["blocks.1.branch.0"] == "removed" != precisions["blocks.1.branch.4"]
    wanted = backend.run(low, data[0])
    for made in (low, small):
        backend.save(made, tmp_path / "model")
        again = backend.reopen(model, tmp_path / "model")
        for one, other in zip(backend.run(made, data[0]), backend.run(again, data[0]), strict=True):
            np.testing.assert_array_equal(one, other)
    (truth,) = backend.run(small, data[0])
    assert np.square(wanted[0] - truth).mean() < 1e-2 * np.square(truth).mean()


def test_shapes_of_before_and_damaged_ones() -> None:
    full = net()
    shape = shape_of(merged(full, ["2"], mergers(full)), full)
    raw = shape.to_json()
    assert Shape.from_json(raw) == shape
    assert shape.is_gone("2.branch.0") and not shape.is_gone("2.branch.4")
    assert (
        Shape.from_json({key: raw[key] for key in ("tensors", "attributes", "removed")}).merged
        == {}
    )
    for kernel in (0, 2, "x"):
        with pytest.raises(ValueError):
            Shape.from_json({**raw, "merged": {"2": {**raw["merged"]["2"], "kernel": kernel}}})
    with pytest.raises(UnsupportedModel, match="saved from another one"):
        reshape(nn.Sequential(nn.Linear(2, 2)), shape)
