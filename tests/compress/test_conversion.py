"""Models trained with fake quantization by other tools become INT8."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpot.core.errors import ConfigError, UnsupportedModel
from lpot.experimental import ModelConversion

CONF = {"tuning": {"accuracy_criterion": {"relative": 0.5, "really": True}}}


def test_a_torch_model_with_fake_quant(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    pytest.importorskip("torch.ao.nn.qat")
    from torch import nn

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch.ao import quantization as ao

        torch.manual_seed(0)
        net = nn.Sequential(
            ao.QuantStub(),
            nn.Conv2d(1, 4, 3),
            nn.BatchNorm2d(4),
            nn.ReLU(),
            nn.Flatten(),
            nn.Linear(144, 10),
            ao.DeQuantStub(),
        ).train()
        net = ao.fuse_modules_qat(net, [["1", "2", "3"]])
        net.qconfig = ao.get_default_qat_qconfig("x86")
        fake = ao.prepare_qat(net)
        data = np.random.default_rng(0).normal(size=(32, 1, 8, 8)).astype(np.float32)
        for _ in range(3):
            fake(torch.tensor(data))
        fake.eval()
        with torch.no_grad():
            truth = fake(torch.tensor(data)).argmax(1)
    converter = ModelConversion(
        {**CONF, "tuning": {**CONF["tuning"], "workspace": {"path": str(tmp_path)}}}
    )
    converter.model, converter.calib_dataloader = fake, [data]
    converter.measure_speed = False
    converter.eval_func = lambda model: float(
        (model(torch.tensor(data)).argmax(1) == truth).float().mean()
    )
    model = converter()
    assert model.is_quantized and converter.result.accuracy > 0.7
    with pytest.raises(UnsupportedModel, match="contains no fake quantization"):
        converter.model = nn.Linear(2, 2)
        converter()
    converter.source = "PTQ"
    with pytest.raises(ConfigError, match="expected 'QAT'"):
        converter()


def test_a_tensorflow_graph_with_fake_quant() -> None:
    tf = pytest.importorskip("tensorflow")
    from lpot.backends import get_backend

    draw = np.random.default_rng(0)
    graph = tf.Graph()
    with graph.as_default():
        x = tf.compat.v1.placeholder(tf.float32, (None, 4), "x")
        fake = tf.quantization.fake_quant_with_min_max_args(x, -3, 3, name="fake")
        y = tf.linalg.matmul(fake, draw.normal(size=(4, 3)).astype(np.float32), name="y")
        tf.identity(tf.quantization.fake_quant_with_min_max_args(y, -9, 9), name="out")
    backend: Any = get_backend("tensorflow")
    plain = backend.without_fake_quant(graph)
    assert not any(node.op.startswith("FakeQuant") for node in plain.node)
    data = draw.normal(size=(8, 4)).astype(np.float32)
    before, after = (backend.run(backend.load(each), (data,))[0] for each in (graph, plain))
    assert 0 < np.abs(before - after).max() < 0.3
    with pytest.raises(UnsupportedModel, match="no fake-quant nodes"):
        backend.without_fake_quant(plain)
