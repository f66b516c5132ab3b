"""The promises every backend keeps, on a CNN and on a transformer."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")

if os.environ.get("LPOT_HIDDEN_OPS"):  # children of a run without quantized tensors, too
    import backends.torch.hidden_ops  # noqa: F401

from backends.torch import torch_nets as nets
from lpot.backends.torch import TorchBackend
from lpot.testing import BackendConformance, Case


def score(module: Any) -> float:
    """Any number near 1 that the weights decide: the conformance tests need no more."""
    return 1.0 - 1e-9 * sum(tensor.numel() for tensor in module.state_dict().values())


def reopen(backend: TorchBackend, path: Path) -> Any:
    return backend.restore(path, nets.Cnn())


class TestCnn(BackendConformance):
    def case(self) -> Case:
        return Case(
            TorchBackend(),
            nets.seeded(nets.Cnn()),
            nets.images(),
            score,
            reopen="backends.torch.test_torch_conformance:reopen",
        )

    @pytest.fixture(autouse=True)
    def _importable(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """The fresh process imports this file to know the architecture."""
        tests = Path(__file__).parents[2]
        monkeypatch.setenv("PYTHONPATH", f"{tests}:{tests.parent / 'src'}")


class TestBert(BackendConformance):
    def case(self) -> Case:
        pytest.importorskip("transformers")
        module, batches = nets.transformers_model("bert")
        return Case(TorchBackend(), module, batches, score, tolerance=0.2)
