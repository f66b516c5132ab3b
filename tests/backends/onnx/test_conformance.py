"""The promises every backend keeps, on a CNN and on a transformer-like block."""

from __future__ import annotations

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

from backends.onnx.nets import cnn, images, mlp, tokens
from lpot.backends.onnx import OnnxBackend
from lpot.testing import BackendConformance, Case


def score(model: object) -> float:
    """Any number that is the same for equal weights: the conformance tests need no more."""
    return 1.0 - 1e-6 * len(model.SerializeToString()) / 1e6  # type: ignore[attr-defined]


class TestCnn(BackendConformance):
    def case(self) -> Case:
        return Case(OnnxBackend(), cnn(), images(), score)


class TestMlp(BackendConformance):
    def case(self) -> Case:
        return Case(OnnxBackend(), mlp(), tokens(), score)


def test_cnn_has_what_it_says() -> None:
    kinds = {node.op_type for node in cnn().graph.node}
    assert {"Conv", "BatchNormalization", "Add", "MaxPool", "Gemm"} <= kinds
    assert np.isfinite(images()[0][0]).all()
