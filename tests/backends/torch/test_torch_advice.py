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

import lpot
from backends.torch.test_torch_models import BACKEND, default
from backends.torch.torch_nets import seeded
from lpot.backends.torch.kernels.latest import Latest
from lpot.backends.torch.model import TorchModel
from lpot.backends.torch.modules import LowLinear
from lpot.backends.torch.prepare import Prepared
from lpot.backends.torch.ranges import Observed
from lpot.core.backend import Observations
from lpot.core.files.store import load_observations, save_observations
from lpot.core.ptq.distance import distance
from lpot.core.recipe import OpKey, Recipe
from lpot.core.repairs import NONE, Repairs
from lpot.core.space import restrict

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
    return replace(recipe, repairs=Repairs(tensor_smoothing=True))


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
    found = Observed(seen).smooth(model.prepared, smoothed(recipe))
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
    assert all(not found.repairs for found in BACKEND.advise(model, recipe, seen))
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


def test_a_range_that_was_asked_for_is_kept() -> None:
    model, recipe, seen = prepared(torn())
    key = OpKey("inner", "Linear")
    activation = replace(recipe.ops[key].activation, algorithm="percentile")
    asked = smoothed(recipe).replace({key: replace(recipe.ops[key], activation=activation)})
    built = BACKEND.build(model, asked, seen)
    assert low(built, "inner").smooth is None and low(built, "query").smooth is not None


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
    BACKEND.save_weights(tmp_path / "int8")
    for name in ("model.safetensors", "lpot.json"):
        (tmp_path / "int8" / name).unlink()  # the two files of the original tool say the same
    same(built, BACKEND.load_checkpoint(tmp_path / "int8", seeded(Torn(opaque=opaque))))


@pytest.mark.slow
def test_a_smoothed_model_is_exported(tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    runtime = pytest.importorskip("onnxruntime")
    from lpot.backends.torch.files.export import export

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
    trained = Prepared(model.prepared.fresh(), rounding={})
    twin = TorchModel(BACKEND, trained.fresh(), prepared=trained)
    assert all(not found.repairs for found in BACKEND.advise(twin, recipe, seen))


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
    ready = Prepared(model.prepared.fresh())
    ready.streams = []  # so that nothing is evened out before
    with torch.no_grad():
        ready.root[0].weight[4] *= 100.0
        ready.root[3].weight[:, 4] /= 100.0
    ready.accept_changes()
    twin = TorchModel(BACKEND, ready.fresh(), prepared=ready)
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
    found = [r for r in BACKEND.advise(model, recipe, seen) if not r.repairs and r.ops]
    dynamic = [r for r in found if any(config.mode == "dynamic" for config in r.ops.values())]
    assert dynamic
    assert all(dynamic[0].ops[key] in allowed.choices[key] for key in dynamic[0].low_ops)


def test_ops_without_calibration_get_no_advice() -> None:
    model, recipe, _ = prepared(torn())
    assert list(BACKEND.advise(model, recipe, Observations(0, {}))) == []


def test_curvature_looks_at_smoothed_ops() -> None:
    model, recipe, seen = prepared(torn())
    key = OpKey("inner", "Linear")
    usual, smooth = (BACKEND.curvature(model, r, seen)[key] for r in (recipe, smoothed(recipe)))
    assert 0.0 < smooth < 0.2 * usual


# -- sharing --------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_product_is_shared_and_never_stale(mode: Any) -> None:
    latest, made = Latest(), []
    readers = [object(), object(), object()]

    def of(x: torch.Tensor, reader: object) -> torch.Tensor:
        def make() -> torch.Tensor:
            made.append(1)
            return x * 2.0

        return latest.get(x, "twice", make, None, reader)

    with mode():
        x = torch.ones(3) + 0.0
        for step in range(3):
            found = [of(x, reader) for reader in readers]
            assert all(torch.equal(one, x * 2.0) for one in found)
            assert len(made) == step + 1
            x.add_(1.0)


def test_inference_mode_gives_the_same() -> None:
    model, recipe, seen = prepared(torn())
    built = BACKEND.build(model, smoothed(recipe), seen)
    ((x,),) = batches(1, seed=2)
    with torch.inference_mode():
        found = built.native(x.clone())
    np.testing.assert_array_equal(found.numpy(), BACKEND.run(built, (x,))[0])


# -- the whole way --------------------------------------------------------------------------------


def agreement(native: nn.Module) -> float:
    """How often it decides as FP32 does."""
    with torch.no_grad():
        pairs = [(native(x), torn()(x)) for (x,) in batches(12, seed=3)]
    return float(np.mean([(a.argmax(-1) == b.argmax(-1)).float().mean() for a, b in pairs]))


@pytest.mark.parametrize("executor", ["serial", pytest.param("process", marks=pytest.mark.slow)])
def test_tuning_takes_the_advice_and_holds_at_once(executor: str, tmp_path: Path) -> None:
    result = lpot.tune(
        torn(),
        batches(),
        agreement,
        0.05,
        strategy="basic",
        executor=executor,
        measure_speed=False,
        workspace=tmp_path,
    )
    assert result.met and result.evaluations == 2 and not result.float_ops
    assert result.model.recipe.repairs == Repairs(tensor_smoothing=True)
    assert any("smoothed" in note for note in result.notes)
    usual = BACKEND.load(torn())
    blunt = BACKEND.build(usual, default(usual), BACKEND.observe(usual, batches(), (0,))[0])
    assert agreement(blunt.native) < 0.95
    again = lpot.recover(torn(), tmp_path, 1)
    same(result.model, again)


def test_smoothing_can_be_forbidden(tmp_path: Path) -> None:
    config = {"quantization": {"recipes": {"smooth_quant": False}}}
    result = lpot.tune(
        torn(),
        batches(),
        lambda native: 1.0,
        0.05,
        strategy="basic",
        config=config,
        measure_speed=False,
        workspace=tmp_path,
    )
    assert result.model.recipe.repairs == NONE
