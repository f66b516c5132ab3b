"""Advice from statistics: smoothing that changes no bit, ranges for long tails, dynamic ranges."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.nn import functional

from backends.torch.test_torch_models import BACKEND, default
from backends.torch.torch_nets import seeded
from lpot.backends.torch.model import TorchModel
from lpot.backends.torch.modules import LowLinear
from lpot.backends.torch.ranges import Observed
from lpot.backends.torch.workshop import Workshop
from lpot.core.backend import Observations
from lpot.core.distance import distance
from lpot.core.recipe import OpKey, Recipe
from lpot.core.smooth import EACH
from lpot.core.space import restrict
from lpot.core.store import load_observations, save_observations

WIDTH = 48


class Torn(nn.Module):
    """Attention behind a layer norm, three channels of which are far larger than the others."""

    def __init__(self, opaque: bool = False) -> None:
        super().__init__()
        self.opaque = opaque
        self.norm = nn.LayerNorm(WIDTH)
        self.query = nn.Linear(WIDTH, WIDTH)
        self.key = nn.Linear(WIDTH, WIDTH)
        self.value = nn.Linear(WIDTH, WIDTH)
        self.leave = nn.Linear(WIDTH, WIDTH)
        self.inner = nn.Linear(WIDTH, 96)
        self.outer = nn.Linear(96, WIDTH)
        self.fc = nn.Linear(WIDTH, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.norm(x)
        if self.opaque and x.shape[0] > 10_000:  # which no tracer can follow
            return x
        shares = torch.softmax(self.query(x) @ self.key(x).transpose(1, 2) / WIDTH**0.5, -1)
        x = x + self.leave(shares @ self.value(x))
        return self.fc(x + self.outer(torch.relu(self.inner(x))))


def torn(net: type[nn.Module] = Torn, **options: Any) -> nn.Module:
    module = seeded(net(**options)).eval()
    with torch.no_grad():
        for channel, factor in ((3, 64.0), (17, 40.0), (30, 90.0)):
            module.norm.weight[channel] *= factor
            module.norm.bias[channel] *= factor
            for part in module.modules():
                if isinstance(part, nn.Linear) and part.in_features == WIDTH:
                    part.weight[:, channel] /= factor
    return module


def batches(count: int = 4, seed: int = 0) -> list[tuple[torch.Tensor]]:
    generator = torch.Generator().manual_seed(seed)
    return [(torch.randn(8, 6, WIDTH, generator=generator),) for _ in range(count)]


def prepared(module: nn.Module) -> tuple[TorchModel, Recipe, Observations]:
    model = BACKEND.load(module)
    return model, default(model), BACKEND.observe(model, batches(), (0,))[0]


def smoothed(recipe: Recipe) -> Recipe:
    return replace(recipe, repairs=(EACH,))


def error(model: TorchModel, built: TorchModel) -> float:
    return sum(distance(BACKEND.run(model, x), BACKEND.run(built, x)) for x in batches(2, seed=1))


def same(one: TorchModel, other: TorchModel) -> None:
    for x in batches(2, seed=2):
        for a, b in zip(BACKEND.run(one, x), BACKEND.run(other, x), strict=True):
            np.testing.assert_array_equal(a, b)


def low(built: TorchModel, name: str) -> LowLinear:
    module = built.native.get_submodule(name)
    assert isinstance(module, LowLinear)
    return module


def test_smoothing_changes_no_bit_of_fp32() -> None:
    model, recipe, seen = prepared(torn())
    found = Observed(seen).smooth(model.workshop, smoothed(recipe))
    assert {"query", "key", "value", "inner", "fc"} <= set(found)
    for op, smooth in found.items():
        layer = model.native.get_submodule(op)
        x = torch.randn(64, layer.in_features)
        usual = functional.linear(x, layer.weight, layer.bias)
        scaled = functional.linear(x * smooth.product, layer.weight * smooth.factors, layer.bias)
        assert torch.equal(usual, scaled)


@pytest.mark.parametrize("opaque", [False, True])
def test_smoothing_brings_the_outputs_nearer(opaque: bool) -> None:
    model, recipe, seen = prepared(torn(opaque=opaque))
    usual, smooth = (BACKEND.build(model, r, seen) for r in (recipe, smoothed(recipe)))
    assert error(model, smooth) < 0.2 * error(model, usual)
    assert not smooth.skipped
    assert low(smooth, "inner").smooth is not None
    assert low(usual, "inner").smooth is None


def test_advice_offers_smoothing_to_torn_channels() -> None:
    model, recipe, seen = prepared(torn())
    assert smoothed(recipe) in list(BACKEND.advise(model, recipe, seen))


def test_a_sound_net_gets_no_smoothing() -> None:
    model, recipe, seen = prepared(seeded(Torn()).eval())
    assert all(found.repairs == () for found in BACKEND.advise(model, recipe, seen))
    same(BACKEND.build(model, recipe, seen), BACKEND.build(model, smoothed(recipe), seen))


def test_readers_of_one_tensor_share_the_product() -> None:
    model, recipe, seen = prepared(torn())
    built = BACKEND.build(model, smoothed(recipe), seen)
    factors = {id(low(built, name).weight_smooth) for name in ("query", "key", "value")}
    assert len(factors) == 1
    assert low(built, "query").settings.inlet == low(built, "key").settings.inlet


def test_float_ops_are_left_alone() -> None:
    model, recipe, seen = prepared(torn())
    keys = [key for key in recipe.ops if key.name in ("query", "inner")]
    built = BACKEND.build(model, smoothed(recipe).with_float(keys), seen)
    assert type(built.native.get_submodule("query")) is nn.Linear
    assert low(built, "key").smooth is not None
    assert error(model, built) < 0.2 * error(model, BACKEND.build(model, recipe, seen))
    every = smoothed(recipe).with_float(recipe.ops)
    same(model, BACKEND.build(model, every, seen))


def test_the_weight_that_code_may_read_is_the_original_s() -> None:
    model, recipe, seen = prepared(torn())
    built = BACKEND.build(model, smoothed(recipe), seen)
    weight = model.native.get_submodule("inner").weight.detach()
    assert float((low(built, "inner").weight - weight).abs().max()) < 0.02 * float(weight.max())


def test_repairs_survive_disk(tmp_path: Path) -> None:
    model, recipe, seen = prepared(torn())
    save_observations(tmp_path / "seen.npz", {0: seen})
    again = load_observations(tmp_path / "seen.npz")[0]
    read = Recipe.from_json(smoothed(recipe).to_json())
    same(BACKEND.build(model, smoothed(recipe), seen), BACKEND.build(model, read, again))


@pytest.mark.parametrize("opaque", [False, True])
def test_a_smoothed_model_is_saved_and_read(tmp_path: Path, opaque: bool) -> None:
    from lpot.utils.pytorch import load

    model, recipe, seen = prepared(torn(opaque=opaque))
    built = BACKEND.build(model, smoothed(recipe), seen)
    BACKEND.save(built, tmp_path / "int8")
    again = BACKEND.restore(tmp_path / "int8", seeded(Torn(opaque=opaque)))
    same(built, again)
    assert low(again, "query").weight_smooth is low(again, "value").weight_smooth
    loaded = load(str(tmp_path / "int8"), seeded(Torn(opaque=opaque)))
    (x,) = batches(1, seed=2)
    np.testing.assert_array_equal(loaded(*x).detach().numpy(), BACKEND.run(built, x)[0])
    for name in ("model.safetensors", "lpot.json"):
        (tmp_path / "int8" / name).unlink()  # the two files of the original tool say the same
    same(built, BACKEND.load_checkpoint(tmp_path / "int8", seeded(Torn(opaque=opaque))))


def test_a_smoothed_model_is_exported(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    from lpot.backends.torch.export import export

    model, recipe, seen = prepared(torn())
    built = BACKEND.build(model, smoothed(recipe), seen)
    path = export(built, tmp_path / "int8.onnx")
    options = runtime.SessionOptions()
    options.graph_optimization_level = runtime.GraphOptimizationLevel.ORT_DISABLE_ALL
    session = runtime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    ((x,),) = batches(1, seed=2)
    found = session.run(None, {session.get_inputs()[0].name: x.numpy()})
    apart = distance(BACKEND.run(built, (x,)), found)
    assert apart < 0.3 * error(model, built)


def test_weights_trained_with_rounding_are_not_smoothed() -> None:
    model, recipe, seen = prepared(torn())
    trained = Workshop(model.workshop.fresh(), equalizes=False)
    twin = TorchModel(BACKEND, trained.fresh(), workshop=trained)
    assert all(found.repairs == () for found in BACKEND.advise(twin, recipe, seen))


def test_ranking_looks_at_smoothed_ops() -> None:
    model, recipe, seen = prepared(torn())
    key = OpKey("inner", "Linear")
    usual, smooth = (BACKEND.rank(model, r, seen)[key] for r in (recipe, smoothed(recipe)))
    assert smooth < 0.2 * usual


def test_gpt2_s_conv1d_is_smoothed() -> None:
    layers = pytest.importorskip("transformers.pytorch_utils")

    class Gpt(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.norm = nn.LayerNorm(WIDTH)
            self.fc = layers.Conv1D(24, WIDTH)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(self.norm(x))

    module = seeded(Gpt()).eval()
    with torch.no_grad():
        module.norm.weight[5] *= 64.0
        module.fc.weight[5] /= 64.0
    model, recipe, seen = prepared(module)
    usual, smooth = (BACKEND.build(model, r, seen) for r in (recipe, smoothed(recipe)))
    assert error(model, smooth) < 0.1 * error(model, usual)


def test_values_between_int8_ops_become_floats_where_they_are_smoothed() -> None:
    module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.ReLU(), nn.Dropout(), nn.Linear(WIDTH, 8))
    seeded(module).eval()
    model = BACKEND.load(module)
    workshop = Workshop(model.workshop.fresh(), equalizes=True)
    workshop.pairs = []  # so that nothing is evened out before
    with torch.no_grad():
        workshop.root[0].weight[4] *= 100.0
        workshop.root[3].weight[:, 4] /= 100.0
    workshop.accept_changes()
    twin = TorchModel(BACKEND, workshop.fresh(), workshop=workshop)
    seen = BACKEND.observe(twin, batches(), (0,))[0]
    usual, smooth = (BACKEND.build(twin, r, seen) for r in (default(twin), smoothed(default(twin))))
    assert low(smooth, "3").smooth is not None
    assert error(twin, smooth) < 0.2 * error(twin, usual)


def test_long_tails_get_another_range() -> None:
    model, recipe, seen = prepared(seeded(Torn()).eval())
    draw = np.random.default_rng(0)
    for _ in range(40):
        seen.tensors["fc:in"].update(draw.standard_normal(100_000))
    seen.tensors["fc:in"].update([30.0])
    changed = next(BACKEND.advise(model, recipe, seen))
    key = OpKey("fc", "Linear")
    assert changed.ops[key].activation.algorithm != "minmax"
    assert changed.ops[key] in restrict(BACKEND.inspect(model), ()).choices[key]


def test_noisy_inputs_may_be_ranged_while_running() -> None:
    model, recipe, seen = prepared(torn())
    allowed = restrict(BACKEND.inspect(model, "auto"), ())
    found = [r for r in BACKEND.advise(model, recipe, seen) if r.repairs == () != r.ops]
    dynamic = [r for r in found if any(config.mode == "dynamic" for config in r.ops.values())]
    assert dynamic
    assert all(dynamic[0].ops[key] in allowed.choices[key] for key in dynamic[0].low_ops)


def test_ops_without_calibration_get_no_advice() -> None:
    model, recipe, _ = prepared(torn())
    assert list(BACKEND.advise(model, recipe, Observations(0, {}))) == []


# -- layer norms that smooth ----------------------------------------------------------------------


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
    found = Observed(seen).smooth(model.workshop, smoothed(recipe))["inner"]
    twin = model.workshop.scaled("norm", found)
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
