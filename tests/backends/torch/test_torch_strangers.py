"""Modules as strangers have them: tensors from outside the module, graphs read beforehand."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import fx, nn

from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, default

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
