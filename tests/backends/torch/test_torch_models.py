"""Any nn.Module as it is: every kind of model is loaded, observed, built and run."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from backends.torch import torch_nets as nets
from lpot.backends.torch import TorchBackend
from lpot.backends.torch.findings import Findings
from lpot.backends.torch.model import TorchModel
from lpot.backends.torch.modules import LowModule
from lpot.core.backend import Approach, Observations
from lpot.core.numerics.rounding import sqnr
from lpot.core.recipe import Recipe
from lpot.core.space import restrict

BACKEND = TorchBackend()
HF = ("bert", "distilbert", "gpt2", "vit", "t5", "llama")

MODELS: dict[str, Callable[[], tuple[Any, Sequence[Any]]]] = {
    "cnn": lambda: (nets.seeded(nets.Cnn()), nets.images()),
    "branching": lambda: (
        nets.seeded(nets.Branching()),
        [(torch.randn(6, 12) * scale,) for scale in (1.0, 0.1, 1.0)],
    ),
    "recurrent": lambda: (nets.seeded(nets.Recurrent()), nets.ids()),
    "shapes": lambda: (nets.seeded(nets.Shapes()), [(torch.randn(2, 4, 8),) for _ in range(3)]),
    "encoder": lambda: (nets.seeded(nets.Encoder()), nets.ids()),
    "stubbed": lambda: (nets.stubbed(), nets.images()),
    "linear": lambda: (nets.seeded(torch.nn.Linear(8, 4)), [(torch.randn(4, 8),)] * 2),
    **{name: lambda name=name: nets.transformers_model(name) for name in HF},
}


def made(name: str) -> tuple[TorchModel, Sequence[Any], Observations]:
    if name in HF:
        pytest.importorskip("transformers")
    torch.manual_seed(0)
    module, batches = MODELS[name]()
    model = BACKEND.load(module)
    return model, batches, BACKEND.observe(model, batches, (0,))[0]


def default(model: TorchModel, approach: Approach = "static") -> Recipe:
    return restrict(BACKEND.inspect(model, approach), ()).default()


def noise(model: TorchModel, built: TorchModel, batches: Sequence[Any]) -> float:
    """Worst SQNR in dB over all float outputs."""
    pairs = [
        (truth, found)
        for inputs in batches
        for truth, found in zip(BACKEND.run(model, inputs), BACKEND.run(built, inputs), strict=True)
    ]
    return min(sqnr(truth, found) for truth, found in pairs if truth.dtype.kind == "f")


@pytest.mark.parametrize("approach", ["static", "dynamic", "auto"])
@pytest.mark.parametrize("name", MODELS)
def test_every_model_runs_close_to_float(name: str, approach: Approach) -> None:
    model, batches, observations = made(name)
    recipe = default(model, approach)
    if not recipe.low_ops:
        pytest.skip(f"{name} has no {approach} op")
    built = BACKEND.build(model, recipe, observations if approach != "dynamic" else None)
    low = [module for module in built.native.modules() if isinstance(module, LowModule)]
    assert len(low) == len(recipe.low_ops) - len(built.skipped)
    assert 14 < noise(model, built, batches) < 90


@pytest.mark.parametrize("name", MODELS)
def test_float_recipe_is_the_model_bit_for_bit(name: str) -> None:
    model, batches, observations = made(name)
    recipe = default(model)
    built = BACKEND.build(model, recipe.with_float(recipe.ops), observations)
    for inputs in batches:
        for one, other in zip(BACKEND.run(model, inputs), BACKEND.run(built, inputs), strict=True):
            np.testing.assert_array_equal(one, other)


@pytest.mark.parametrize("name", MODELS)
def test_each_op_matters_alone(name: str) -> None:
    model, batches, observations = made(name)
    recipe = default(model)
    truth = [BACKEND.run(model, inputs) for inputs in batches]
    for key in recipe.low_ops:
        built = BACKEND.build(model, Recipe({key: recipe.ops[key]}), observations)
        found = [BACKEND.run(built, inputs) for inputs in batches]
        same = all(
            np.array_equal(a, b)
            for one, other in zip(truth, found, strict=True)
            for a, b in zip(one, other, strict=True)
        )
        assert same == (key.name not in Findings.of(observations).ran), key


def test_an_op_that_never_ran_is_named_and_stays_float() -> None:
    model, _, observations = made("branching")
    built = BACKEND.build(model, default(model), observations)
    assert [key.name for key in built.skipped] == ["never"]
    assert "calibration" in next(iter(built.skipped.values()))
    assert built.precisions[next(iter(built.skipped))] == "fp32"
    assert type(built.native.never) is torch.nn.Linear


def test_a_fused_module_is_one_op() -> None:
    model, _, _ = made("stubbed")
    kinds = {key.name: key.kind for key in BACKEND.inspect(model).ops}
    assert kinds["conv"] == "ConvReLU2d"
    assert kinds["fc"] == "LinearReLU"
    assert "conv.0" not in kinds
    assert kinds["quant"] == "QuantStub"


def test_replacements_look_like_the_original() -> None:
    model, _, observations = made("gpt2")
    built = BACKEND.build(model, default(model), observations)
    mine, theirs = built.native.transformer.h[0].mlp, model.native.transformer.h[0].mlp
    assert mine.c_fc.nf == theirs.c_fc.nf
    assert mine.c_fc.weight.shape == theirs.c_fc.weight.shape
    assert mine.c_fc.weight.dtype == torch.float32
    np.testing.assert_allclose(mine.c_fc.weight, theirs.c_fc.weight.detach(), atol=1e-2)
    assert mine.c_fc.bias.shape == theirs.c_fc.bias.shape
    assert built.native.lm_head.in_features == 16


def test_tied_weights_are_quantized_once() -> None:
    model, _, observations = made("gpt2")
    built = BACKEND.build(model, default(model), observations).native
    assert built.lm_head.weight_int8 is built.transformer.wte.weight_int8


def test_encoder_swaps_are_not_bypassed() -> None:
    """torch's fused encoder op reads raw weights: an int8 linear inside must be seen to run."""
    model, batches, observations = made("encoder")
    recipe = default(model)
    keys = [key for key in recipe.ops if key.name.endswith("linear1")]
    alone = Recipe({key: recipe.ops[key] for key in keys})
    built = BACKEND.build(model, alone, observations)
    assert 20 < noise(model, built, batches) < 80


def test_nothing_to_quantize_is_said() -> None:
    model = BACKEND.load(torch.nn.Sequential(torch.nn.ReLU(), torch.nn.LayerNorm(4)))
    capability = BACKEND.inspect(model)
    assert not capability.low()
    assert any("nothing to quantize" in note for note in capability.notes)
    assert all(info.reason for info in capability.ops.values())
