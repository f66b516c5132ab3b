"""What users do with a module: copies, state dicts, other layouts, dtypes and names."""

from __future__ import annotations

import copy
import io
import pickle
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

import lpot
from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, MODELS, default, made, noise
from lpot.backends.torch.kernels import choose
from lpot.backends.torch.kernels.engine import FusedSum
from lpot.backends.torch.run import run
from lpot.core.errors import CalibrationError, UnsupportedModel


class Residual(nn.Module):
    """Sums that a convolution computes along with itself."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = (nn.Conv2d(8, 8, 3, padding=1) for _ in range(3))
        self.stem = nn.Conv2d(3, 8, 3, padding=1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.relu(self.stem(x))
        return self.c(torch.relu(self.b(torch.relu(self.a(x))) + x))


def residual() -> Any:
    model = BACKEND.load(nets.seeded(Residual()))
    batches = nets.images()
    built = BACKEND.build(model, default(model), BACKEND.observe(model, batches, (0,))[0])
    return built, batches


def same(one: nn.Module, other: nn.Module, inputs: Any) -> bool:
    outputs = [run(module, inputs) for module in (one, other)]
    return all(map(np.array_equal, *outputs))


@pytest.mark.parametrize("name", MODELS)
def test_copies_compute_the_same(name: str) -> None:
    model, batches, observations = made(name)
    built = BACKEND.build(model, default(model), observations)
    twin = copy.deepcopy(built.native)
    del built.prepared
    for inputs in batches:
        assert same(built.native, twin, inputs)


@pytest.fixture
def onednn_wins(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Sums are fused in oneDNN's convolutions, which may not be the fastest here."""

    def race(runs: dict[str, Any], x: torch.Tensor) -> dict[str, float]:
        return {name: float(name != "onednn") for name in runs}

    monkeypatch.setattr(choose, "_race", race)
    choose._fastest.cache_clear()
    yield
    choose._fastest.cache_clear()


@pytest.mark.usefixtures("onednn_wins")
def test_copies_of_fused_sums_compute_the_same() -> None:
    built, batches = residual()
    assert any(isinstance(step.run, FusedSum) for step in built.native.forward.steps)
    twin = copy.deepcopy(copy.deepcopy(built.native))
    for _ in range(3):
        assert same(built.native, twin, batches[0])


def low(native: nn.Module) -> list[Any]:
    return [module for module in native.modules() if hasattr(module, "settings")]


def test_a_state_dict_is_plain_and_comes_back_by_itself_alone() -> None:
    built, batches = residual()
    stream = io.BytesIO()
    torch.save(built.native.state_dict(), stream)
    stream.seek(0)
    state = torch.load(stream, weights_only=True)
    before = BACKEND.run(built, batches[0])[0]
    built.native.load_state_dict(state)
    assert np.array_equal(before, BACKEND.run(built, batches[0])[0])
    state["a.weight_int8"] = state["a.weight_int8"].flip(0)
    with pytest.raises(RuntimeError, match=r"a\.weight_int8 is packed.*lpot\.load"):
        built.native.load_state_dict(state)
    assert np.array_equal(before, BACKEND.run(built, batches[0])[0])
    with pytest.raises(RuntimeError, match=r"Missing key.*a\.weight_int8"):
        built.native.load_state_dict({})


def test_pickling_is_refused_with_the_way_round() -> None:
    built, _ = residual()
    for pickled in (pickle.dumps, lambda native: torch.save(native, io.BytesIO())):
        with pytest.raises(UnsupportedModel, match=r"lpot\.load"):
            pickled(built.native)


def test_layouts_and_shared_memory() -> None:
    built, batches = residual()
    truth = BACKEND.run(built, batches[0])[0]
    for change in (
        lambda native: native.to(memory_format=torch.channels_last),
        lambda native: native.share_memory(),
        lambda native: native.to("cpu"),
        lambda native: native.eval(),
    ):
        assert np.array_equal(truth, run(change(built.native), batches[0])[0])
    wide = batches[0][0].to(memory_format=torch.channels_last)
    assert np.array_equal(truth, BACKEND.run(built, (wide,))[0])


class TwoNames(nn.Module):
    """The same layers, reached as parts of two containers."""

    def __init__(self) -> None:
        super().__init__()
        self.base = nn.Sequential(
            nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 8, 3), nn.Flatten()
        )
        self.layer0 = nn.Sequential(*self.base[:2])
        self.layer1 = nn.Sequential(*self.base[2:])
        self.fc = nn.Linear(8 * 12 * 12, 4)
        self.head = self.fc

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.layer1(self.layer0(x)))


def test_one_module_under_two_names(tmp_path: Path) -> None:
    torch.manual_seed(0)
    module = TwoNames().eval()
    data = [torch.randn(2, 3, 16, 16) for _ in range(3)]
    result = lpot.tune(module, calib=data, workspace=tmp_path / "run", measure_speed=False)
    again = lpot.load(result.model.save(tmp_path / "saved"), module=TwoNames())
    assert np.array_equal(
        BACKEND.run(result.model, (data[0],))[0], BACKEND.run(again, (data[0],))[0]
    )


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_other_dtypes_come_back_as_they_went_in(dtype: torch.dtype, tmp_path: Path) -> None:
    module = nets.seeded(nets.Cnn()).to(dtype)
    data = [images[0].to(dtype) for images in nets.images()]
    result = lpot.tune(module, calib=data, workspace=tmp_path / "run", measure_speed=False)
    assert next(module.parameters()).dtype == dtype
    found = result.model.native(data[0])
    assert found.dtype == dtype
    again = lpot.load(result.model.save(tmp_path / "saved"), module=nets.Cnn().to(dtype))
    assert torch.equal(again.native(data[0]), found)
    assert torch.equal(copy.deepcopy(result.model.native)(data[0]), found)
    truth = copy.deepcopy(module).float().eval()(data[0].float()).detach()
    assert float((found.float() - truth).abs().max()) < 0.1 * float(truth.abs().max())


class Gated(nn.Module):
    """A linear on a vector of its own, without a batch."""

    def __init__(self) -> None:
        super().__init__()
        self.a, self.g = nn.Linear(8, 8), nn.Linear(4, 8)
        self.t = nn.Parameter(torch.randn(4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.a(x) * torch.sigmoid(self.g(self.t))


@pytest.mark.parametrize("approach", ["static", "dynamic"])
def test_a_linear_on_a_vector(approach: Any) -> None:
    model = BACKEND.load(nets.seeded(Gated()))
    batches = [(torch.randn(5, 8),) for _ in range(3)]
    observations = BACKEND.observe(model, batches, (0,))[0]
    built = BACKEND.build(model, default(model, approach), observations)
    assert len(low(built.native)) == 2
    assert noise(model, built, batches) > 25


def test_unbatched_calibration_data() -> None:
    """What the model takes, its INT8 twin takes; what it does not is told with a guess."""
    linear = BACKEND.load(nets.seeded(nn.Sequential(nn.Linear(8, 8), nn.ReLU(), nn.Linear(8, 4))))
    single = [(torch.randn(8),) for _ in range(3)]
    built = BACKEND.build(linear, default(linear), BACKEND.observe(linear, single, (0,))[0])
    assert BACKEND.run(built, single[0])[0].shape == (4,)
    assert BACKEND.run(built, (torch.randn(3, 8),))[0].shape == (3, 4)
    flat = BACKEND.load(nets.seeded(nets.Cnn()))
    with pytest.raises(CalibrationError, match="is the batch dimension missing"):
        BACKEND.observe(flat, [(torch.randn(3, 16, 16),)], (0,))


@pytest.mark.filterwarnings("ignore:torch.ao")  # a user's own doing
def test_what_is_quantized_already_is_refused() -> None:
    from torch.ao.quantization import quantize_dynamic

    with pytest.raises(UnsupportedModel, match=r"already quantized, by torch\.ao \(first at '0'"):
        BACKEND.load(quantize_dynamic(nn.Sequential(nn.Linear(4, 4)), {nn.Linear}))
    built, _ = residual()
    with pytest.raises(UnsupportedModel, match="already quantized, by lpot"):
        BACKEND.load(built.native)


def test_a_compiled_part_stays_float_and_is_told() -> None:
    class Mixed(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.a = nn.Linear(8, 8)
            self.b = torch.jit.script(nn.Sequential(nn.Linear(8, 8), nn.ReLU()))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.b(self.a(x))

    model = BACKEND.load(nets.seeded(Mixed()))
    batches = [(torch.randn(4, 8),) for _ in range(2)]
    observations = BACKEND.observe(model, batches, (0,))[0]
    built = BACKEND.build(model, default(model), observations)
    assert len(low(built.native)) == 1
    assert noise(model, built, batches) > 25
    reasons = {key.name: info.reason for key, info in BACKEND.inspect(model).ops.items()}
    assert "TorchScript" in reasons["b"]


@pytest.mark.parametrize("kind", ["weight_norm", "pruned"])
def test_weights_made_at_each_call_become_plain(kind: str, tmp_path: Path) -> None:
    def make() -> nn.Module:
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
        if kind == "pruned":
            nn.utils.prune.random_unstructured(module[0], "weight", 0.3)
        else:
            nn.utils.weight_norm(module[0])
        return module.eval()

    module = make()
    data = [torch.randn(4, 8) for _ in range(3)]
    model = BACKEND.load(module)
    assert len(BACKEND.inspect(model).low()) == 2
    built = BACKEND.build(
        model, default(model), BACKEND.observe(model, [(x,) for x in data], (0,))[0]
    )
    again = BACKEND.restore(BACKEND.save(built, tmp_path / "saved"), make())
    assert np.array_equal(BACKEND.run(built, (data[0],))[0], BACKEND.run(again, (data[0],))[0])
    truth = module(data[0]).detach().numpy()
    assert np.abs(BACKEND.run(built, (data[0],))[0] - truth).max() < 0.1 * np.abs(truth).max()


def test_a_compiled_module_is_an_architecture_too(tmp_path: Path) -> None:
    built, batches = residual()
    folder = BACKEND.save(built, tmp_path / "saved")
    again = BACKEND.restore(folder, torch.compile(Residual()))
    assert np.array_equal(BACKEND.run(built, batches[0])[0], BACKEND.run(again, batches[0])[0])


def test_compiled_parts_are_tuned_as_they_were_before(tmp_path: Path) -> None:
    def make() -> nn.Module:
        torch.manual_seed(0)
        inner = torch.compile(nn.Sequential(nn.Linear(8, 8), nn.ReLU()), backend="eager")
        return nn.Sequential(nn.Linear(8, 8), inner).eval()

    model, batches = BACKEND.load(make()), [(torch.randn(4, 8),) for _ in range(2)]
    built = BACKEND.build(model, default(model), BACKEND.observe(model, batches, (0,))[0])
    assert sorted(key.name for key in built.recipe.ops) == ["0", "1.0"]
    again = BACKEND.restore(BACKEND.save(built, tmp_path / "saved"), make())
    assert same(again.native, built.native, batches[0])


@pytest.mark.parametrize("move", [lambda n: n.half(), lambda n: n.double(), lambda n: n.to("meta")])
def test_packed_integers_do_not_follow_to_other_dtypes_and_devices(move: Any) -> None:
    built, _ = residual()
    with pytest.raises(UnsupportedModel, match=r"stays on the CPU and in its dtype"):
        move(copy.deepcopy(built.native))


def test_quantized_buffers_are_refused() -> None:
    module = nn.Sequential(nn.Linear(4, 4)).eval()
    module.register_buffer("w", torch.quantize_per_tensor(torch.ones(2), 0.1, 0, torch.qint8))
    with pytest.raises(UnsupportedModel, match="already quantized: 'w'"):
        BACKEND.load(module)
