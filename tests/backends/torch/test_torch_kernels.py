"""The executors agree with each other, and the start-up test sees saturation."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from lpot.backends.torch import abilities
from lpot.backends.torch.kernels import KERNELS, Affine, Geometry, candidates, codes
from lpot.backends.torch.kinds import SPECS
from lpot.backends.torch.weights import Weights, quantize_tensor
from lpot.core.cpu import this_cpu
from lpot.core.errors import UnsupportedOp
from lpot.core.recipe import TensorConfig

INLET, OUTLET = Affine(0.02, 130), Affine(0.05, 120)
FAST = [name for name in ("fbgemm", "onednn", "onednn_float") if KERNELS[name].available()]
GIVE_FLOATS = ("fbgemm", "onednn_float")  # linears whose output is not rounded
BITS = [7, 8]


def weights(shape: tuple[int, ...], axis: int | None = 0, bias: bool = True) -> Weights:
    generator = torch.Generator().manual_seed(4)
    values = torch.randint(-127, 128, shape, generator=generator, dtype=torch.int8)
    channels = shape[axis] if axis is not None else 1
    scale = torch.rand(channels, generator=generator) * 0.01 + 1e-3
    offset = torch.randn(shape[0], generator=generator) if bias else None
    return Weights(values, scale, axis, offset)


def inputs(shape: tuple[int, ...], bits: int) -> tuple[torch.Tensor, Affine]:
    """Values that use all codes of so many bits, and their layout."""
    inlet = Affine(INLET.scale, 1 << (bits - 1))
    codes = torch.randint(0, 1 << bits, shape, generator=torch.Generator().manual_seed(5))
    return (codes - inlet.zero_point) * inlet.scale, inlet


def steps_off(one: torch.Tensor, other: torch.Tensor) -> float:
    """Largest difference, in steps of the output."""
    return float((one - other).abs().max()) / OUTLET.scale


def check(agrees: bool, bits: int, worst: float) -> None:
    """7 bits are right on every CPU; 8 bits are wrong exactly where the probe says so."""
    assert agrees == (bits == 7 or worst <= abilities.TOLERANCE)


@pytest.mark.parametrize("kernel", FAST)
@pytest.mark.parametrize("axis", [0, None])
@pytest.mark.parametrize("relu", [False, True])
@pytest.mark.parametrize("bits", BITS)
def test_linear_agrees_with_the_reference(
    kernel: str, axis: int | None, relu: bool, bits: int
) -> None:
    x, inlet = inputs((3, 5, 32), bits)
    given = weights((16, 32), axis)
    found = KERNELS[kernel].linear(given, inlet, OUTLET, relu)(x)
    if kernel in GIVE_FLOATS:
        exact = KERNELS["reference"].linear(given, inlet, None, relu)(x)
        agrees = torch.allclose(found, exact, rtol=1e-4, atol=1e-4)
    else:
        truth = KERNELS["reference"].linear(given, inlet, OUTLET, relu)(x)
        agrees = steps_off(found, truth) <= 1.01
    check(agrees, bits, abilities.worst_case(kernel, (16, 32), (3, 5, 32), axis=axis))


@pytest.mark.parametrize("kernel", FAST)
@pytest.mark.parametrize("reduced", [False, True])
def test_dynamic_linear_agrees_with_the_reference(kernel: str, reduced: bool) -> None:
    x = torch.randn(7, 32, generator=torch.Generator().manual_seed(6))
    given = weights((16, 32))
    found = KERNELS[kernel].linear_dynamic(given, reduced=reduced)(x)
    truth = KERNELS["reference"].linear_dynamic(given, reduced=reduced)(x)
    noise = float((found - truth).abs().max() / truth.abs().max())
    worst = abilities.worst_case(kernel, (16, 32), (7, 32), axis=0)
    check(noise < (0.03 if reduced else 0.015), 7 if reduced else 8, worst)


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
@pytest.mark.parametrize("bits", BITS)
def test_convolution_agrees_with_the_reference(
    kernel: str, name: str, emit: bool, bits: int
) -> None:
    shape, size, geometry = GEOMETRIES[name]
    x, inlet = inputs(size, bits)
    given = weights(shape)
    found = KERNELS[kernel].conv(given, geometry, inlet, OUTLET, True, emit)(x)
    truth = KERNELS["reference"].conv(given, geometry, inlet, OUTLET, True, emit)(x)
    assert found.is_quantized == truth.is_quantized == emit
    if kernel == "onednn_float" and not emit:
        found = found.clamp(max=(255 - OUTLET.zero_point) * OUTLET.scale)
    agrees = steps_off(found.dequantize(), truth.dequantize()) <= 1.01
    check(agrees, bits, abilities.worst_case(kernel, shape, size, geometry, axis=0))


@pytest.mark.parametrize("kernel", candidates("transposed"))
@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("bits", BITS)
def test_transposed_convolution_agrees_with_the_reference(
    kernel: str, dims: int, bits: int
) -> None:
    geometry = Geometry(
        dims, (2,) * dims, (1,) * dims, (1,) * dims, 1, True, output_padding=(1,) * dims
    )
    given = weights((4, 8, *(3,) * dims), None, bias=False)
    size = (2, 4, *(5,) * dims)
    x, inlet = inputs(size, bits)
    found = KERNELS[kernel].conv(given, geometry, inlet, OUTLET)(x)
    truth = KERNELS["reference"].conv(given, geometry, inlet, OUTLET)(x)
    worst = abilities.worst_case(kernel, (4, 8, *(3,) * dims), size, geometry)
    check(steps_off(found, truth) <= 1.01, bits, worst)


@pytest.mark.parametrize("emit", [False, True])
@pytest.mark.parametrize("size", [2, 3, 4])
def test_transposed_convolutions_of_tiles_are_right(emit: bool, size: int) -> None:
    """fbgemm's own are garbage for 2x2 without padding, which is what every U-Net has."""
    geometry = Geometry(2, (size, size), (0, 0), (1, 1), 1, True, output_padding=(0, 0))
    given = weights((16, 8, size, size), None, bias=False)
    given = Weights(given.values, given.scale, None, torch.randn(8))
    x, inlet = inputs((2, 16, 5, 7), 7)
    found = KERNELS["fbgemm"].conv(given, geometry, inlet, OUTLET, False, emit)(x)
    truth = KERNELS["reference"].conv(given, geometry, inlet, OUTLET, False, emit)(x)
    assert found.shape == truth.shape == (2, 8, 5 * size, 7 * size)
    assert steps_off(found.dequantize(), truth.dequantize()) <= 1.01


@pytest.mark.skipif(not codes.has_codes(), reason="this torch has no quantized tensors")
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("shape", [(2, 3, 8, 6), (3, 5, 8), (4, 8)])
@pytest.mark.parametrize("widths", [(1, 2), (0, 0), (0, 3, 2, 0), (-1, 2), (-2, -1)])
def test_padded_codes_are_padded_values(
    widths: tuple[int, ...], shape: tuple[int, ...], last: bool
) -> None:
    value, inlet = inputs(shape, 8)
    coded = codes.encode(value, inlet)
    if last and len(shape) == 4:
        coded = coded.contiguous(memory_format=torch.channels_last)
    for given in (coded, coded[..., ::2]):
        made = codes.pad(given, widths)
        truth = torch.nn.functional.pad(given.dequantize(), widths)
        assert codes.affine_of(made) == inlet
        torch.testing.assert_close(made.dequantize(), truth, rtol=0, atol=0)
        assert made.untyped_storage().data_ptr() != given.untyped_storage().data_ptr()


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
        low = [c for c in abilities.choices(spec, "auto", "this") if not c.is_float]
        offered = {c.activation.bits for c in low}
        assert offered == {bits}
    finally:
        abilities.saturates.cache_clear()


def test_the_reference_never_saturates() -> None:
    assert abilities._worst_case("reference", "linear") < 0.01
    assert abilities._worst_case("reference", "conv") < 0.01


def test_the_probe_and_the_cpu_s_features_agree() -> None:
    """AVX-512 VNNI has exact products of 8 bits; AVX2 alone saturates."""
    exact, mixed = this_cpu().has("avx512_vnni"), this_cpu().has("avx_vnni")
    if this_cpu().has("avx2") and not (mixed and not exact):  # oneDNN alone knows AVX-VNNI
        assert abilities.saturates() == (not exact)


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
    layers, _ = find(module)
    shapes = {"0": (2, 8), "1": (4, 9), "2": (1, 4, 5, 5)}
    families = {"0": "linear", "1": "conv", "2": "transposed"}
    for name, shape in shapes.items():
        assert choose(layers[name], shape) in candidates(families[name])


class Wrong:
    """An executor that is fast, and right only every other time."""

    def __init__(self, inner: Any) -> None:
        self.inner = inner
        self.calls = 0

    def available(self) -> bool:
        return True

    def conv(self, *args: Any, **kwargs: Any) -> Any:
        run = self.inner.conv(*args, **kwargs)

        def wrong(x: torch.Tensor) -> torch.Tensor:
            self.calls += 1
            y = run(x)
            return y if self.calls % 2 else torch.zeros_like(y)

        return wrong


def test_an_executor_that_is_wrong_is_never_chosen(monkeypatch: pytest.MonkeyPatch) -> None:
    from lpot.backends.torch.kernels import agree, choose
    from lpot.backends.torch.kinds import find

    layer = find(torch.nn.Sequential(torch.nn.Conv2d(4, 8, 3)))[0]["0"]
    known = dict(KERNELS)
    for wrong in (["onednn_float"], ["onednn_float", "fbgemm"]):
        kernels = {**known, **{name: Wrong(known["reference"]) for name in wrong}}
        for module in (agree, choose):
            monkeypatch.setattr(module, "KERNELS", kernels)
        agree.agrees.cache_clear()
        choose._fastest.cache_clear()
        expected = None if "fbgemm" in wrong else "fbgemm"
        assert choose.choose(layer, (2, 4, 9, 9)) == expected
    monkeypatch.undo()
    agree.agrees.cache_clear()
    choose._fastest.cache_clear()


class Up(torch.nn.Module):
    """Up-convolutions as U-Nets have them; the second has no right kernel."""

    def __init__(self) -> None:
        super().__init__()
        self.first = torch.nn.Conv2d(3, 16, 3, padding=1)
        self.up = torch.nn.ConvTranspose2d(16, 8, 2, 2)
        self.more = torch.nn.ConvTranspose2d(8, 8, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.more(self.up(torch.relu(self.first(x))))


def test_up_convolutions_are_int8_where_a_kernel_is_right() -> None:
    from backends.torch.test_torch_models import BACKEND, default
    from lpot.backends.torch.ranges import NO_KERNEL

    torch.manual_seed(0)
    model = BACKEND.load(Up().eval())
    batches = [(torch.randn(2, 3, 16, 16),)]
    observations = BACKEND.observe(model, batches, (0,))[0]
    built = BACKEND.build(model, default(model), observations)
    assert {key.name: reason for key, reason in built.skipped.items()} == {"more": NO_KERNEL}
    truth, low = (BACKEND.run(one, batches[0])[0].ravel() for one in (model, built))
    assert np.corrcoef(truth, low)[0, 1] > 0.999
    assert np.array_equal(low, BACKEND.run(built, batches[0])[0].ravel())
