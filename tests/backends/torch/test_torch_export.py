"""Exported models compute what the torch model computes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch

from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, default, made
from lpot.core.errors import ConfigError, DataError
from lpot.core.numerics import sqnr


def built_from(name: str, approach: Any = "static") -> tuple[Any, Any, Any]:
    model, batches, observations = made(name)
    return model, BACKEND.build(model, default(model, approach), observations), batches


def _values(inputs: Any) -> list[Any]:
    return list(inputs.values() if isinstance(inputs, dict) else inputs)


def run_onnx(path: Path, inputs: Any) -> list[np.ndarray]:
    ort = pytest.importorskip("onnxruntime")
    session = ort.InferenceSession(str(path), providers=["CPUExecutionProvider"])
    values = _values(inputs)
    names = [item.name for item in session.get_inputs()]
    return session.run(None, {n: v.numpy() for n, v in zip(names, values, strict=True)})


@pytest.mark.filterwarnings("ignore")
@pytest.mark.slow
@pytest.mark.parametrize("name", ["cnn", "bert", "recurrent"])
def test_onnx_agrees_with_torch(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript")
    onnx = pytest.importorskip("onnx")
    model, built, batches = built_from(name)
    path = built.export(tmp_path / "int8.onnx")
    kinds = [node.op_type for node in onnx.load(path).graph.node]
    assert "DequantizeLinear" in kinds
    assert "QuantizeLinear" in kinds
    truth, mine = BACKEND.run(model, batches[0])[0], BACKEND.run(built, batches[0])[0]
    theirs = run_onnx(path, batches[0])[0]
    assert sqnr(truth, theirs) > min(sqnr(truth, mine) - 6, 25)
    # Weights lie in the file as int8, and any batch is taken.
    for tensor in onnx.load(path).graph.initializer:
        assert tensor.data_type != onnx.TensorProto.FLOAT or len(tensor.dims) < 2 or name != "cnn"
    many = [torch.cat([value] * 3) for value in _values(batches[0])]
    assert len(run_onnx(path, many)[0]) == 3 * len(truth)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_pt2_agrees_with_torch(tmp_path: Path) -> None:
    model, built, batches = built_from("cnn")
    path = built.export(tmp_path / "int8.pt2")
    again = torch.export.load(str(path)).module()
    truth, mine = BACKEND.run(model, batches[0])[0], BACKEND.run(built, batches[0])[0]
    with torch.no_grad():
        theirs = again(*batches[0]).numpy()
    assert sqnr(truth, theirs) > sqnr(truth, mine) - 6


@pytest.mark.slow
def test_the_model_itself_is_not_changed_by_an_export(tmp_path: Path) -> None:
    _, built, batches = built_from("cnn")
    before = built.fingerprint(), BACKEND.run(built, batches[0])[0]
    built.export(tmp_path / "int8.pt2")
    built.__dict__.pop("_fingerprint", None)
    assert built.fingerprint() == before[0]
    np.testing.assert_array_equal(BACKEND.run(built, batches[0])[0], before[1])


def test_what_is_exported_computes_the_same() -> None:
    """The spelled-out modules themselves, without the exporters, which take long to import."""
    from lpot.backends.torch.export import Pt2Speller, spelled_out

    for name in ("cnn", "recurrent", "encoder", "shapes"):
        model, built, batches = built_from(name)
        with torch.no_grad():
            found = spelled_out(built.native, Pt2Speller())(*batches[0]).numpy()
        truth, mine = BACKEND.run(model, batches[0])[0], BACKEND.run(built, batches[0])[0]
        assert sqnr(truth, found) > min(sqnr(truth, mine) - 6, 25), name


def test_unknown_endings_and_missing_inputs_are_said(tmp_path: Path) -> None:
    model = BACKEND.load(nets.seeded(nets.Cnn()))
    with pytest.raises(DataError, match="one batch"):
        model.export(tmp_path / "x.onnx")
    with pytest.raises(ConfigError, match=r"\.onnx or \.pt2"):
        model.export(tmp_path / "x.tflite", nets.images()[0])
