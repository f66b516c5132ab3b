"""int8 between ops: what is captured, trusted, fused, and when it is not."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, default, made, noise
from lpot.backends.torch import abilities
from lpot.backends.torch.files.program import Program, fill
from lpot.backends.torch.findings import Findings
from lpot.backends.torch.kernels.engine import FusedSum
from lpot.core.space import restrict


def program_of(module: Any) -> Program:
    assert isinstance(module.forward, Program)
    return module.forward


def test_a_readable_cnn_is_captured_whole() -> None:
    model, batches, observations = made("cnn")
    # Without the race for the fastest executor the choice is the same every time.
    findings = replace(Findings.of(observations), kernels={})
    observations = replace(observations, own=findings.named())
    built = BACKEND.build(model, default(model), observations)
    assert list(built.captured) == [""]
    program = program_of(built.native)
    assert noise(model, built, batches) > 20
    # conv+bn+relu are one step, the residual sum is inside a convolution's step or one of its own.
    ops = 7
    joints = ["pool", "relu6", "cat", "pool", "flatten"]
    assert len(program.steps) <= ops + len(joints) + 1
    if "onednn" in torch.backends.quantized.supported_engines:
        assert any(isinstance(step.run, FusedSum) for step in program.steps)


def test_batch_norm_goes_into_the_convolution_and_only_there() -> None:
    model, batches, observations = made("cnn")
    recipe = default(model)
    built = BACKEND.build(model, recipe, observations)
    assert set(built.folded) == {"stem.1", "block.norm1", "block.norm2"}
    assert isinstance(built.native.block.norm1, nn.Identity)
    key = next(key for key in recipe.ops if key.name == "block.conv1")
    mixed = BACKEND.build(model, recipe.with_float([key]), observations)
    assert isinstance(mixed.native.block.norm1, nn.BatchNorm2d)
    assert noise(model, mixed, batches) > 20


def test_module_by_module_gives_nearly_the_same() -> None:
    """The forward that was not captured is still there, for calls the program was not made for."""
    model, batches, observations = made("cnn")
    built = BACKEND.build(model, default(model), observations).native
    with torch.no_grad():
        kept = built(*batches[0])
        swapped = type(built).forward(built, *batches[0])
        truth = model.native(*batches[0])
    assert not torch.equal(kept, swapped)
    assert float((kept - swapped).abs().max()) < 0.1 * float(truth.abs().max())


def test_an_optional_argument_takes_the_original_forward() -> None:
    module = nets.seeded(nets.Block(4)).eval()
    x = torch.randn(2, 4, 8, 8)
    model = BACKEND.load(module)
    observations = BACKEND.observe(model, [(x,)], (0,))[0]
    built = BACKEND.build(model, default(model), observations)
    assert list(built.captured) == [""]
    with torch.no_grad():
        for arguments in ({}, {"scale": 3.0}):
            found, truth = built.native(x, **arguments), module(x, **arguments)
            assert float((found - truth).abs().max()) < 0.1 * float(truth.abs().max())
        assert torch.equal(built.native(x=x), built.native(x))


class Stage(nn.Module):
    """As the encoders of transformers are written: options that are always given, and any more."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.last = nn.Conv2d(4, 4, 1)

    def forward(
        self, x: torch.Tensor, more: bool = False, mask: Any = None, **options: Any
    ) -> OrderedDict[str, torch.Tensor]:
        y = self.last(torch.relu(self.norm(self.conv(x))))
        y = y if mask is None else y * mask
        return OrderedDict(out=y + 1 if more else y)


class Optioned(nn.Module):
    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__()
        self.stage, self.args, self.kwargs = Stage(), args, kwargs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if float(x.sum()) > 1e9:  # read as a whole it is not
            return x
        found = self.stage(x, *self.args, **self.kwargs)
        return found["out"] if type(found) is OrderedDict else x


@pytest.mark.parametrize(
    ("options", "captured"),
    [
        (Optioned(), True),
        (Optioned(more=False, mask=None), True),
        (Optioned(False, mask=None), True),
        (Optioned(more=True), False),
        (Optioned(0), False),  # is as good as False, but not the same
        (Optioned(mask=torch.ones(1)), False),
        (Optioned(cache=None), False),
    ],
)
def test_options_that_say_what_leaving_them_out_says(options: nn.Module, captured: bool) -> None:
    model = BACKEND.load(nets.seeded(options))
    batches = nets.images()
    observations = BACKEND.observe(model, batches, (0,))[0]
    built = BACKEND.build(model, default(model), observations)
    assert list(built.captured) == (["stage"] if captured else [])
    assert noise(model, built, batches) > 25


class Named(nn.Module):
    """Inputs given by name, and a transposed convolution that is told the size of its output."""

    def __init__(self) -> None:
        super().__init__()
        self.down, self.norm = nn.Conv2d(3, 4, 3, stride=2), nn.BatchNorm2d(4)
        self.up, self.last = nn.ConvTranspose2d(4, 4, 3, stride=2), nn.Conv2d(4, 3, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = torch.relu(self.norm(input=self.down(input=x)))
        return self.last(input=torch.relu(self.up(y, output_size=x.shape[2:])))


@pytest.mark.parametrize("size", [16, 17])
def test_ops_called_with_more_than_their_input(size: int) -> None:
    model = BACKEND.load(nets.seeded(Named()))
    assert [part.name for part in model.prepared.captures] == [""]
    batches = [(torch.randn(2, 3, size, size),) for _ in range(2)]
    observations = BACKEND.observe(model, batches, (0,))[0]
    built = BACKEND.build(model, default(model), observations)
    assert noise(model, built, batches) > 25


class Liar(nn.Module):
    """torch.fx reads it without complaint, and wrongly."""

    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 3)
        self.norm = nn.BatchNorm2d(4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.norm(self.conv(x))
        return y * 2 if isinstance(x, torch.Tensor) else y


def test_a_wrong_reading_is_not_trusted() -> None:
    model = BACKEND.load(nets.seeded(Liar()))
    batches = nets.images()
    observations = BACKEND.observe(model, batches, (0,))[0]
    assert "" not in Findings.of(observations).trusted
    built = BACKEND.build(model, default(model), observations)
    assert not built.captured
    assert isinstance(built.native.norm, nn.BatchNorm2d)
    assert noise(model, built, batches) > 25


@pytest.mark.parametrize("count", [1, 3])
def test_a_wrong_reading_leaves_no_ranges_behind(count: int) -> None:
    """A convolution on its own has the range of its own values, not of those behind the norm."""
    module = nets.seeded(Liar())
    with torch.no_grad():  # the norm makes its values a hundred times smaller
        module.conv.weight.mul_(100)
        module.norm.running_var.fill_(1e4)
    model = BACKEND.load(module)
    batches = nets.images()[:count]
    observations = BACKEND.observe(model, batches, (0,))[0]
    assert "" not in Findings.of(observations).trusted
    assert observations.tensors["conv:out"].maximum > 50
    built = BACKEND.build(model, default(model), observations)
    assert noise(model, built, batches) > 25


class Outsider(nn.Module):
    """Calls an op of a captured part from outside of it."""

    def __init__(self) -> None:
        super().__init__()
        self.part = nn.Sequential(nn.Conv2d(3, 3, 3, padding=1), nn.BatchNorm2d(3), nn.ReLU())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if float(x.sum()) > 1e9:
            return x
        return self.part(x) + self.part[0](x)


def test_an_op_called_past_its_part_is_noticed() -> None:
    model = BACKEND.load(nets.seeded(Outsider()))
    batches = nets.images()
    observations = BACKEND.observe(model, batches, (0,))[0]
    built = BACKEND.build(model, default(model), observations)
    assert not built.captured
    assert noise(model, built, batches) > 25


def test_another_batch_size_runs_the_same_program() -> None:
    model, _, observations = made("cnn")
    built = BACKEND.build(model, default(model), observations)
    for count in (1, 7):
        x = torch.randn(count, 3, 32, 32)
        truth, found = BACKEND.run(model, (x,))[0], BACKEND.run(built, (x,))[0]
        assert found.shape == truth.shape
        assert np.abs(found - truth).max() < 0.2 * np.abs(truth).max()


def test_every_choice_of_the_space_builds_in_a_captured_part() -> None:
    model, batches, observations = made("cnn")
    space = restrict(BACKEND.inspect(model, "auto"), ())
    start = space.default()
    for key, options in space.choices.items():
        for option in options:
            built = BACKEND.build(model, start.replace({key: option}), observations)
            assert noise(model, built, batches[:1]) > 5


def test_a_copy_of_a_built_model_works() -> None:
    import copy

    model, batches, observations = made("cnn")
    built = BACKEND.build(model, default(model), observations).native
    twin = copy.deepcopy(built)
    with torch.no_grad():
        assert torch.equal(twin(*batches[0]), built(*batches[0]))


@pytest.mark.parametrize("target", ["vnni", "avx2"])
def test_relu6_holds_whatever_the_range(target: Any) -> None:
    """Codes of 8 bits end at 6; those of 7 bits go on above it and must be cut."""
    module = nets.seeded(nn.Sequential(nn.Conv2d(3, 8, 1), nn.ReLU6(), nn.Conv2d(8, 8, 1)))
    loud = [(20 * x,) for (x,) in nets.images()]
    model = BACKEND.load(module)
    observations = BACKEND.observe(model, loud, (0,))[0]
    recipe = restrict(BACKEND.inspect(model, "static", target), ()).default()
    built = BACKEND.build(model, recipe, observations)
    assert len(program_of(built.native).steps) == 2
    exact = target == "avx2" or not abilities.saturates()
    assert (noise(model, built, loud) > 25) == exact
    with torch.no_grad():
        middle = program_of(built.native).steps[0].run(10 * loud[0][0])
    assert float(middle.dequantize().max()) <= 6.0 * 1.01


class Moving(nn.Module):
    """Ops that only move values, padding of two kinds among them."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b = nn.Conv2d(3, 8, 3), nn.Conv2d(8, 8, 3)
        self.c, self.pad = nn.Conv2d(8, 8, 3), nn.ZeroPad2d(1)
        self.shuffle, self.d = nn.PixelShuffle(2), nn.Conv2d(2, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = nn.functional.pad(self.a(x), (1, 1, 1, 1))
        x = nn.functional.pad(self.b(x)[:, :, ::2, ::2], (1, 1), value=3.0)
        return self.d(self.shuffle(self.c(self.pad(x))))


def test_ops_that_move_values_take_them_as_they_come() -> None:
    model = BACKEND.load(nets.seeded(Moving()))
    batches = nets.images()
    observations = BACKEND.observe(model, batches, (0,))[0]
    built = BACKEND.build(model, default(model), observations)
    assert noise(model, built, batches) > 25
    x = batches[0][0]
    seen = []
    with torch.no_grad():
        values = [x, *[None] * len(program_of(built.native).values)]
        for step in program_of(built.native).steps:
            values[step.out] = step.run(*fill(step.args, values), **step.kwargs)
            seen.append(values[step.out].is_quantized)
    # a and its padding stay uint8 for b; b's value is padded with 3, which is a float op, so nobody
    # wants it in uint8 before c rounds it; c and the shuffle stay uint8 for d.
    assert seen == [True, True, False, False, False, False, True, True, False]


def test_samples_without_a_batch_dimension_are_served() -> None:
    model = BACKEND.load(
        nets.seeded(nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 1)))
    )
    batches = [(x[0],) for (x,) in nets.images()]
    observations = BACKEND.observe(model, batches, (0,))[0]
    built = BACKEND.build(model, default(model), observations)
    assert noise(model, built, batches) > 25


class Chunked(nn.Module):
    """As YOLOv8's C2f: a list of parts that grows."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.inner = nn.Conv2d(3, 8, 1), nn.Conv2d(4, 4, 3, padding=1)
        self.last = nn.Conv2d(12, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        parts = list(torch.relu(self.first(x)).chunk(2, 1))
        parts.append(parts[-1] + torch.relu(self.inner(parts[-1])))
        left, right = self.last(torch.cat(parts, 1)).split([1, 3], 1)
        return torch.cat([right, left], 1)


def test_parts_whose_number_stands_in_the_code_are_captured() -> None:
    torch.manual_seed(0)
    model = BACKEND.load(Chunked().eval())
    assert [part.name for part in model.prepared.captures] == [""]
    batches = [(torch.randn(2, 3, 9, 9),) for _ in range(3)]
    observations = BACKEND.observe(model, batches, (0,))[0]
    built = BACKEND.build(model, default(model), observations)
    assert built.captured and noise(model, built, batches) > 25
