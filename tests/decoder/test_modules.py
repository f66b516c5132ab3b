"""Torch modules that generate no text, with weights in few bits: they go on as ONNX."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

torch = pytest.importorskip("torch")
pytest.importorskip("onnxscript")
from torch import nn  # noqa: E402

import lpot  # noqa: E402
from lpot.backends.onnx.weight_only.guard import Guard  # noqa: E402
from lpot.core.errors import DataError  # noqa: E402

pytestmark = pytest.mark.filterwarnings("ignore")


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.a, self.b, self.c = nn.Linear(64, 128), nn.Linear(128, 128), nn.Linear(128, 5)

    def forward(self, x: Any) -> Any:
        return self.c(torch.relu(self.b(torch.relu(self.a(x)))))


def net() -> nn.Module:
    torch.manual_seed(0)
    return Mlp().eval()


def batches(count: int = 3) -> Iterator[np.ndarray]:
    draw = np.random.default_rng(0)
    return (draw.normal(size=(8, 64)).astype(np.float32) for _ in range(count))


def test_a_module_s_linears_in_few_bits(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guard, "allows", lambda *_: True)
    full, x = net(), next(batches())
    with torch.no_grad():
        truth = full(torch.tensor(x)).numpy()

    def fidelity(model: Any) -> float:
        session = ort.InferenceSession(model.SerializeToString())
        (made,) = session.run(None, {session.get_inputs()[0].name: x})
        return 1 - float(np.square(made - truth).mean() / np.square(truth).mean())

    result = lpot.tune(
        full,
        calib=batches(),  # it can be read once
        evaluate=fidelity,
        approach="weight_only",
        goal=0.05,
        config={"tuning": {"objective": "modelsize"}},
        workspace=tmp_path / "w",
        measure_speed=False,
    )
    assert result.met and result.baseline is not None
    assert result.baseline.accuracy == pytest.approx(1.0, abs=1e-6)
    assert (tmp_path / "w" / "fp32" / "model.onnx").is_file()
    assert result.sizes[1] < 0.5 * result.sizes[0]
    assert 0.9 < fidelity(result.model.native) < 1.0


def test_without_data_a_module_can_t_be_exported(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="give calib"):
        lpot.tune(net(), evaluate=lambda model: 1.0, approach="weight_only", workspace=tmp_path)
    with pytest.raises(DataError, match="yields no batches"):
        lpot.tune(net(), [], lambda model: 1.0, approach="weight_only", workspace=tmp_path)
