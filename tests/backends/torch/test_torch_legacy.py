"""`lpot.utils.pytorch.load`: our checkpoints, those of lpot 1.x, and what must be refused."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn
from torch.ao import quantization

import lpot
from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, default, made
from lpot.core.errors import UnsupportedModel
from lpot.experimental import common
from lpot.utils.pytorch import load, save_weights

pytestmark = pytest.mark.filterwarnings("ignore")


class Stubbed(nn.Module):
    """As users of 1.x had to write it: stubs, FloatFunctional, a module fused by hand."""

    def __init__(self) -> None:
        super().__init__()
        self.quant = quantization.QuantStub()
        self.conv1 = nn.Conv2d(3, 8, 3, padding=1)
        self.relu = nn.ReLU()
        self.conv2 = nn.Conv2d(8, 8, 3, padding=1)
        self.add = torch.ao.nn.quantized.FloatFunctional()
        self.fc = nn.Linear(8, 4)
        self.dequant = quantization.DeQuantStub()

    def forward(self, x: Any) -> Any:
        x = self.relu(self.conv1(self.quant(x)))
        x = self.add.add(self.conv2(x), x)
        return self.dequant(self.fc(x.mean((2, 3))))


def net() -> nn.Module:
    torch.manual_seed(0)
    module = Stubbed().eval()
    return quantization.fuse_modules(module, [["conv1", "relu"]])


IMAGES = torch.randn(4, 3, 8, 8, generator=torch.Generator().manual_seed(1))


def write(folder: Path, state: Any, approach: str | None = None) -> Path:
    """The two files as lpot 1.6 wrote them."""
    folder.mkdir(exist_ok=True)
    torch.save(state, folder / "best_model_weights.pt")
    head = "" if approach is None else f"approach: {approach}\n"
    op = "op:\n  ? !!python/tuple\n  - fc\n  - Linear\n  : activation: {dtype: uint8}\n"
    (folder / "best_configure.yaml").write_text(f"framework: pytorch\n{head}{op}")
    return folder


def static(skip: str | None = None) -> nn.Module:
    module = net()
    module.qconfig = quantization.get_default_qconfig("fbgemm")
    if skip is not None:
        inner = module.get_submodule(skip)
        inner.qconfig = None
        module._modules[skip] = Wrapped(inner)
    prepared = quantization.prepare(module)
    prepared(IMAGES)
    return quantization.convert(prepared)


class Wrapped(nn.Module):
    """What 1.x put around an op that went back to FP32."""

    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.add_module("quant", quantization.QuantStub())
        self.add_module("dequant", quantization.DeQuantStub())
        self.add_module("module", module)
        self.quant.qconfig = quantization.get_default_qconfig("fbgemm")

    def forward(self, x: Any) -> Any:
        return self.quant(self.module(self.dequant(x)))


# -- the door, with our own files -----------------------------------------------------------------


def test_the_checkpoint_of_a_tuning_comes_back(tmp_path: Path) -> None:
    module = nets.seeded(nets.Cnn())
    result = lpot.tune(
        module,
        [(x, torch.zeros(len(x))) for (x,) in nets.images()],
        lambda model: 1.0,
        workspace=tmp_path / "space",
        measure_speed=False,
    )
    for folder in (tmp_path / "space" / "checkpoint", str(tmp_path / "space")):
        for blank in (nets.Cnn(), common.Model(nets.Cnn())):
            again = load(folder, blank)
            assert isinstance(again, nn.Module)
            with torch.no_grad():
                assert torch.equal(again(*nets.images()[0]), result.model.native(*nets.images()[0]))


_CHILD = """
import sys
import numpy as np, torch
from backends.torch.torch_nets import Cnn, images
from lpot.utils.pytorch import load
with torch.no_grad():
    np.save(sys.argv[2], load(sys.argv[1], Cnn())(*images()[0]).numpy())
"""


def test_a_fresh_process_gives_the_same_bits(tmp_path: Path) -> None:
    model, batches, observations = made("cnn")
    built = BACKEND.build(model, default(model), observations)
    path = BACKEND.save(built, tmp_path / "checkpoint")
    save_weights(path)
    (path / "lpot.json").unlink()  # the original's two files alone
    tests = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{tests}:{tests.parent / 'src'}"}
    command = [sys.executable, "-c", _CHILD, str(path), str(tmp_path / "y.npy")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    np.testing.assert_array_equal(np.load(tmp_path / "y.npy"), BACKEND.run(built, batches[0])[0])


# -- files of 1.x ---------------------------------------------------------------------------------


@pytest.mark.parametrize("approach", ["post_training_static_quant", None])
def test_a_static_checkpoint_of_1x_is_read(tmp_path: Path, approach: str | None) -> None:
    old = static()
    found = load(write(tmp_path / "checkpoint", old.state_dict(), approach), net())
    with torch.no_grad():
        step = float(old.fc.scale)
        assert (found(IMAGES) - old(IMAGES)).abs().max() < 2.5 * step
    assert found.conv1.weight_int8.equal(old.conv1.weight().int_repr())


def test_an_op_that_1x_left_in_fp32_is_read(tmp_path: Path) -> None:
    old = static("conv2")
    assert "conv2.module.weight" in old.state_dict()
    found = load(write(tmp_path / "checkpoint", old.state_dict()), net())
    assert type(found.conv2) is nn.Conv2d
    with torch.no_grad():
        assert (found(IMAGES) - old(IMAGES)).abs().max() < 2.5 * float(old.fc.scale)


@pytest.mark.parametrize("approach", ["post_training_dynamic_quant", None])
def test_a_dynamic_checkpoint_of_1x_is_read(tmp_path: Path, approach: str | None) -> None:
    module = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    old = quantization.quantize_dynamic(module, {nn.Linear})
    blank = nn.Sequential(nn.Linear(16, 32), nn.ReLU(), nn.Linear(32, 4))
    found = load(write(tmp_path / "checkpoint", old.state_dict(), approach), blank)
    x = torch.randn(5, 16)
    with torch.no_grad():
        assert (found(x) - old(x)).abs().max() < 0.02 * old(x).abs().max()


def test_the_module_given_is_not_changed(tmp_path: Path) -> None:
    module = net()
    before = {name: value.clone() for name, value in module.state_dict().items()}
    load(write(tmp_path / "checkpoint", static().state_dict()), module)
    assert all(torch.equal(before[name], value) for name, value in module.state_dict().items())


# -- what is refused, by name ---------------------------------------------------------------------


def test_another_architecture_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "checkpoint", static().state_dict())
    with pytest.raises(UnsupportedModel, match="conv1"):
        load(folder, nn.Sequential(nn.Linear(3, 4)))
    with pytest.raises(UnsupportedModel, match=r"nn\.Module"):
        load(folder, "model.pt")


def test_a_data_flow_that_can_not_be_read_is_said(tmp_path: Path) -> None:
    class Odd(Stubbed):
        def forward(self, x: Any) -> Any:
            return super().forward(x) if x.sum() > 0 else x

    module = quantization.fuse_modules(Odd().eval(), [["conv1", "relu"]])
    with pytest.raises(UnsupportedModel, match="data flow"):
        load(write(tmp_path / "checkpoint", static().state_dict()), module)


def test_kinds_of_int8_that_are_not_read_are_refused(tmp_path: Path) -> None:
    module = nn.Sequential(nn.LSTM(4, 4))
    old = quantization.quantize_dynamic(module, {nn.LSTM})
    with pytest.raises(UnsupportedModel, match="refused"):
        load(write(tmp_path / "checkpoint", old.state_dict()), module)


def test_asymmetric_weights_are_named(tmp_path: Path) -> None:
    weight = torch.quantize_per_tensor(torch.randn(4, 16), 0.1, 3, torch.qint8)
    state = {
        "0.scale": torch.tensor(1.0),
        "0.zero_point": torch.tensor(0),
        "0._packed_params.dtype": torch.qint8,
        "0._packed_params._packed_params": (weight, None),
    }
    with pytest.raises(UnsupportedModel, match="asymmetric"):
        load(write(tmp_path / "checkpoint", state), nn.Sequential(nn.Linear(16, 4)))


class _Payload:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("pwned",))


def test_a_malicious_checkpoint_runs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnsupportedModel, match=r"refused.*mkdir"):
        load(write(tmp_path / "checkpoint", {"fc.weight": _Payload()}), net())
    folder = write(tmp_path / "checkpoint", static().state_dict())
    for text in (
        "op: !!python/object/apply:os.mkdir [pwned]\n",
        "op: !!python/name:os.system\n",
        "? !!python/tuple [a, !!python/object/apply:os.mkdir [pwned]]\n: 1\n",
    ):
        (folder / "best_configure.yaml").write_text(text)
        with pytest.raises(UnsupportedModel, match="plain yaml"):
            load(folder, net())
    assert not (tmp_path / "pwned").exists()


@pytest.mark.parametrize("content", [[1, 2], {1: torch.ones(1)}, torch.ones(3)])
def test_weights_that_are_no_state_dict_are_refused(tmp_path: Path, content: Any) -> None:
    with pytest.raises(UnsupportedModel, match=r"best_model_weights\.pt"):
        load(write(tmp_path / "checkpoint", content), net())


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="no such folder"):
        load(tmp_path / "nowhere", net())
    with pytest.raises(UnsupportedModel, match=r"best_configure\.yaml: no such file"):
        load(tmp_path, net())
    (tmp_path / "best_configure.yaml").write_text("op: {}\n")
    with pytest.raises(UnsupportedModel, match=r"best_model_weights\.pt: no such file"):
        load(tmp_path, net())
