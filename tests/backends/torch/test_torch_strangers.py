"""Modules as strangers have them: odd inputs, odd ways to be called, graphs read beforehand."""

from __future__ import annotations

import copy
import threading
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import fx, nn

from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, default
from lpot.core.batch import Reader
from lpot.core.errors import DataError
from lpot.core.numerics.rounding import sqnr
from zoo import torch_batches, torch_strange

NETS = {**torch_batches.NETS, **torch_strange.NETS}
MEAN = torch.linspace(-1, 1, 8)


class Outside(nn.Module):
    """Reads a tensor that is no attribute of it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 16), nn.Linear(16, 4)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.two(torch.relu(self.one(x - MEAN)))


@pytest.mark.parametrize("read", [False, True])
def test_tensors_from_outside_and_graph_modules(read: bool) -> None:
    module: nn.Module = nets.seeded(Outside()).eval()
    module = fx.symbolic_trace(module) if read else module
    batch = np.random.default_rng(0).standard_normal((32, 8)).astype(np.float32)
    with torch.no_grad():
        truth = module(torch.from_numpy(batch)).numpy()
    model = BACKEND.load(module)
    observations = BACKEND.observe(model, [(batch,)], (0,))[0]
    recipe = default(model)
    exact = BACKEND.run(BACKEND.build(model, recipe.with_float(recipe.ops), observations), (batch,))
    np.testing.assert_allclose(exact[0], truth, rtol=1e-6)
    low = BACKEND.run(BACKEND.build(model, recipe, observations), (batch,))[0]
    assert 0 < np.abs(low - truth).max() < 0.1 * np.abs(truth).max()


def built_of(module: Any, batch: Any) -> tuple[Any, Any, Any]:
    model = BACKEND.load(module)
    inputs = Reader(None, model.tries())(batch).inputs
    built = BACKEND.build(model, default(model), BACKEND.observe(model, [inputs], (0,))[0])
    return model, built, inputs


FP32 = {
    "functional_call": ["net.0"],
    "vmap": ["each.0", "each.2"],
    "nested tensors": ["each"],
}


@pytest.mark.parametrize(
    "name",
    [
        *("a dataclass by its fields", "keys that forward does not know", "a PackedSequence in"),
        *("texts and labels", "an object out", "isinstance in forward", "padding in an encoder"),
        *("functional_call", "vmap", "a graph module", "an exported program", "nested tensors"),
        *("inputs written to", "a batch that loses its keys", "train() without a result"),
    ],
)
def test_strange_nets_are_quantized_copied_and_restored(name: str, tmp_path: Path) -> None:
    make, draw = NETS[name]

    def module() -> Any:
        torch.manual_seed(0)
        made = make()
        if isinstance(made, nn.Module):
            made.eval()
        return made

    model, built, inputs = built_of(module(), draw())
    assert sorted(key.name for key in built.skipped) == FP32.get(name, [])
    assert built.is_quantized
    truth, found = BACKEND.run(model, inputs), BACKEND.run(built, inputs)
    assert len(truth) == len(found) > 0
    assert min(map(sqnr, truth, found)) > 25
    again = BACKEND.restore(BACKEND.save(built, tmp_path / "saved"), module())
    twin = copy.deepcopy(built.native)
    for other in (BACKEND.run(again, inputs), [to_array(x) for x in outputs(twin, inputs)]):
        assert all(map(np.array_equal, found, other))


def outputs(native: nn.Module, inputs: Any) -> list[torch.Tensor]:
    from lpot.backends.torch.data import tensors
    from lpot.backends.torch.run import call

    return list(tensors(call(native, inputs)))


def to_array(value: torch.Tensor) -> np.ndarray:
    return value.numpy()


def test_ops_that_stay_fp32_because_of_their_caller_are_told() -> None:
    torch.manual_seed(0)
    make, draw = NETS["vmap"]
    _, built, _ = built_of(make().eval(), draw())
    assert all("vmap" in reason for reason in built.skipped.values())


def test_layers_answer_for_the_class_that_they_stand_for() -> None:
    _, built, _ = built_of(nn.Sequential(nn.Linear(8, 4)).eval(), torch.randn(2, 8))
    layer = built.native[0]
    assert isinstance(layer, nn.Linear) and type(layer) is not nn.Linear
    assert not isinstance(layer, nn.Conv2d) and "LowLinear" in repr(built.native)


def test_padding_is_left_to_torch_where_torch_does() -> None:
    """With gradients, or with padding in front, torch does not fill in zeros."""
    torch.manual_seed(0)
    make, draw = NETS["padding in an encoder"]
    module, behind = make().eval(), draw()
    front = {**behind, "padding": behind["padding"].flip(1)}
    model = BACKEND.load(module)
    observations = BACKEND.observe(model, [behind, front], (0,))[0]
    built = BACKEND.build(model, default(model), observations)
    for batch in (behind, front):
        assert sqnr(BACKEND.run(model, batch)[0], BACKEND.run(built, batch)[0]) > 25
    learning, fixed = module(**behind).detach(), BACKEND.run(model, behind)[0]
    assert sqnr(learning.numpy(), built.native(**behind).detach().numpy()) > 25
    assert sqnr(learning.numpy(), fixed) < 20


def test_a_parallel_wrapper_and_a_lock_are_no_obstacle(tmp_path: Path) -> None:
    net = nn.Sequential(nn.Linear(8, 4))
    net.lock = threading.Lock()
    _, built, inputs = built_of(nn.DataParallel(net).eval(), torch.randn(2, 8))
    assert [key.name for key in built.recipe.ops] == ["0"]
    again = BACKEND.restore(BACKEND.save(built, tmp_path / "saved"), net)
    assert np.array_equal(BACKEND.run(again, inputs)[0], BACKEND.run(built, inputs)[0])


def test_what_torch_prepared_for_training_is_tuned_as_it_was_before() -> None:
    ao = torch.ao.quantization
    torch.manual_seed(0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        net = nn.Sequential(ao.QuantStub(), nn.Conv2d(3, 8, 3), nn.ReLU(), ao.DeQuantStub()).train()
        net.qconfig = ao.get_default_qat_qconfig("x86")
        net = ao.prepare_qat(net)
        net(torch.randn(2, 3, 8, 8))
        exact = nn.functional.relu(
            nn.functional.conv2d(x := torch.randn(2, 3, 8, 8), net[1].weight, net[1].bias)
        )
        _, built, inputs = built_of(net.eval(), x)
    assert built.is_quantized
    assert sqnr(exact.detach().numpy(), BACKEND.run(built, inputs)[0]) > 30


def test_an_assertion_of_forward_is_told_with_its_line() -> None:
    class Strict(nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            if len(input) > 1:
                raise AssertionError
            return super().forward(input)

    with pytest.raises(DataError, match=r"AssertionError in line .*: raise AssertionError"):
        BACKEND.run(BACKEND.load(nn.Sequential(Strict(4, 4))), (torch.randn(2, 4),))


def test_a_compiled_forward_is_tuned_as_it_was_before() -> None:
    """Left as it is, it would go on running the user's own FP32 module."""
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(8, 4)).eval()
    module.forward = torch.compile(module.forward, backend="eager")
    model, built, inputs = built_of(module, torch.randn(2, 8))
    assert built.is_quantized
    truth, found = BACKEND.run(model, inputs)[0], BACKEND.run(built, inputs)[0]
    assert 25 < sqnr(truth, found) < 90
