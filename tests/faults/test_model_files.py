"""Model files that are empty, cut, foreign or hostile: each is refused with a word that helps."""

from __future__ import annotations

import pickle
import random
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from google.protobuf.message import DecodeError
from onnx import ModelProto, TensorProto, helper, numpy_helper

import lpot
import onnx_models
from lpot.backends.onnx import OnnxBackend
from lpot.core.errors import DataError, UnsupportedModel
from lpot.core.recipe import Recipe


def load(source: Any) -> Any:
    return OnnxBackend().load(source)


def saved(model: ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    onnx.save(model, path)
    return path


# -- files ---------------------------------------------------------------------------------------


def test_a_file_that_is_not_there_names_its_neighbours(tmp_path: Path) -> None:
    saved(onnx_models.mlp(), tmp_path)
    with pytest.raises(UnsupportedModel, match=r"no such file; its folder has model\.onnx"):
        load(tmp_path / "modell.onnx")
    with pytest.raises(UnsupportedModel, match="no such file"):
        load(tmp_path / "no" / "such" / "folder.onnx")
    with pytest.raises(UnsupportedModel, match="not a regular file"):
        load(tmp_path)


def test_every_cut_of_a_file_is_refused(tmp_path: Path) -> None:
    whole = onnx_models.mlp().SerializeToString()
    path = tmp_path / "cut.onnx"
    for cut in [*range(60), *range(60, len(whole), 23), len(whole) - 1]:
        path.write_bytes(whole[:cut])
        with pytest.raises(UnsupportedModel, match=r"cut\.onnx|ONNX Runtime rejects"):
            load(path)


def test_flipped_bits_never_end_in_an_error_of_another_kind() -> None:
    """Whatever a damaged file says, it is served or refused; nothing else comes out."""
    draw = random.Random(2)
    backend = OnnxBackend()
    for maker in (onnx_models.cnn, onnx_models.with_if, onnx_models.transformer):
        proto = maker()
        whole, feed = proto.SerializeToString(), onnx_models.feeds(proto)[0]
        for _ in range(10):
            bits = bytearray(whole)
            for _ in range(draw.choice([1, 1, 2, 8])):
                bits[draw.randrange(len(bits))] = draw.choice([0, 255, 127, draw.randrange(256)])
            damaged = ModelProto()
            try:
                damaged.ParseFromString(bytes(bits))
            except DecodeError:
                continue
            try:
                model = backend.load(damaged)
                low = {info.key: info.choices[0] for info in backend.inspect(model).low()}
                observed = backend.observe(model, [feed], (0,))
                backend.run(backend.build(model, Recipe(low), observed[0]), feed)
            except (UnsupportedModel, DataError):
                pass


def _text(path: Path) -> None:
    path.write_text("model:\n  name: resnet\n")


def _zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", b"")


def _pickle(path: Path) -> None:
    path.write_bytes(pickle.dumps({"weights": [1.0]}, protocol=4))


def _lfs(path: Path) -> None:
    path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")


def _tensor(path: Path) -> None:
    path.write_bytes(numpy_helper.from_array(np.ones(9), "x").SerializeToString())


def _zeros(path: Path) -> None:
    path.write_bytes(b"\0" * 4096)


FOREIGN: dict[str, tuple[Callable[[Path], Any], str]] = {
    "empty": (Path.touch, "the file is empty"),
    "text": (_text, "model.onnx"),
    "zip": (_zip, "zip archive.*Export the model"),
    "pickle": (_pickle, "pickle, which is never opened"),
    "hdf5": (lambda path: path.write_bytes(b"\x89HDF\r\n\x1a\n"), "HDF5"),
    "git lfs": (_lfs, "git lfs pull"),
    "a protobuf of another kind": (_tensor, "model.onnx"),
    "html": (lambda path: path.write_text("<!doctype html><title>404</title>"), "model.onnx"),
    "zeros": (_zeros, "model.onnx"),
}


@pytest.mark.parametrize("kind", FOREIGN)
def test_foreign_files(tmp_path: Path, kind: str) -> None:
    write, message = FOREIGN[kind]
    path = tmp_path / "model.onnx"
    write(path)
    with pytest.raises(UnsupportedModel, match=message):
        load(path)


@pytest.mark.parametrize("source", [None, 3, b"bytes", {"graph": 1}, object(), np.zeros(3)])
def test_objects_that_are_no_model(tune: Any, source: Any) -> None:
    with pytest.raises(UnsupportedModel, match=r"can't tell the framework|given a"):
        lpot.tune(source, [], framework=None)
    with pytest.raises(
        UnsupportedModel, match=r"takes a path to a .onnx file or an onnx.ModelProto"
    ):
        load(source)


# -- graphs --------------------------------------------------------------------------------------


def test_graphs_without_nodes_or_outputs() -> None:
    with pytest.raises(UnsupportedModel, match="no nodes"):
        load(ModelProto())
    model = onnx_models.mlp()
    del model.graph.output[:]
    with pytest.raises(UnsupportedModel, match="no outputs"):
        load(model)


def test_graphs_whose_names_do_not_fit_together() -> None:
    model = onnx_models.mlp()
    model.graph.output[0].name = "nowhere"
    with pytest.raises(UnsupportedModel, match="'nowhere' is not produced by any node"):
        load(model)
    model = onnx_models.mlp()
    model.graph.node[1].output[0] = model.graph.node[0].output[0]
    with pytest.raises(UnsupportedModel, match="produced twice"):
        load(model)
    model = onnx_models.mlp()
    model.graph.node[1].input[0] = "nobody"
    with pytest.raises(UnsupportedModel, match="ONNX Runtime rejects"):
        load(model)
    model = onnx_models.mlp()
    model.graph.node[0].input[0] = model.graph.node[2].output[0]
    with pytest.raises(UnsupportedModel, match="reads its own output"):
        load(model)


def test_nodes_in_any_order_are_served(tune: Any) -> None:
    model, turned = onnx_models.cnn(), onnx_models.cnn()
    del turned.graph.node[:]
    turned.graph.node.extend(reversed(model.graph.node))
    judge = onnx_models.fidelity(model, onnx_models.feeds(model))
    result = tune(turned, evaluate=judge)
    assert result.met is True
    assert judge(result.path) == tune(model, evaluate=judge, new_run=True).accuracy


def test_ops_that_no_kernel_knows() -> None:
    model = onnx_models.mlp()
    model.graph.node[0].op_type = "Convolute"
    with pytest.raises(UnsupportedModel, match="ONNX Runtime rejects"):
        load(model)
    model.graph.node[0].domain = "com.example"
    with pytest.raises(UnsupportedModel, match="ONNX Runtime rejects"):
        load(model)


def test_weights_that_are_not_what_they_say() -> None:
    for change in (
        lambda tensor: tensor.dims.append(7),
        lambda tensor: setattr(tensor, "raw_data", tensor.raw_data[:-3]),
        lambda tensor: setattr(tensor, "data_type", 99),
        lambda tensor: tensor.dims.__setitem__(0, -1),
    ):
        model = onnx_models.mlp()
        change(model.graph.initializer[0])
        with pytest.raises(UnsupportedModel, match=r"w0.*damaged|refuses"):
            load(model)


def test_sparse_weights_are_read() -> None:
    model = onnx_models.mlp()
    dense = model.graph.initializer.pop(0)
    truth = numpy_helper.to_array(dense)
    (places,) = np.nonzero(truth.ravel())
    values = helper.make_tensor(dense.name, TensorProto.FLOAT, [places.size], truth[truth != 0])
    indices = helper.make_tensor("places", TensorProto.INT64, [places.size], places)
    sparse = helper.make_sparse_tensor(values, indices, truth.shape)
    model.graph.sparse_initializer.append(sparse)
    np.testing.assert_array_equal(load(model).graph.weights[dense.name], truth)
