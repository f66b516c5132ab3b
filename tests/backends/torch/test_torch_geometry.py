"""Every executor against the reference, on calls drawn at random."""

from __future__ import annotations

import random
from dataclasses import dataclass

import pytest

pytest.importorskip("torch")

import torch

from lpot.backends.torch import abilities
from lpot.backends.torch.kernels import KERNELS, Affine, Geometry
from lpot.backends.torch.kernels.agree import STEPS, Call, agrees, draw, runner
from lpot.backends.torch.kernels.choose import DYNAMIC
from lpot.backends.torch.kernels.reference import ReferenceKernel

# What is chosen from (kernels/choose.py), as far as this torch has it.
OFFERED = {
    kind: [name for name in names if KERNELS[name].available()]
    for kind, names in {
        "linear": ("fbgemm", "onednn_float"),
        "dynamic": DYNAMIC,
        "conv": ("fbgemm", "onednn_float"),
        "transposed": ("fbgemm",),
    }.items()
}
HAS_ENGINES = all(OFFERED.values())
DRAWS = 500
QUICK = 40


@dataclass(frozen=True)
class Drawn:
    kernel: str
    call: Call
    bits: int


def drawn(seed: int) -> Drawn:
    """Channels, groups, windows, strides, padding, dilation, sizes: as odd as torch allows."""
    pick = random.Random(seed)
    kind = pick.choice(("linear", "dynamic", "conv", "conv", "transposed", "transposed"))
    bits = pick.choice((7, 8))
    if kind in ("linear", "dynamic"):
        inputs, outputs = pick.choice((1, 3, 16, 33, 64)), pick.choice((1, 4, 17, 32))
        lead = pick.choice(((1,), (5,), (2, 3), (2, 1, 3)))
        call = Call((outputs, inputs), (*lead, inputs), dynamic=kind == "dynamic")
        return Drawn(pick.choice(OFFERED[kind]), call, bits)
    dims, groups = pick.choice((1, 2, 2, 3)), pick.choice((1, 1, 2, 4, 8, 16))
    several = lambda *values: tuple(pick.choice(values) for _ in range(dims))  # noqa: E731
    window, stride = several(1, 2, 3, 5), several(1, 2, 3)
    dilation, padding = several(1, 1, 2), several(0, 1, 2)
    inputs, outputs = groups * pick.choice((1, 2, 5, 8)), groups * pick.choice((1, 2, 3, 4, 8))
    reach = [d * (w - 1) + 1 for d, w in zip(dilation, window, strict=True)]
    size = tuple(max(1, r - 2 * p) + pick.randrange(6) for r, p in zip(reach, padding, strict=True))
    transposed = kind == "transposed"
    if transposed:  # something must be left of it
        size = tuple(s + 2 * p for s, p in zip(size, padding, strict=True))
    extra = tuple(
        pick.randrange(max(s, d)) if transposed else 0
        for s, d in zip(stride, dilation, strict=True)
    )
    geometry = Geometry(dims, stride, padding, dilation, groups, transposed, output_padding=extra)
    weight = (inputs, outputs // groups) if transposed else (outputs, inputs // groups)
    call = Call(
        (*weight, *window),
        (pick.choice((1, 3)), inputs, *size),
        geometry,
        inside=pick.random() < 0.5,
        axis=None if transposed else pick.choice((0, None)),
    )
    return Drawn(pick.choice(OFFERED[kind]), call, bits)


def steps_off(case: Drawn) -> float:
    """The largest distance of two runs from the reference, in steps of the output."""
    call, levels = case.call, 1 << case.bits
    weights, inlet = draw(call), Affine(0.02, levels // 2)
    codes = torch.randint(0, levels, call.shape, generator=torch.Generator().manual_seed(9))
    x = (codes - inlet.zero_point) * inlet.scale
    exact = runner(ReferenceKernel(torch.float64), call, weights, inlet, None)(x)
    outlet = Affine(max(float(exact.abs().max()), 1e-6) / 127, 128)
    run = runner(KERNELS[case.kernel], call, weights, inlet, outlet)
    given = x
    if call.inside and call.geometry is not None:
        given = torch.quantize_per_tensor(x, inlet.scale, inlet.zero_point, torch.quint8)
    found = [run(given).dequantize(), run(given).dequantize()]
    return max(float((one - exact).abs().max()) / outlet.scale for one in found)


def check(seed: int) -> None:
    """What `agrees` lets through is right with the bits that the self-test allows.

    `agrees` may refuse a kernel (fbgemm's transposed convolutions of some windows), or torch may
    have none; then nobody gets it. With 8 bits a kernel may be off only where the CPU overflows.
    """
    case = drawn(seed)
    if not agrees(case.kernel, case.call):
        return
    allowed = case.bits == 7 or case.call.dynamic or not abilities.saturates()
    off = steps_off(case)
    assert off <= STEPS or not allowed, f"seed {seed}: {case} is off by {off:.1f} steps"


@pytest.mark.skipif(not HAS_ENGINES, reason="this torch has no INT8 engine")
def test_kernels_that_are_taken_are_right_on_random_calls() -> None:
    for seed in range(QUICK):
        check(seed)


@pytest.mark.slow
@pytest.mark.skipif(not HAS_ENGINES, reason="this torch has no INT8 engine")
def test_kernels_that_are_taken_are_right_on_500_random_calls() -> None:
    for seed in range(DRAWS):
        check(seed)


@pytest.mark.skipif(not HAS_ENGINES, reason="this torch has no INT8 engine")
def test_few_calls_are_refused() -> None:
    """A comparison that refused everything would be right as well, and useless."""
    cases = [drawn(seed) for seed in range(QUICK)]
    plain = [
        case for case in cases if case.call.geometry is None or not case.call.geometry.transposed
    ]
    refused = [case for case in plain if not agrees(case.kernel, case.call)]
    assert len(refused) <= len(plain) // 4, refused


@pytest.mark.skipif(not HAS_ENGINES, reason="this torch has no INT8 engine")
@pytest.mark.parametrize("groups", [8, 16, 64])
def test_two_outputs_for_each_input_channel(groups: int) -> None:
    """fbgemm has kernels of its own for these, which overflow with 8 bits on every CPU."""
    geometry = Geometry(2, (2, 2), (1, 1), (1, 1), groups)
    call = Call((2 * groups, 1, 3, 3), (2, groups, 27, 27), geometry)
    bits = 7 if abilities.saturates() else 8
    taken = [name for name in OFFERED["conv"] if agrees(name, call)]
    assert taken
    for name in taken:
        assert steps_off(Drawn(name, call, bits)) <= STEPS
