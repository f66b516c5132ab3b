"""What a tuning leaves alone in its process: other threads, random numbers, the default dtype."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

import torch
from torch import nn

import lpot
from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, default
from lpot.backends.torch import abilities
from lpot.backends.torch.kernels import agree, choose
from lpot.core.errors import UnsupportedModel


class Net(nn.Module):
    """One of each kind of op."""

    def __init__(self) -> None:
        super().__init__()
        self.conv, self.norm = nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8)
        self.up = nn.ConvTranspose2d(8, 8, 2, 2)
        self.table, self.rnn = nn.Embedding(20, 8), nn.LSTM(8, 8, batch_first=True)
        self.attention = nn.MultiheadAttention(8, 2, batch_first=True)
        self.head = nn.Linear(8, 4)

    def forward(self, image: torch.Tensor, ids: torch.Tensor) -> torch.Tensor:
        seen = self.up(torch.relu(self.norm(self.conv(image)))).mean((2, 3))
        told = self.rnn(self.table(ids))[0]
        told = self.attention(told, told, told)[0].mean(1)
        answer: torch.Tensor = self.head(seen + told)
        return answer


def batches(dtype: torch.dtype = torch.float32) -> list[Any]:
    draw = torch.Generator().manual_seed(0)
    return [
        (
            torch.randn(4, 3, 8, 8, generator=draw, dtype=torch.float32).to(dtype),
            torch.randint(0, 20, (4, 5), generator=draw),
        )
        for _ in range(2)
    ]


def tuned(module: nn.Module, folder: Path) -> Any:
    dtype = next(module.parameters()).dtype

    def power(model: Any) -> float:
        with torch.no_grad():
            return float(sum(model(*batch).float().square().mean() for batch in batches(dtype)))

    return lpot.tune(
        module,
        batches(dtype),
        evaluate=power,
        workspace=folder,
        goal=0.5,
        really=True,
        measure_speed=False,
    )


@pytest.fixture
def forgetful() -> Iterator[None]:
    """What was found out about kernels under another default dtype, or before, is found again."""
    known = (abilities.saturates, agree.agrees, choose._fastest)
    for function in known:
        function.cache_clear()
    yield
    for function in known:
        function.cache_clear()


def test_two_tunings_and_a_server_in_one_process(tmp_path: Path) -> None:
    served, image = (
        nets.seeded(nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU())).eval(),
        batches()[0][0],
    )
    with torch.no_grad():
        truth = served(image)
    over, failures, results = threading.Event(), [], {}

    def serve() -> None:
        while not over.is_set():
            try:
                with torch.no_grad():
                    assert torch.equal(served(image), truth)
            except Exception as error:
                failures.append(repr(error))

    def work(name: str) -> None:
        results[name] = tuned(nets.seeded(Net()).eval(), tmp_path / name)

    server = threading.Thread(target=serve)
    tunings = [threading.Thread(target=work, args=(name,)) for name in ("one", "other")]
    for thread in (server, *tunings):
        thread.start()
    for thread in tunings:
        thread.join()
    over.set()
    server.join()
    assert not failures
    assert [results[name].met for name in ("one", "other")] == [True, True]
    assert type(nn.Module.__call__).__name__ == "function" and nn.Module.__call__ is CALL


CALL = nn.Module.__call__


def test_random_numbers_go_on_as_if_nothing_had_been_drawn(tmp_path: Path, forgetful: None) -> None:
    module = nets.seeded(Net()).eval()
    before = torch.get_rng_state()
    tuned(module, tmp_path)
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
@pytest.mark.parametrize("made", ["before", "after"])
def test_any_default_dtype(made: str, dtype: torch.dtype, tmp_path: Path, forgetful: None) -> None:
    module = nets.seeded(Net()).eval() if made == "before" else None
    torch.set_default_dtype(dtype)
    try:
        module = module or nets.seeded(Net()).eval()
        result = tuned(module, tmp_path)
        assert result.met and not result.model.skipped
        assert set(result.model.precisions.values()) == {"int8"}
        again = lpot.load(result.model.save(tmp_path / "saved"), module=module)
        batch = batches(next(module.parameters()).dtype)[0]
        with torch.no_grad():
            assert torch.equal(result.model.native(*batch), again.native(*batch))
        result.model.export(tmp_path / "net.onnx")
    finally:
        torch.set_default_dtype(torch.float32)


def test_programs_taken_apart_by_torch_are_quantized(tmp_path: Path) -> None:
    module = nn.Sequential(nn.Conv2d(3, 8, 3), nn.ReLU(), nn.Flatten(), nn.Linear(288, 4)).eval()
    image = batches()[0][0]
    program = torch.export.export(module, (image,)).run_decompositions()
    result = lpot.tune(
        program,
        [image],
        evaluate=lambda model: float(torch.isfinite(model(image)).all()),
        workspace=tmp_path,
        measure_speed=False,
    )
    assert sorted(result.model.precisions.values()) == ["int8", "int8"]


class Mixed(nn.Module):
    """A layer in bfloat16 amid others, with casts around it."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 32), nn.Linear(32, 4)
        self.cast = nn.Linear(32, 1, dtype=torch.bfloat16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        made = torch.relu(self.one(x))
        found: torch.Tensor = self.two(made) + self.cast(made.bfloat16()).float()
        return found


def test_layers_cast_by_hand_are_left_alone(tmp_path: Path) -> None:
    module, x = nets.seeded(Mixed()).eval(), torch.randn(4, 8)
    model = BACKEND.load(module)
    built = BACKEND.build(model, default(model), BACKEND.observe(model, [(x,)], (0,))[0])
    assert {key.name for key in built.precisions} == {"one", "two"}
    with torch.no_grad():
        assert torch.equal(model.native(x), module(x))
    again = BACKEND.restore(BACKEND.save(built, tmp_path / "saved"), nets.seeded(Mixed()))
    assert torch.equal(again.native(x), built.native(x))
    assert "1 (cast): it is in 16 bits" in BACKEND.inspect(model).left


@pytest.mark.parametrize("inside", [False, True])
@pytest.mark.parametrize("script", [False, True])
def test_tracing_a_quantized_model_says_what_to_do(inside: bool, script: bool) -> None:
    module: nn.Module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4)).eval()
    x = torch.randn(4, 8)
    model = BACKEND.load(module)
    built = BACKEND.build(model, default(model), BACKEND.observe(model, [(x,)], (0,))[0])
    net = built.native if inside else nn.Sequential(built.native)
    with pytest.raises(UnsupportedModel, match=r"result.model.export\(path\)"):
        torch.jit.trace(net, (x,)) if script else torch.fx.symbolic_trace(net)


def test_a_net_wholly_in_int8_answers_for_device_and_dtype(tmp_path: Path) -> None:
    net = torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(12, 4)).eval()

    def evaluate(model: Any) -> float:
        first = next(model.parameters())
        return float(first.device.type == "cpu" and first.dtype == torch.float32)

    result = lpot.tune(net, [torch.rand(2, 12)], evaluate, workspace=tmp_path, measure_speed=False)
    assert result.met and len(result.trials) == 1
    assert set(result.model.native.state_dict()) == {"1.weight_int8", "1.weight_scale", "1.bias"}
