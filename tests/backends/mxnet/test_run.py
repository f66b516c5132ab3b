"""Batches of every form, and what is said of those that do not fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

pytest.importorskip("mxnet")

import mxnet as mx

from backends.mxnet.nets import cnn, dense, images, mlp, pairs, with_params
from lpot.backends.mxnet import MxnetBackend
from lpot.core.calibration import Calibration
from lpot.core.errors import DataError

BACKEND = MxnetBackend()


def test_arrays_of_every_kind_give_the_same() -> None:
    model = BACKEND.load(cnn())
    batch = images(1)[0][0]
    (truth,) = BACKEND.run(model, (batch,))
    for given in (mx.nd.array(batch), batch.astype(np.float64), batch.tolist()):
        np.testing.assert_array_equal(BACKEND.run(model, (given,))[0], truth)
    np.testing.assert_array_equal(BACKEND.run(model, {"data": batch})[0], truth)


def test_batches_may_change_their_size() -> None:
    model = BACKEND.load(cnn())
    batch = images(1)[0][0]
    (truth,) = BACKEND.run(model, (batch,))
    for size in (1, 2, 3, 5, 8, 7, 1):
        (found,) = BACKEND.run(model, (batch[:size],))
        np.testing.assert_allclose(found, truth[:size], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("kind", ["numpy", "ndarray", "gluon", "iterator"])
def test_loaders_of_every_kind_calibrate_alike(kind: str) -> None:
    data = np.concatenate([batch for (batch,) in images()])
    labels = np.arange(len(data), dtype=np.float32)
    loaders: dict[str, Any] = {
        "numpy": [(data[:16], labels[:16]), (data[16:], labels[16:])],
        "ndarray": [(mx.nd.array(data[:16]), 0), (mx.nd.array(data[16:]), 0)],
        "gluon": mx.gluon.data.DataLoader(mx.gluon.data.ArrayDataset(data, labels), batch_size=16),
        "iterator": mx.io.NDArrayIter(data, labels, batch_size=16),
    }
    model = BACKEND.load(cnn())
    calibration = Calibration(loaders[kind], model.input_names)
    found = BACKEND.observe(model, calibration.batches((0,)), (0,))[0]
    assert found.samples == len(data)
    assert found.tensors["data"].minimum == pytest.approx(float(data.min()))
    assert calibration.first.labels is not None


@pytest.mark.parametrize(
    ("batch", "said"),
    [
        ((), r"has 1 input\(s\) \(data\), but 0 were given"),
        ({"images": np.zeros((1, 1, 8, 8))}, r"'data' is missing; given: \['images'\]"),
        ((np.zeros((1, 1, 8, 8), np.uint8),), r"expects float32, got uint8"),
        ((np.zeros((1, 3, 8, 8), np.float32),), r"parameter 'net_conv0_weight' would have to be"),
        ((np.zeros((1, 8), np.float32),), r"does not fit the model"),
        (([[1.0], [1.0, 2.0]],), r"'data' is not one array|expects float32"),
    ],
)
def test_a_batch_that_does_not_fit_says_why(batch: Any, said: str) -> None:
    with pytest.raises(DataError, match=said):
        BACKEND.run(BACKEND.load(cnn()), batch)


def test_two_inputs_are_told_apart_by_name() -> None:
    model = BACKEND.load(mlp())
    batch = pairs(1)[0]
    with pytest.raises(DataError, match="does not fit"):
        BACKEND.run(model, (batch["right"], batch["left"]))


def test_ids_may_be_integers() -> None:
    ids = mx.sym.var("ids")
    table = mx.sym.Embedding(ids, input_dim=10, output_dim=4, name="table")
    model = BACKEND.load(with_params(dense(table, "only", 3), ids=(2, 5)))
    given = np.arange(10).reshape(2, 5)
    (found,) = BACKEND.run(model, (given,))
    np.testing.assert_array_equal(found, BACKEND.run(model, (given.astype(np.float32),))[0])
