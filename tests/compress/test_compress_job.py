"""Prune, distill and quantize a residual net under one bar; go on from what is there; reload."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("sklearn")

from tests.compress.nets import Batches, Residual, scorer, trained  # noqa: E402

import lpot  # noqa: E402

TRAIN, TEST = Batches(0, 600), Batches(600, 900)


@pytest.fixture(scope="module")
def net(gains_by_size: None) -> Any:
    torch.manual_seed(1)
    return trained(Residual(), TRAIN)


def compressed(net: Any, workspace: Path, goal: Any, **structured: Any) -> lpot.Result:
    settings = {"ratio": [0.2], "epochs": 5, "samples": 50, "learning_rate": 0.01, **structured}
    return lpot.tune(
        net,
        TRAIN,
        scorer(TEST),
        goal,
        config={
            "pruning": {"approach": {"structured": settings}},
            "tuning": {"diagnosis": True, "tensorboard": True},
        },
        train_loader=TRAIN,
        workspace=workspace,
        measure_speed=False,
    )


def test_a_pruned_net_holds_the_bar_is_smaller_and_can_be_loaded(net: Any, tmp_path: Path) -> None:
    before = {name: tensor.clone() for name, tensor in net.state_dict().items()}
    result = compressed(net, tmp_path / "w", lpot.Goal(absolute=0.5))
    assert result.met and result.recipe.repairs.pruning == 0.2
    assert any(note.startswith("pruned 20%: ") for note in result.notes)
    with np.load(tmp_path / "w" / "inspect_saved" / "low.npz") as kept:
        assert "output/fc" in kept.files and "weight/stem" in kept.files
    assert list((tmp_path / "w" / "tensorboard").rglob("events.out.tfevents.*"))
    parameters = [sum(t.numel() for t in m.parameters()) for m in (net, result.model.origin.root)]
    assert parameters[1] < parameters[0]
    again = lpot.load(result.path, module=Residual())  # of the original architecture
    assert scorer(TEST)(again.native) == result.accuracy
    assert all(torch.equal(before[name], tensor) for name, tensor in net.state_dict().items())

    rebuilt = lpot.recover(net, tmp_path / "w", result.best.number)
    assert scorer(TEST)(rebuilt.native) == result.accuracy

    rerun = compressed(net, tmp_path / "w", lpot.Goal(absolute=0.5))
    assert all(trial.recalled for trial in rerun.trials)
    assert any("trained earlier is used" in note for note in rerun.notes)


def test_a_bar_that_no_pruned_net_holds_gives_plain_int8(net: Any, tmp_path: Path) -> None:
    result = compressed(
        net, tmp_path / "w", lpot.Goal(absolute=0.02), ratio=[0.9], epochs=1, learning_rate=1e-7
    )
    assert result.met and result.recipe.repairs.pruning is None
    assert "no pruned model met the bar: the model is quantized without pruning" in result.notes
