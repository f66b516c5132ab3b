"""Layer norms that smooth for the linears behind them, where nobody else reads them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

from backends.torch.test_torch_advice import (
    WIDTH,
    Torn,
    batches,
    error,
    low,
    prepared,
    same,
    smoothed,
    torn,
)
from backends.torch.test_torch_models import BACKEND
from backends.torch.torch_nets import seeded
from lpot.backends.torch.model import TorchModel
from lpot.backends.torch.modules import LowLinear
from lpot.backends.torch.ranges import Observed
from lpot.core.recipe import OpKey


class PreNorm(Torn):
    """The residual goes past the norm, so that nobody but linears reads it."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(x)
        shares = torch.softmax(self.query(y) @ self.key(y).transpose(1, 2) / y.shape[-1] ** 0.5, -1)
        return self.fc(x + self.leave(shares @ self.value(y)) + self.outer(self.inner(y)))


class Branching(PreNorm):
    """Reads the norm in one case only."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return super().forward(x) + (self.norm(x)[:, 0].sum() if x.shape[0] > 4 else 0.0)


class Returning(PreNorm):
    def forward(self, x: torch.Tensor) -> Any:
        y = self.norm(x)
        return self.fc(x + self.outer(self.inner(y))), y


class Twice(PreNorm):
    """One linear for two inputs."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x + self.outer(self.inner(self.norm(x)) + self.inner(x)))


def norm_smooths(built: TorchModel) -> bool:
    return any(
        module.settings.divided
        for module in built.native.modules()
        if isinstance(module, LowLinear)
    )


def test_a_norm_that_only_linears_read_smooths_for_them(tmp_path: Path) -> None:
    model, recipe, seen = prepared(torn(PreNorm))
    usual, smooth = (BACKEND.build(model, r, seen) for r in (recipe, smoothed(recipe)))
    assert all(low(smooth, op).settings.divided for op in ("query", "key", "value", "inner"))
    assert low(smooth, "query").smooth is None
    assert error(model, smooth) < 0.2 * error(model, usual)
    weight = model.native.get_submodule("inner").weight.detach()
    assert float((low(smooth, "inner").weight - weight).abs().max()) < 0.02 * float(weight.max())
    assert torch.equal(usual.native.norm.weight, model.native.norm.weight)
    BACKEND.save(smooth, tmp_path / "int8")
    same(smooth, BACKEND.restore(tmp_path / "int8", seeded(PreNorm())))


def test_a_norm_that_smooths_changes_no_bit() -> None:
    model, recipe, seen = prepared(torn(PreNorm))
    found = Observed(seen).smooth(model.prepared, smoothed(recipe))["inner"]
    twin = model.prepared.scaled("norm", found)
    ((x,),) = batches(1)
    norm, inner = model.native.norm, model.native.inner
    scaled = functional.linear(twin(x), inner.weight * found.factors, inner.bias)
    assert torch.equal(scaled, inner(norm(x)))


def test_a_norm_does_not_smooth_for_a_float_op() -> None:
    model, recipe, seen = prepared(torn(PreNorm))
    mixed = smoothed(recipe).with_float([OpKey("key", "Linear")])
    built = BACKEND.build(model, mixed, seen)
    assert not norm_smooths(built) and low(built, "query").smooth is not None
    assert error(model, built) < 0.2 * error(model, BACKEND.build(model, recipe, seen))


@pytest.mark.parametrize("net", [Torn, Branching, Returning, Twice])
def test_a_norm_that_others_read_is_left_alone(net: type[nn.Module]) -> None:
    model, recipe, seen = prepared(torn(net))
    built = BACKEND.build(model, smoothed(recipe), seen)
    assert not norm_smooths(built)
    assert torch.equal(built.native.norm.weight, model.native.norm.weight)


def test_a_norm_that_adds_one_to_its_weight_is_left_alone() -> None:
    class OneNorm(nn.LayerNorm):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return functional.layer_norm(x, self.normalized_shape, 1.0 + self.weight, self.bias)

    class Offset(PreNorm):
        def __init__(self) -> None:
            super().__init__()
            self.norm = OneNorm(WIDTH)

    model, recipe, seen = prepared(torn(Offset))
    assert not norm_smooths(BACKEND.build(model, smoothed(recipe), seen))


def test_a_sound_net_gets_no_smoothing_by_norms() -> None:
    model, recipe, seen = prepared(seeded(PreNorm()).eval())
    assert all(not found.repairs for found in BACKEND.advise(model, recipe, seen))


def doubled(x: torch.Tensor) -> torch.Tensor:
    return x * 2.0


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_readers_that_can_not_be_seen_do_no_harm() -> None:
    compiled = torch.jit.script(doubled)

    class Hidden(PreNorm):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            y = self.norm(x)
            return self.fc(x + self.outer(self.inner(y)) + compiled(y))

    model, recipe, seen = prepared(torn(Hidden))
    assert not norm_smooths(BACKEND.build(model, smoothed(recipe), seen))
