"""Weights in files of their own: read where they are sound, never followed out of the folder."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto, helper

import lpot
import onnx_models
from lpot.backends.onnx import OnnxBackend
from lpot.core.errors import UnsupportedModel


def load(source: Any) -> Any:
    return OnnxBackend().load(source)


@pytest.fixture
def external(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    return onnx_models.save_external(onnx_models.mlp(), folder / "model.onnx")


def edit(path: Path, **entries: str) -> None:
    model = onnx.load(path, load_external_data=False)
    for item in model.graph.initializer[0].external_data:
        if item.key in entries:
            item.value = entries[item.key]
    onnx.save(model, path)


def test_external_data_are_read(external: Path, tune: Any) -> None:
    model = onnx_models.mlp()
    data = onnx_models.feeds(model)
    apart = tune(external, data, onnx_models.fidelity(model, data))
    whole = tune(model, data, onnx_models.fidelity(model, data), new_run=True)
    assert apart.path.read_bytes() == whole.path.read_bytes()
    assert load(external).fingerprint() == load(model).fingerprint()


@pytest.mark.parametrize(
    "location",
    [
        "../weights.bin",
        "a/../../weights.bin",
        "",
        "..",
        ".",
        "a\\b",
        "weights.bin\0",
        "/etc/hostname",
    ],
)
def test_locations_that_lead_out(external: Path, location: str) -> None:
    external.with_name("weights.bin").rename(external.parent.parent / "weights.bin")
    edit(external, location=location)
    with pytest.raises(UnsupportedModel, match="external data of 'w0'"):
        load(external)


def test_an_absolute_location_inside_the_folder_is_refused_too(external: Path) -> None:
    edit(external, location=str(external.with_name("weights.bin")))
    with pytest.raises(UnsupportedModel, match="must be a relative path"):
        load(external)


def test_links_out_of_the_folder(external: Path, tmp_path: Path) -> None:
    inside, outside = external.with_name("weights.bin"), tmp_path / "secret.bin"
    inside.rename(outside)
    inside.symlink_to(outside)
    with pytest.raises(UnsupportedModel, match="symbolic link"):
        load(external)
    inside.unlink()
    os.link(outside, inside)
    with pytest.raises(UnsupportedModel, match="one link"):
        load(external)
    inside.unlink()
    (tmp_path / "elsewhere").mkdir()
    outside.rename(tmp_path / "elsewhere" / "weights.bin")
    (external.parent / "sub").symlink_to(tmp_path / "elsewhere")
    edit(external, location="sub/weights.bin")
    with pytest.raises(UnsupportedModel, match="symbolic link"):
        load(external)


def test_what_is_no_file(external: Path) -> None:
    inside = external.with_name("weights.bin")
    inside.unlink()
    with pytest.raises(UnsupportedModel, match=r"'weights.bin' is missing beside the model"):
        load(external)
    inside.mkdir()
    with pytest.raises(UnsupportedModel, match="regular file"):
        load(external)
    inside.rmdir()
    os.mkfifo(inside)
    with pytest.raises(UnsupportedModel, match="regular file"):
        load(external)


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": "-4"},
        {"offset": "99999999"},
        {"offset": "1e3"},
        {"length": "4"},
        {"length": "-1"},
        {"length": "99999999999999999999"},
        {"length": "many"},
        {"offset": "18446744073709551615"},
    ],
)
def test_extents_that_do_not_fit(external: Path, entries: dict[str, str]) -> None:
    edit(external, **entries)
    with pytest.raises(UnsupportedModel, match="external data of 'w0'"):
        load(external)


def test_a_cut_data_file(external: Path) -> None:
    inside = external.with_name("weights.bin")
    inside.write_bytes(inside.read_bytes()[:-1])
    with pytest.raises(UnsupportedModel, match=r"do not fit into 'weights.bin'"):
        load(external)


def test_a_proto_without_its_file_asks_for_the_path(external: Path) -> None:
    model = onnx.load(external, load_external_data=False)
    with pytest.raises(UnsupportedModel, match="given without a path"):
        load(model)


def test_a_folder_that_is_a_link_itself_is_fine(external: Path, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(external.parent)
    assert load(tmp_path / "link" / "model.onnx").fingerprint() == load(external).fingerprint()


def inner(location: str, place: str) -> ModelProto:
    """A weight kept in a file by a Constant node, by a branch of an If, by a function's body."""
    model = onnx_models.with_if()
    tensor = TensorProto(name="far", data_type=TensorProto.FLOAT, dims=[8, 8])
    tensor.data_location = TensorProto.EXTERNAL
    for key, value in {"location": location, "offset": "0", "length": "256"}.items():
        tensor.external_data.add(key=key, value=value)
    constant = helper.make_node("Constant", [], ["far"], value=tensor)
    if place == "branch":
        branch = next(node for node in model.graph.node if node.op_type == "If").attribute[0].g
        branch.initializer.append(tensor)
        branch.node[0].input[1] = "far"
        return model
    if place == "function":
        opset = helper.make_opsetid("", 17)
        made = helper.make_function("mine", "Far", [], ["far"], [constant], [opset])
        model.functions.append(made)
        model.opset_import.append(helper.make_opsetid("mine", 1))
        constant = helper.make_node("Far", [], ["far"], domain="mine")
    model.graph.node.insert(0, constant)
    model.graph.node[1].input[1] = "far"
    return model


@pytest.mark.parametrize("place", ["constant", "branch", "function"])
def test_external_data_anywhere_in_a_model_are_checked_alike(
    tmp_path: Path, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    data = np.random.default_rng(0).standard_normal((8, 8)).astype(np.float32)
    (tmp_path / "secret.bin").write_bytes(data.tobytes())
    path = folder / "model.onnx"
    path.write_bytes(inner("../secret.bin", place).SerializeToString())
    with pytest.raises(UnsupportedModel, match="external data of 'far'"):
        load(path)
    monkeypatch.chdir(tmp_path)  # a file beside the process is not a file beside the model
    path.write_bytes(inner("secret.bin", place).SerializeToString())
    with pytest.raises(UnsupportedModel, match="missing beside the model"):
        load(path)
    (folder / "secret.bin").write_bytes(data.tobytes())
    model = load(path)
    feed = onnx_models.feeds(onnx_models.with_if())[0]
    assert np.isfinite(model.backend.run(model, feed)[0]).all()


@pytest.mark.slow
def test_a_model_over_two_gigabytes(tmp_path: Path) -> None:
    """A sparse file of zeros stands for the weights: it takes no room on the disk."""
    rows, columns = 35_000, 16_000  # 2.24 GB of float32
    net = onnx_models.Net()
    x = net.input("x", ["n", rows])
    model = net.model(net.op("MatMul", [net.op("MatMul", [x, "big"], name="big"), "small"]))
    for name, dims, offset in (
        ("big", (rows, columns), 0),
        ("small", (columns, 1), 4 * rows * columns),
    ):
        tensor = TensorProto(name=name, data_type=TensorProto.FLOAT, dims=dims)
        tensor.data_location = TensorProto.EXTERNAL
        length = 4 * dims[0] * dims[1]
        entries = {"location": "big.bin", "offset": str(offset), "length": str(length)}
        for key, value in entries.items():
            tensor.external_data.add(key=key, value=value)
        model.graph.initializer.append(tensor)
    path = tmp_path / "big.onnx"
    path.write_bytes(model.SerializeToString())
    with (tmp_path / "big.bin").open("wb") as stream:
        stream.truncate(4 * columns * (rows + 1))
        stream.seek(4 * 12345)
        stream.write(np.float32(1.5).tobytes())
    seen = []

    def judge(given: Any) -> float:
        seen.append(given)
        return 1.0

    data = [np.ones((2, rows), np.float32)]
    options: dict[str, Any] = {"workspace": tmp_path / "ws", "measure_speed": False}
    result = lpot.tune(path, data, judge, **options)
    assert result.met is True
    assert seen[0] == str(path)  # over 2 GB eval_func gets a path
    assert result.sizes is not None and result.sizes[0] > 2**31 > result.sizes[1]
