"""Saved models come back bit for bit, in a fresh process too, and foreign files are refused."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("safetensors")

import torch
from torch import nn

import lpot
from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, MODELS, default, made
from lpot.core.errors import UnsupportedModel, WorkspaceError
from lpot.core.recipe import Recipe
from lpot.utils.pytorch import save_weights


def outputs(model: Any, batches: Any) -> list[np.ndarray]:
    return [array for inputs in batches for array in BACKEND.run(model, inputs)]


def assert_same(one: list[np.ndarray], other: list[np.ndarray]) -> None:
    for left, right in zip(one, other, strict=True):
        np.testing.assert_array_equal(left, right)


@pytest.mark.parametrize("name", MODELS)
def test_round_trip_is_exact(name: str, tmp_path: Path) -> None:
    model, batches, observations = made(name)
    recipe = default(model, "auto")
    recipe = recipe.with_float(list(recipe.ops)[1:2])
    built = BACKEND.build(model, recipe, observations)
    path = BACKEND.save(built, tmp_path / "saved")
    blank, _ = MODELS[name]()
    again = BACKEND.restore(path, blank)
    assert_same(outputs(built, batches), outputs(again, batches))
    assert again.recipe == recipe
    assert again.fingerprint() == built.fingerprint()
    assert again.nbytes == built.nbytes
    assert again.skipped == built.skipped


def test_a_restored_model_can_be_saved_again(tmp_path: Path) -> None:
    model, batches, observations = made("cnn")
    built = BACKEND.build(model, default(model), observations)
    first = BACKEND.restore(BACKEND.save(built, tmp_path / "one"), nets.Cnn())
    second = BACKEND.restore(BACKEND.save(first, tmp_path / "two"), nets.Cnn())
    assert_same(outputs(built, batches), outputs(second, batches))


def test_a_transformers_model_needs_no_module(tmp_path: Path) -> None:
    model, batches, observations = made("bert")
    built = BACKEND.build(model, default(model), observations)
    again = BACKEND.restore(BACKEND.save(built, tmp_path / "saved"))
    assert_same(outputs(built, batches), outputs(again, batches))


def test_a_transformers_folder_can_be_loaded(tmp_path: Path) -> None:
    module, batches = nets.transformers_model("bert")
    module.save_pretrained(tmp_path / "fp32")
    model = BACKEND.load(tmp_path / "fp32")
    assert_same(outputs(BACKEND.load(module), batches), outputs(model, batches))


_CHILD = """
import sys
from pathlib import Path
import numpy as np, torch
from backends.torch.torch_nets import Cnn, images
from lpot.backends.torch import TorchBackend
backend = TorchBackend()
model = backend.{opener}(Path(sys.argv[1]), Cnn())
found = [array for inputs in images() for array in backend.run(model, inputs)]
np.savez(sys.argv[2], *found)
"""


@pytest.mark.parametrize("opener", ["restore", "load_checkpoint"])
def test_a_fresh_process_gives_the_same_bits(opener: str, tmp_path: Path) -> None:
    model, batches, observations = made("cnn")
    built = BACKEND.build(model, default(model), observations)
    path = BACKEND.save(built, tmp_path / "saved")
    if opener == "load_checkpoint":  # the original's two files alone must do
        save_weights(path)
        (path / "lpot.json").unlink()
        (path / "model.safetensors").unlink()
    tests = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{tests}:{tests.parent / 'src'}"}
    command = [
        sys.executable,
        "-c",
        _CHILD.format(opener=opener),
        str(path),
        str(tmp_path / "y.npz"),
    ]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "y.npz") as found:
        assert_same(outputs(built, batches), list(found.values()))


def test_the_two_files_are_in_the_original_words(tmp_path: Path) -> None:
    from lpot.backends.torch.files.checkpoint import read_configure

    model, _, observations = made("cnn")
    built = BACKEND.build(model, default(model), observations)
    path = BACKEND.save(built, tmp_path / "checkpoint")
    config = read_configure(path / "best_configure.yaml")
    assert config["framework"] == "pytorch"
    op = config["op"][("fc", "Linear")]
    assert op["activation"]["dtype"] == "uint8"
    assert op["weight"]["granularity"] == "per_channel"
    assert built.tune_cfg["op"][("fc", "Linear")] == op
    assert not (path / "best_model_weights.pt").exists()  # the same tensors once more
    weights = torch.load(save_weights(path), weights_only=True)
    assert weights["fc.weight_int8"].dtype == torch.int8


def test_the_file_is_small(tmp_path: Path) -> None:
    module = torch.nn.Sequential(torch.nn.Linear(256, 256), torch.nn.Linear(256, 256))
    model = BACKEND.load(module)
    observations = BACKEND.observe(model, [(torch.randn(4, 256),)], (0,))[0]
    built = BACKEND.build(model, default(model), observations)
    path = BACKEND.save(built, tmp_path / "saved")
    assert built.nbytes < 0.27 * model.nbytes
    assert sum(file.stat().st_size for file in path.iterdir()) < 0.28 * model.nbytes
    assert {file.stat().st_mode & 0o777 for file in path.iterdir()} == {
        (path.with_name("saved.card.json")).stat().st_mode & 0o777
    }


# -- what must be refused ----------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    model, _, observations = made("cnn")
    return BACKEND.save(BACKEND.build(model, default(model), observations), tmp_path / "saved")


def test_no_architecture_is_asked_for(saved: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"Cnn"):
        BACKEND.restore(saved)


def test_another_architecture_is_refused(saved: Path) -> None:
    with pytest.raises(UnsupportedModel):
        BACKEND.restore(saved, nets.Branching())


def test_other_shapes_are_refused_by_name(saved: Path) -> None:
    module = nets.Cnn()
    module.fc = torch.nn.Linear(32, 11)
    facts = json.loads((saved / "lpot.json").read_text())
    del facts["ops"]["fc"]
    recipe = facts["recipe"]
    recipe["ops"] = [op for op in recipe["ops"] if op[0] != "fc"]
    (saved / "lpot.json").write_text(json.dumps(facts))
    with pytest.raises(UnsupportedModel, match=r"fc\.weight"):
        BACKEND.restore(saved, module)


def test_another_forward_is_refused(saved: Path) -> None:
    class Other(nets.Cnn):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) * 2

    with pytest.raises(UnsupportedModel, match="forward"):
        BACKEND.restore(saved, Other())


@pytest.mark.parametrize("damage", ["truncated", "text", "gone"])
def test_damaged_weights_are_refused(saved: Path, damage: str) -> None:
    file = saved / "model.safetensors"
    whole = file.read_bytes()
    if damage == "gone":
        file.unlink()
    else:
        file.write_bytes(whole[:100] if damage == "truncated" else b"hello")
    with pytest.raises(UnsupportedModel, match=r"model\.safetensors"):
        BACKEND.restore(saved, nets.Cnn())


@pytest.mark.parametrize("text", ["", "[]", "{", '{"format": 99}'])
def test_a_damaged_description_is_refused(saved: Path, text: str) -> None:
    (saved / "lpot.json").write_text(text)
    with pytest.raises(UnsupportedModel):
        BACKEND.restore(saved, nets.Cnn())


class _Payload:
    def __reduce__(self) -> tuple[Any, ...]:
        return (os.mkdir, ("pwned",))


def test_a_malicious_checkpoint_is_refused(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (saved / "lpot.json").unlink()
    torch.save({"fc.weight": _Payload()}, saved / "best_model_weights.pt")
    with pytest.raises(UnsupportedModel, match="refused"):
        BACKEND.load_checkpoint(saved, nets.Cnn())
    assert not (tmp_path / "pwned").exists()


def test_a_malicious_yaml_is_refused(
    saved: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (saved / "lpot.json").unlink()
    (saved / "best_configure.yaml").write_text("op: !!python/object/apply:os.mkdir [pwned]\n")
    with pytest.raises(UnsupportedModel, match="plain yaml"):
        BACKEND.load_checkpoint(saved, nets.Cnn())
    assert not (tmp_path / "pwned").exists()


def test_weights_that_do_not_belong_to_their_yaml_are_named(saved: Path) -> None:
    save_weights(saved)
    (saved / "lpot.json").unlink()
    (saved / "best_configure.yaml").write_text(
        "framework: pytorch\nop:\n  ? !!python/tuple\n  - fc\n  - Linear\n  : activation: {}\n"
    )
    with pytest.raises(UnsupportedModel, match="holds no tensor"):
        BACKEND.load_checkpoint(saved, nets.Cnn())


def test_a_file_in_the_way_is_named(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(WorkspaceError, match="taken"):
        BACKEND.save(BACKEND.load(nets.Cnn()), tmp_path / "taken")


def test_an_fp32_model_can_be_saved(tmp_path: Path) -> None:
    model = BACKEND.load(nets.seeded(nets.Cnn()))
    again = BACKEND.restore(BACKEND.save(model, tmp_path / "fp32"), nets.Cnn())
    assert_same(outputs(model, nets.images()), outputs(again, nets.images()))


@pytest.mark.parametrize(("bits", "warned"), [(7, True), (8, False)])
def test_a_full_range_model_warns_where_it_would_overflow(
    saved: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    bits: int,
    warned: bool,
) -> None:
    from lpot.backends.torch import abilities

    facts = json.loads((saved / "lpot.json").read_text())
    full = any(config["activation"].get("bits") == 8 for config in facts["recipe"]["configs"])
    monkeypatch.setattr(abilities, "worst_error", lambda: 0.5 if bits == 7 else 0.0)
    BACKEND.restore(saved, nets.Cnn())
    assert any("overflow" in record.message for record in caplog.records) == (warned and full)


def test_an_executor_that_is_missing_here_is_replaced_and_said(
    saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    text = (saved / "lpot.json").read_text()
    facts = json.loads(text)
    for op in facts["ops"].values():
        op["kernel"] = "made_up"
    (saved / "lpot.json").write_text(json.dumps(facts))
    again = BACKEND.restore(saved, nets.Cnn())
    assert any("made_up" in record.message for record in caplog.records)
    assert np.isfinite(outputs(again, nets.images())[0]).all()


def test_bf16_ops_are_offered_built_and_saved(tmp_path: Path) -> None:
    model, batches, observations = made("cnn")
    capability = BACKEND.inspect(model, "static", "amx")
    chosen = {
        info.key: next(c for c in info.choices if c.precision == "bf16")
        for info in capability.low()
    }
    built = BACKEND.build(model, Recipe(chosen), observations)
    truth, found = outputs(model, batches)[0], outputs(built, batches)[0]
    assert 0 < np.abs(truth - found).max() < 0.05 * np.abs(truth).max()
    assert built.nbytes < 0.6 * model.nbytes
    again = BACKEND.restore(BACKEND.save(built, tmp_path / "bf16"), nets.Cnn())
    assert_same(outputs(built, batches), outputs(again, batches))


class Masking(torch.nn.Module):
    """Draws what it leaves out, as masked autoencoders do."""

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.fc(x) * (torch.rand(x.shape[0], 1) > 0.5)


def test_a_forward_that_draws_random_numbers_is_saved(tmp_path: Path) -> None:
    model = BACKEND.load(Masking().eval())
    batches = [(torch.randn(16, 8),) for _ in range(2)]
    built = BACKEND.build(model, default(model), BACKEND.observe(model, batches, (0,))[0])
    again = BACKEND.restore(built.save(tmp_path / "saved"), Masking())
    assert again.is_quantized


class FunctionalNorm(nn.BatchNorm2d):
    """As timm's: its forward calls the function, which has the momentum among its arguments."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        mean, var = self.running_mean, self.running_var
        return nn.functional.batch_norm(
            x, mean, var, self.weight, self.bias, False, self.momentum or 0.0, self.eps
        )


def test_a_skeleton_may_have_been_made_for_another_training(tmp_path: Path) -> None:
    def made(momentum: float | None) -> nn.Module:
        norm = FunctionalNorm(8, momentum=momentum)
        return nn.Sequential(nn.Conv2d(3, 8, 3), norm, nn.ReLU(), nn.Conv2d(8, 4, 3)).eval()

    x = torch.randn(2, 3, 8, 8)
    result = lpot.tune(made(None), calib=[x], workspace=tmp_path, measure_speed=False)
    again = lpot.load(result.path, module=made(0.1))
    assert torch.equal(again.native(x), result.model.native(x))


class Remembering(nn.Module):
    """Keeps what it saw in plain attributes, one of which it changes in place."""

    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = nn.Linear(8, 8), nn.Linear(8, 4)
        self.last: Any = None
        self.mean = torch.zeros(8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        before = torch.zeros_like(x) if self.last is None else self.last
        self.last = torch.tanh(self.one(x + before))
        self.mean.mul_(0.9).add_(0.1 * self.last.mean(0))
        found: torch.Tensor = self.two(self.last - self.mean)
        return found


def test_state_in_plain_attributes_is_no_difference(tmp_path: Path) -> None:
    module = nets.seeded(Remembering()).eval()
    batches = [(torch.randn(4, 8, generator=torch.Generator().manual_seed(0)),)]
    model = BACKEND.load(module)
    built = BACKEND.build(model, default(model), BACKEND.observe(model, batches, (0,))[0])
    other = BACKEND.build(model, default(model), BACKEND.observe(model, batches, (0,))[0])
    first = [BACKEND.run(built, batches[0])[0] for _ in range(2)]
    assert not np.array_equal(*first)  # it remembers
    assert np.array_equal(BACKEND.run(other, batches[0])[0], first[0])  # each by itself
    again = BACKEND.restore(BACKEND.save(built, tmp_path / "saved"), module)
    assert np.array_equal(BACKEND.run(again, batches[0])[0], first[0])
    assert module.last is None and not module.mean.any()
