"""The promises every backend keeps, on a CNN and on a transformer block."""

from __future__ import annotations

from typing import Any

import pytest

pytest.importorskip("tensorflow")

from backends.tensorflow.nets import block, images, little, rows
from lpot.backends.tensorflow import TensorflowBackend
from lpot.testing import BackendConformance, Case


def score(graph: Any) -> float:
    """Any number that is the same for equal graphs: the conformance tests need no more."""
    return 1.0 - 1e-6 * len(graph.get_operations())


class TestCnn(BackendConformance):
    def case(self) -> Case:
        return Case(TensorflowBackend(), little(), images(2), score)


class TestBlock(BackendConformance):
    def case(self) -> Case:
        return Case(TensorflowBackend(), block(), rows(2), score)
