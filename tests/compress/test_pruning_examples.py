"""The pruning examples run to their end on real weights; here with little training."""

from __future__ import annotations

import importlib
import os
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch")
ROOT = Path(__file__).parents[2]
DATA = Path(os.environ.get("LPOT_DATA", ROOT.parent / "shared" / "data"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (DATA / "race").is_dir(), reason="LPOT_DATA has no race/"),
]


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.syspath_prepend(str(ROOT / "examples" / "pytorch" / "pruning"))

    def load(name: str) -> Any:
        sys.modules.pop(name, None)
        return importlib.import_module(name)

    return load


def test_resnet20_is_cut_fitted_distilled_and_quantized(example: Any, tmp_path: Path) -> None:
    given = ["--data", str(DATA), "--workspace", str(tmp_path), "--epochs", "4", "--photographs"]
    found = example("resnet20").main([*given, "--ratio", "0.1"])
    assert found["holds the bar"]
    assert found["pruned INT8"] >= 0.99 * found["FP32"]
    assert found["pruned"] == 0.1 and found["bytes"][1] < found["bytes"][0]


def test_minilm_is_cut_fitted_distilled_and_quantized(example: Any, tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    given = ["--data", str(DATA), "--workspace", str(tmp_path), "--epochs", "1", "--pairs", "400"]
    found = example("minilm_mrpc").main([*given, "--ratio", "0.1"])
    assert found["holds the bar"]
    assert found["pruned INT8 F1"] >= 0.99 * found["FP32 F1"]


@pytest.mark.parametrize(("sparsity", "epochs"), [(0.5, 16), (0.8, 40)])
def test_magnitude_pruning_by_yaml(
    example: Any, tmp_path: Path, sparsity: float, epochs: int
) -> None:
    given = ["--sparsity", str(sparsity), "--epochs", str(epochs)]
    (found,) = example("magnitude").main(
        ["--data", str(DATA), "--workspace", str(tmp_path), *given]
    )
    assert found["holds the bar"] and found["accuracy"] >= 0.99 * found["FP32"]
    assert found["target reached"]
    assert found["sparsity"] == pytest.approx(sparsity, abs=1e-3)


def test_a_sparsity_that_can_not_hold_the_bar(example: Any, tmp_path: Path) -> None:
    """Without the images to make up for it: the sparsest state that held the bar, told as such."""
    (found,) = example("magnitude").main(
        ["--data", str(DATA), "--workspace", str(tmp_path), "--sparsity", "0.97", "--epochs", "6"]
    )
    assert found["holds the bar"] and found["accuracy"] >= 0.99 * found["FP32"]
    assert not found["target reached"] and 0 < found["sparsity"] < 0.97
