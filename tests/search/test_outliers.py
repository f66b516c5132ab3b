"""MiniLM on MRPC, its activations full of outliers: what the search makes of it."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")
pytest.importorskip("onnxruntime")

import torch

from lpot.core.results.result import Result
from lpot.jobs.tune.api import tune
from search.outliers import export, pairs, plain_minilm, torn_minilm

pytestmark = pytest.mark.slow
FRAMEWORKS = ("onnxrt_qlinearops", "pytorch")


def search(framework: str, seed: int, folder: Path, **options: Any) -> Result:
    net: Any = torn_minilm(seed)
    # A batch is a dict of inputs, in the order that the model takes them.
    data = list(pairs("dev", 408))
    if framework == "onnxrt_qlinearops":
        net = str(export(net, folder / "net.onnx"))
    return tune(
        net,
        calib=[words for words, _ in pairs("train", 96)],
        eval_loader=data,
        metric={"topk": 1},
        goal=0.01,
        framework=framework,
        workspace=folder / "workspace",
        measure_speed=False,
        **options,
    )


def test_the_torn_net_is_the_same_function() -> None:
    words, _ = next(pairs("dev", 8))
    given = {key: torch.from_numpy(value) for key, value in words.items()}
    with torch.no_grad():
        plain, torn = (net(**given)[0].numpy() for net in (plain_minilm(), torn_minilm(0)))
    assert np.abs(plain - torn).max() < 1e-3


@pytest.mark.parametrize("framework", FRAMEWORKS)
@pytest.mark.parametrize("seed", [0, 1])
def test_outliers_move_into_the_weights(framework: str, seed: int, tmp_path: Path) -> None:
    result = search(framework, seed, tmp_path)
    assert result.met and result.evaluations == 2
    assert result.float_ops == ()
    assert result.recipe.repairs.smoothing is not None


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_without_smoothing_the_readers_go_back(framework: str, tmp_path: Path) -> None:
    config = {"quantization": {"recipes": {"smooth_quant": False}}}
    result = search(framework, 0, tmp_path, config=config, strategy="basic")
    ops = sum(key.kind in ("MatMul", "Gemm", "Linear") for key in result.recipe.ops)
    assert result.met and result.evaluations <= 2 + math.ceil(math.log2(ops))
    assert 0 < len(result.float_ops) < ops
