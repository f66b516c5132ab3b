"""The executors agree with each other, and the start-up test sees saturation."""

from __future__ import annotations

import pytest

pytest.importorskip("torch")

import torch

from lpot.backends.torch import abilities
from lpot.backends.torch.kernels import KERNELS, Affine, Geometry, candidates
from lpot.backends.torch.kinds import SPECS
from lpot.backends.torch.weights import Weights, quantize_tensor
from lpot.core.errors import UnsupportedOp
from lpot.core.recipe import TensorConfig

INLET, OUTLET = Affine(0.02, 130), Affine(0.05, 120)
FAST = [name for name in ("fbgemm", "onednn", "onednn_float") if KERNELS[name].available()]
GIVE_FLOATS = ("fbgemm", "onednn_float")  # linears whose output is not rounded


def weights(shape: tuple[int, ...], axis: int | None = 0, bias: bool = True) -> Weights:
    generator = torch.Generator().manual_seed(4)
    values = torch.randint(-127, 128, shape, generator=generator, dtype=torch.int8)
    channels = shape[axis] if axis is not None else 1
    scale = torch.rand(channels, generator=generator) * 0.01 + 1e-3
    offset = torch.randn(shape[0], generator=generator) if bias else None
    return Weights(values, scale, axis, offset)


def steps_off(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest difference, in steps of the output."""
    return float((one - other).abs().max()) / OUTLET.scale


@pytest.mark.parametrize("kernel", FAST)
@pytest.mark.parametrize("axis", [0, None])
@pytest.mark.parametrize("relu", [False, True])
def test_linear_agrees_with_the_reference(kernel: str, axis: int | None, relu: bool) -> None:
    x = torch.randn(3, 5, 32)
    given = weights((16, 32), axis)
    found = KERNELS[kernel].linear(given, INLET, OUTLET, relu)(x)
    if kernel in GIVE_FLOATS:
        exact = KERNELS["reference"].linear(given, INLET, None, relu)(x)
        torch.testing.assert_close(found, exact, rtol=1e-4, atol=1e-4)
    else:
        truth = KERNELS["reference"].linear(given, INLET, OUTLET, relu)(x)
        assert steps_off(found, truth) <= 1.01


@pytest.mark.parametrize("kernel", FAST)
@pytest.mark.parametrize("reduced", [False, True])
def test_dynamic_linear_agrees_with_the_reference(kernel: str, reduced: bool) -> None:
    x = torch.randn(7, 32)
    given = weights((16, 32))
    found = KERNELS[kernel].linear_dynamic(given, reduced=reduced)(x)
    truth = KERNELS["reference"].linear_dynamic(given, reduced=reduced)(x)
    noise = float((found - truth).abs().max() / truth.abs().max())
    assert noise < (0.03 if reduced else 0.015)


GEOMETRIES = {
    "conv1d": ((8, 4, 3), (2, 4, 9), Geometry(1, (1,), (1,), (1,))),
    "conv2d": ((8, 4, 3, 3), (2, 4, 9, 7), Geometry(2, (2, 1), (1, 0), (1, 1))),
    "dilated": ((8, 4, 3, 3), (2, 4, 9, 9), Geometry(2, (1, 1), (2, 2), (2, 2))),
    "grouped": ((8, 2, 3, 3), (2, 4, 9, 9), Geometry(2, (1, 1), (1, 1), (1, 1), 2)),
    "depthwise": ((4, 1, 3, 3), (2, 4, 9, 9), Geometry(2, (1, 1), (1, 1), (1, 1), 4)),
    "conv3d": ((8, 4, 3, 3, 3), (1, 4, 5, 5, 5), Geometry(3, (1,) * 3, (1,) * 3, (1,) * 3)),
}


@pytest.mark.parametrize("kernel", FAST)
@pytest.mark.parametrize("name", GEOMETRIES)
@pytest.mark.parametrize("emit", [False, True])
def test_convolution_agrees_with_the_reference(kernel: str, name: str, emit: bool) -> None:
    shape, size, geometry = GEOMETRIES[name]
    x = torch.randn(size)
    given = weights(shape)
    found = KERNELS[kernel].conv(given, geometry, INLET, OUTLET, True, emit)(x)
    truth = KERNELS["reference"].conv(given, geometry, INLET, OUTLET, True, emit)(x)
    assert found.is_quantized == truth.is_quantized == emit
    if kernel == "onednn_float" and not emit:
        found = found.clamp(max=(255 - OUTLET.zero_point) * OUTLET.scale)
    assert steps_off(found.dequantize(), truth.dequantize()) <= 1.01


@pytest.mark.parametrize("kernel", candidates("transposed"))
@pytest.mark.parametrize("dims", [1, 2, 3])
def test_transposed_convolution_agrees_with_the_reference(kernel: str, dims: int) -> None:
    geometry = Geometry(
        dims, (2,) * dims, (1,) * dims, (1,) * dims, 1, True, output_padding=(1,) * dims
    )
    given = weights((4, 8, *(3,) * dims), None, bias=False)
    x = torch.randn(2, 4, *(5,) * dims)
    found = KERNELS[kernel].conv(given, geometry, INLET, OUTLET)(x)
    truth = KERNELS["reference"].conv(given, geometry, INLET, OUTLET)(x)
    assert steps_off(found, truth) <= 1.01


def test_zero_and_denormal_channels_are_safe() -> None:
    weight = torch.randn(4, 8)
    weight[1] = 0.0
    weight[2] = 1e-42
    bias = torch.tensor([1.0, 2.0, 3.0, 4.0])
    config = TensorConfig("int8", "sym", "per_channel", "minmax", 8)
    given = quantize_tensor("fc", weight, config, 0, bias)
    for name in (*FAST, "reference"):
        y = KERNELS[name].linear(given, INLET, OUTLET)(torch.randn(5, 8))
        assert torch.isfinite(y).all()
        assert float((y[:, 1] - 2.0).abs().max()) <= OUTLET.scale
        assert float((y[:, 2] - 3.0).abs().max()) <= OUTLET.scale


def test_nan_weights_are_refused_by_name() -> None:
    with pytest.raises(UnsupportedOp, match=r"'fc'.*NaN"):
        quantize_tensor("fc", torch.full((2, 2), float("nan")), TensorConfig("int8"), 0)


def test_packing_leaves_the_engine_as_it_was() -> None:
    before = torch.backends.quantized.engine
    for name in FAST:
        KERNELS[name].linear(weights((16, 32)), INLET, OUTLET)(torch.randn(2, 32))
    assert torch.backends.quantized.engine == before


@pytest.mark.parametrize(("saturating", "bits"), [(True, 7), (False, 8)])
def test_the_self_test_decides_the_range(
    monkeypatch: pytest.MonkeyPatch, saturating: bool, bits: int
) -> None:
    worst = 0.49 if saturating else 0.001
    monkeypatch.setattr(abilities, "_worst_case", lambda kernel, family: worst)
    abilities.saturates.cache_clear()
    try:
        assert abilities.activation_bits("this") == bits
        spec = SPECS[torch.nn.Linear]
        offered = {c.activation.bits for c in abilities.choices(spec, "auto", "this")[:-1]}
        assert offered == {bits}
    finally:
        abilities.saturates.cache_clear()


def test_the_reference_never_saturates() -> None:
    assert abilities._worst_case("reference", "linear") < 0.01
    assert abilities._worst_case("reference", "conv") < 0.01


@pytest.mark.parametrize(("target", "bits"), [("avx2", 7), ("vnni", 8), ("amx", 8)])
def test_a_named_target_decides_without_the_self_test(target: str, bits: int) -> None:
    assert abilities.activation_bits(target) == bits  # type: ignore[arg-type]


def test_what_was_quantized_last_is_found_again_only_while_it_is_the_same() -> None:
    if not KERNELS["onednn_float"].available():
        pytest.skip("no oneDNN here")
    run = KERNELS["onednn_float"].linear(weights((16, 32)), INLET)
    x = torch.randn(4, 32)
    first = run(x)
    assert torch.equal(run(x), first)
    x.mul_(2.0)
    assert not torch.equal(run(x), first)
    other = KERNELS["onednn_float"].linear(weights((16, 32)), Affine(0.05, 100))
    assert not torch.equal(other(x), run(x))


def test_the_race_names_an_executor_that_can_do_it() -> None:
    from lpot.backends.torch.kernels.choose import choose
    from lpot.backends.torch.kinds import find

    module = torch.nn.Sequential(
        torch.nn.Linear(8, 4), torch.nn.Conv1d(4, 4, 3), torch.nn.ConvTranspose2d(4, 4, 3)
    )
    sites, _ = find(module)
    shapes = {"0": (2, 8), "1": (4, 9), "2": (1, 4, 5, 5)}
    families = {"0": "linear", "1": "conv", "2": "transposed"}
    for name, shape in shapes.items():
        assert choose(sites[name], shape) in candidates(families[name])
