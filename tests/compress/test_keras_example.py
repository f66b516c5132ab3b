"""The Keras example prunes a real CNN to 50 and 80 %, and holds the bar."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lpot
from lpot.backends import get_backend

pytest.importorskip("tensorflow")
ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "examples" / "tensorflow" / "pruning"
DATA = Path(os.environ.get("LPOT_DATA", ROOT.parent / "shared" / "data"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        not (DATA / "cifar10_keras_cnn").is_dir(), reason="LPOT_DATA has no cifar10_keras_cnn/"
    ),
]
DENSE, CONVOLUTIONS = ("dense", "dense_1"), tuple(f"conv2d_{number}" for number in (2, 3, 4, 5))


def example() -> Any:
    spec = importlib.util.spec_from_file_location("keras_magnitude", FOLDER / "magnitude.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize(("name", "whole"), [("magnitude-50", 0.5), ("magnitude-80", 0.8)])
def test_the_bar_holds_and_each_layer_is_as_sparse_as_asked_for(
    name: str, whole: float, tmp_path: Path
) -> None:
    conf = str(FOLDER / f"{name}.yaml")
    given = ["--data", str(DATA), "--workspace", str(tmp_path), "--config", conf]
    (found,) = example().main(given)
    assert found["holds the bar"] and found["target reached"]
    assert found["accuracy"] >= 0.99 * found["FP32"]
    assert found["zeros of all weights"] == pytest.approx(whole, abs=1e-3)
    asked = {f"{layer}.kernel": 0.95 for layer in DENSE}
    asked |= {f"{layer}.kernel": 0.64 for layer in CONVOLUTIONS}
    for layer in found["sparsity"].layers:
        share = 0.5 if whole == 0.5 else asked.get(layer.name, 0.0)
        assert layer.zeros == round(share * layer.total), layer.name
    again = lpot.load(found["saved as"])
    with np.load(DATA / "cifar10_keras_cnn" / "cifar10_test2000.npz") as data:
        images, labels = data["x"][1400:].astype(np.float32), data["y"][1400:].reshape(-1)
    (scores,) = get_backend("tensorflow").run(again, (images,))
    assert float((scores.argmax(1) == labels).mean()) == pytest.approx(found["accuracy"], abs=2e-3)
