"""The torn nets on other frameworks: met within 2 + log2(ops) evaluations, the guilty named."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from lpot.core.goal import Goal
from lpot.core.results.result import Result
from lpot.jobs.tune.api import tune
from search.tear import GUILTY, MENDED, Torn
from search.tear_more import GUILTY_MORE, MENDED_MORE

ALL_GUILTY = {**GUILTY, **GUILTY_MORE}
NETS = {**MENDED, **MENDED_MORE, **ALL_GUILTY}
# What is mended on every framework; elsewhere than on ONNX the others may cost a few ops.
WHOLE = ("perceptron", "giant channel", "query outliers")
QUICK = ("depthwise chain", "branches", "giant channel", "stubborn layer", "loud tokens")
# Layers that the converter to TensorFlow does not know.
NOT_IN_TENSORFLOW = ("grouped", "dense", "flattened", "leaky", "rms outliers")
KINDS = ("Conv2d", "Linear", "Conv2D", "MatMul", "DepthwiseConv2dNative")

Outputs = Callable[[Any, np.ndarray], np.ndarray]
Twin = tuple[Any, Outputs, list[tuple[np.ndarray]]]


def in_torch(torn: Torn) -> Twin:
    torch = pytest.importorskip("torch")
    from search.as_torch import as_torch

    torch.set_num_threads(1)

    def outputs(module: Any, batch: np.ndarray) -> np.ndarray:
        with torch.no_grad():
            return np.asarray(module(torch.from_numpy(batch)))

    return as_torch(torn.model), outputs, torn.batches


def in_tensorflow(torn: Torn) -> Twin:
    pytest.importorskip("tensorflow")
    from lpot.backends.tensorflow.runtime import v1
    from search.as_tensorflow import as_tensorflow, turned

    def outputs(model: Any, batch: np.ndarray) -> np.ndarray:
        with v1.Session(graph=getattr(model, "graph", model)) as session:
            return np.asarray(session.run("out:0", {"x:0": batch}))

    return as_tensorflow(torn.model), outputs, [(turned(batch[0]),) for batch in torn.batches]


FRAMEWORKS = {"pytorch": in_torch, "tensorflow": in_tensorflow}
CASES = [
    pytest.param(
        *(word, name, seed),
        marks=() if word == "pytorch" and name in QUICK and not seed else pytest.mark.slow,
    )
    for word in FRAMEWORKS
    for name in NETS
    for seed in (0, 1)
    if word == "pytorch" or name not in NOT_IN_TENSORFLOW
]


def search(framework: str, torn: Torn, folder: Path) -> Result:
    model, outputs, batches = FRAMEWORKS[framework](torn)
    (unseen,) = batches[-1]
    truth = outputs(model, unseen)

    def score(given: Any) -> float:
        off = outputs(given, unseen) - truth
        # Channels of a head count the same, however small their values are.
        axes = tuple(range(truth.ndim - 1)) if truth.ndim == 4 else None
        return 1.0 - float(np.sqrt((off**2).sum(axes) / (truth**2).sum(axes)).mean())

    return tune(
        model,
        calib=batches[:-1],
        evaluate=score,
        goal=Goal(absolute=0.1),
        framework=framework,
        workspace=folder,
        measure_speed=False,
    )


@pytest.mark.parametrize(("framework", "name", "seed"), CASES)
def test_within_the_bound(framework: str, name: str, seed: int, tmp_path: Path) -> None:
    torn = NETS[name](seed)
    result = search(framework, torn, tmp_path)
    ops = sum(key.kind in KINDS for key in result.recipe.ops)
    assert result.met and result.evaluations <= 2 + math.ceil(math.log2(ops))
    assert len(result.float_ops) < ops
    if name in WHOLE:
        assert result.float_ops == () and result.evaluations == 2
    if name in ALL_GUILTY:
        assert set(result.float_ops) <= torn.guilty
        assert result.float_ops or result.evaluations == 2


@pytest.mark.parametrize(
    "framework", ["pytorch", pytest.param("tensorflow", marks=pytest.mark.slow)]
)
def test_the_twins_are_the_same_function(framework: str) -> None:
    from search.tear import outputs as exact

    for name, make in NETS.items():
        if framework == "tensorflow" and name in NOT_IN_TENSORFLOW:
            continue
        torn = make(0)
        model, outputs, batches = FRAMEWORKS[framework](torn)
        truth, given = exact(torn.model, torn.batches[0]), outputs(model, batches[0][0])
        if given.shape != truth.shape:
            given = given.transpose(0, 3, 1, 2)
        assert np.abs(given - truth).max() <= 1e-4 * np.abs(truth).max(), name
