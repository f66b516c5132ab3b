"""The promises every backend keeps, on a Gluon CNN and on a symbol with two inputs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("mxnet")

import mxnet as mx

from backends.mxnet.nets import cnn, images, mlp, pairs
from lpot.backends.mxnet import MxnetBackend
from lpot.testing import BackendConformance, Case


def score_block(net: Any) -> float:
    """Any number that is the same for equal weights: the conformance tests need no more."""
    output = net(mx.nd.array(images(1)[0][0])).asnumpy()
    return 1.0 + 1e-6 * float(np.tanh(np.abs(output).mean()))


def score_tuple(model: Any) -> float:
    symbol, args, auxs = model
    feeds = {name: mx.nd.array(value) for name, value in pairs(1)[0].items()}
    executor = symbol.bind(mx.cpu(), {**args, **feeds}, aux_states=auxs, grad_req="null")
    return 1.0 + 1e-6 * float(executor.forward(is_train=False)[0].asnumpy().max())


class TestCnn(BackendConformance):
    def case(self) -> Case:
        return Case(MxnetBackend(), cnn(), images(), score_block)


class TestMlp(BackendConformance):
    def case(self) -> Case:
        return Case(MxnetBackend(), mlp(), pairs(), score_tuple)
