"""What is known of ops without labels: found, gradients, time saved."""

from __future__ import annotations

import importlib
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, default, made

gaining = importlib.import_module("lpot.backends.torch.gains")


@pytest.mark.parametrize("name", ["cnn", "bert", "gpt2", "stubbed", "recurrent"])
def test_rank_and_curvature_speak_of_the_ops_that_ran(name: str) -> None:
    model, _, observations = made(name)
    recipe = default(model)
    found = BACKEND.rank(model, recipe, observations)
    assert set(found) == set(recipe.low_ops)
    curved = BACKEND.curvature(model, recipe, observations)
    assert curved
    assert set(curved) <= set(found)
    for value in (*found.values(), *curved.values()):
        assert np.isfinite(value)
        assert value >= 0


def torn_linear() -> torch.nn.Module:
    """The middle layer reads one channel that is a thousand times too loud."""
    module = nets.seeded(torch.nn.Sequential(*(torch.nn.Linear(16, 16) for _ in range(4))))
    with torch.no_grad():
        module[1].weight[3] *= 1000.0
        module[2].weight[:, 3] /= 1000.0
    return module


def test_the_sensitive_op_comes_first() -> None:
    model = BACKEND.load(torn_linear())
    observations = BACKEND.observe(model, [(torch.randn(64, 16),)], (0,))[0]
    # The pass would even this out: look at the ops as they are.
    assert observations.factors
    module = torn_linear()
    module.register_forward_hook(lambda *_: None)  # hooks keep the net from being read
    model = BACKEND.load(module)
    observations = BACKEND.observe(model, [(torch.randn(64, 16),)], (0,))[0]
    recipe = default(model)
    for found in (
        BACKEND.rank(model, recipe, observations),
        BACKEND.curvature(model, recipe, observations),
    ):
        assert max(found, key=lambda key: found[key]).name == "2"


def test_rank_agrees_with_curvature_roughly() -> None:
    model, _, observations = made("cnn")
    recipe = default(model)
    found = BACKEND.rank(model, recipe, observations)
    curved = BACKEND.curvature(model, recipe, observations)
    keys = list(curved)
    logs = [np.log([values[key] + 1e-12 for key in keys]) for values in (found, curved)]
    assert np.corrcoef(logs)[0, 1] > 0.3


def test_static_ops_are_timed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LPOT_CACHE", str(tmp_path))
    model, _, observations = made("cnn")
    recipe = default(model)
    found = BACKEND.gains(model, recipe, observations)
    assert set(found) == set(recipe.low_ops)
    assert all(np.isfinite(value) for value in found.values())
    monkeypatch.setattr(gaining, "_seconds", lambda run, x: pytest.fail("timed again"))
    assert BACKEND.gains(model, recipe, observations) == found


def test_a_ranking_leaves_no_hooks_and_no_gradients() -> None:
    model, _, observations = made("cnn")
    BACKEND.curvature(model, default(model), observations)
    assert all(tensor.grad is None for tensor in model.prepared.root.parameters())
    assert not any(part._forward_pre_hooks for part in model.prepared.root.modules())
