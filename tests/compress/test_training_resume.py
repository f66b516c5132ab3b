"""A training of the yaml that was killed goes on behind the last epoch that was kept."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from lpot.core.compress import resume
from lpot.experimental import Distillation, Pruning, Scheduler, common

DRAW = np.random.default_rng(0)
IMAGES = DRAW.normal(size=(48, 6)).astype(np.float32)
LABELS = (IMAGES[:, 0] > 0).astype(np.int64) + (IMAGES[:, 1] > 0)
EPOCHS = 6


class Samples:
    def __len__(self) -> int:
        return len(IMAGES)

    def __getitem__(self, index: int) -> Any:
        return IMAGES[index], LABELS[index]


def net(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    layers = nn.Linear(6, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 3)
    return nn.Sequential(*layers).eval()


def accuracy(model: Any) -> float:
    with torch.no_grad():
        return float((model(torch.tensor(IMAGES)).argmax(1).numpy() == LABELS).mean())


def train(criterion: Any = None, **more: Any) -> dict[str, Any]:
    return {
        "start_epoch": 0,
        "end_epoch": EPOCHS,
        "optimizer": {"Adam": {"learning_rate": 0.01}},
        "criterion": criterion or {"CrossEntropyLoss": {}},
        "learning_rate_decay": "cosine",
        **more,
    }


def pruning(folder: Path, kind: str = "basic_magnitude", **more: Any) -> Pruning:
    section = {
        "target_sparsity": 0.7,
        "end_epoch": EPOCHS,
        "pruners": [{"prune_type": kind, "names": ["0.weight"]}],
    }
    door = Pruning(
        {
            "model": {"name": "net", "framework": "pytorch"},
            "pruning": {"train": train(), "approach": {"weight_compression": {**section, **more}}},
            "tuning": {
                "workspace": {"path": str(folder)},
                "accuracy_criterion": {"absolute": 0.9, "really": True},
            },
        }
    )
    door.model, door.eval_func = net(), accuracy
    door.train_dataloader = common.DataLoader(Samples(), batch_size=8, shuffle=True)
    return door


def distilling(folder: Path) -> Distillation:
    section = train({"KnowledgeDistillationLoss": {"temperature": 2.0}})
    door = Distillation(
        {
            "model": {"name": "net", "framework": "pytorch"},
            "distillation": {"train": section},
            "tuning": {"workspace": {"path": str(folder)}},
        }
    )
    door.student_model, door.teacher_model = net(), net(1)
    door.train_dataloader = common.DataLoader(Samples(), batch_size=8, shuffle=True)
    return door


def interrupted(door: Any, epoch: int) -> None:
    """Stopped in the midst of an epoch."""
    began = []

    def stop(batch: int) -> None:
        began.append(batch)
        if len(began) > epoch * 6 + 3:
            raise KeyboardInterrupt

    door.register_hook("on_batch_begin", stop)
    with pytest.raises(KeyboardInterrupt):
        door()


def weights(model: Any) -> dict[str, Any]:
    return dict(model.native.state_dict())


def notes_of(door: Any) -> list[str]:
    found: list[str] = []
    door.listener.note = found.append
    return found


@pytest.fixture
def each_epoch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resume, "EVERY", 0.0)


Maker = Callable[[Path], Any]


@pytest.mark.usefixtures("each_epoch")
@pytest.mark.parametrize(
    "made",
    [
        pruning,
        lambda folder: pruning(folder, "gradient_sensitivity"),
        lambda folder: pruning(folder, "group_lasso"),
        distilling,
    ],
    ids=["magnitude", "gradients", "lasso", "distillation"],
)
def test_it_ends_as_if_nothing_had_happened(made: Maker, tmp_path: Path) -> None:
    """The same weights to the last bit: optimizer, random numbers, order of data, masks."""
    wanted = weights(made(tmp_path / "whole")())
    assert not list((tmp_path / "whole").iterdir())  # nothing is left of it
    interrupted(made(tmp_path / "part"), 3)
    (kept,) = (tmp_path / "part").iterdir()
    assert kept.name.endswith("-training.npz")
    again = made(tmp_path / "part")
    began: list[int] = []
    again.register_hook("on_epoch_begin", began.append)
    notes = notes_of(again)
    found = weights(again())
    assert began == [3, 4, 5]
    assert any("goes on behind epoch 2" in note for note in notes)
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert not kept.exists()


@pytest.mark.usefixtures("each_epoch")
def test_the_sparsest_state_that_met_the_bar_is_remembered(tmp_path: Path) -> None:
    """It was in an epoch before the interruption."""

    def strict(folder: Path) -> Pruning:
        door = pruning(folder)
        scores = iter([1.0, 1.0, 1.0, 1.0, *([0.0] * 20)])
        again = iter([1.0, *([0.0] * 20)])
        source = again if (folder / "pruning-training.npz").exists() else scores
        door.eval_func = lambda model: next(source)
        return door

    whole = strict(tmp_path / "whole")
    wanted = weights(whole())
    interrupted(strict(tmp_path / "part"), 4)
    door = strict(tmp_path / "part")
    found = weights(door())
    assert door.result is not None and whole.result is not None
    assert door.result.sparsity == whole.result.sparsity
    assert 0 < door.result.sparsity.share < 0.7 and not door.result.reached
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)


@pytest.mark.usefixtures("each_epoch")
def test_another_model_or_a_damaged_file_starts_anew(tmp_path: Path) -> None:
    interrupted(pruning(tmp_path), 3)
    (kept,) = tmp_path.iterdir()
    raw = kept.read_bytes()
    for change, said in (("model", "another model"), ("target", "another"), ("file", "damaged")):
        kept.write_bytes(raw[: len(raw) // 2] if change == "file" else raw)
        door = pruning(tmp_path, target_sparsity=0.5 if change == "target" else 0.7)
        door.model = net(5) if change == "model" else net()
        began: list[int] = []
        door.register_hook("on_epoch_begin", began.append)
        notes = notes_of(door)
        door()
        assert began == list(range(EPOCHS))
        assert any(said in note for note in notes), notes


@pytest.mark.usefixtures("each_epoch")
def test_what_can_not_be_written_is_told_and_the_training_goes_on(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("in the way")
    door = pruning(tmp_path / "file")
    notes = notes_of(door)
    door()
    assert door.result is not None and door.result.sparsity.share == pytest.approx(0.7, abs=0.01)
    assert len([note for note in notes if "can't be kept" in note]) == 1


def test_short_epochs_write_nothing(tmp_path: Path) -> None:
    interrupted(pruning(tmp_path), 3)
    assert not list(tmp_path.iterdir())


@pytest.mark.usefixtures("each_epoch")
def test_a_chain_does_not_train_twice_what_was_finished(tmp_path: Path) -> None:
    def chain() -> tuple[Scheduler, list[int], Any]:
        prune, began = pruning(tmp_path / "prune"), []
        prune.register_hook("on_epoch_begin", began.append)
        distill = distilling(tmp_path / "distill")
        scheduler = Scheduler()
        scheduler.model = net()
        scheduler.append(prune, distill)
        return scheduler, began, distill

    whole, _, _ = chain()
    wanted = weights(whole())
    assert not list(tmp_path.rglob("*.npz"))
    cut, _, distill = chain()
    distill.register_hook("on_batch_begin", lambda batch: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        cut()
    again, began, _ = chain()
    found = weights(again())
    assert began == []
    assert all(torch.equal(found[name], wanted[name]) for name in wanted)
    assert not list(tmp_path.rglob("*.npz"))


SCRIPT = """
import os, signal, sys
sys.path.insert(0, {tests!r})
from pathlib import Path
from lpot.core.compress import resume
import test_training_resume as cases
resume.EVERY = 0.0
door = cases.pruning(Path({folder!r}))
began = []
def begin(epoch):
    began.append(epoch)
    if {kill} and epoch == 4:
        os.kill(os.getpid(), signal.SIGKILL)
door.register_hook("on_epoch_begin", begin)
door()
print("began", began, door.result.sparsity.share)
"""


def test_a_process_that_was_killed(tmp_path: Path) -> None:
    def run(kill: bool) -> subprocess.CompletedProcess[str]:
        tests, folder = str(Path(__file__).parent), str(tmp_path)
        script = SCRIPT.format(tests=tests, folder=folder, kill=kill)
        return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)

    assert run(True).returncode == -signal.SIGKILL
    done = run(False)
    assert done.returncode == 0, done.stderr
    assert "began [4, 5]" in done.stdout
