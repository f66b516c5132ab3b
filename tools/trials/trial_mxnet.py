"""A small symbol, tuned."""

import tempfile

import mxnet as mx
import numpy as np

import lpot

random = np.random.default_rng(0)
net = mx.gluon.nn.HybridSequential()
net.add(mx.gluon.nn.Conv2D(8, 3, padding=1, activation="relu"), mx.gluon.nn.Dense(10))
net.initialize(mx.init.Xavier())
net.hybridize()
batches = [(random.normal(size=(8, 1, 8, 8)).astype(np.float32),) for _ in range(3)]
net(mx.nd.array(batches[0][0]))
truth = net(mx.nd.array(batches[0][0])).asnumpy().argmax(1)


def agreement(model):
    return float((model(mx.nd.array(batches[0][0])).asnumpy().argmax(1) == truth).mean())


with tempfile.TemporaryDirectory() as name:
    result = lpot.tune(net, batches, agreement, 0.2, workspace=name, measure_speed=False)
assert result.met, result
print(result)
