"""Weights kept as float16 in the file: where asked for, or where there is no bf16."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

import lpot
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.passes.store_halves import store_halves
from lpot.demo import demo_data, demo_model_path
from lpot.experimental import MixedPrecision


@pytest.mark.parametrize(("word", "said"), [("fp16", "weights are"), ("bf16", "bf16 is not")])
def test_the_file_is_half_as_large(
    word: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    door = MixedPrecision()
    door.model, door.precisions, door.measure_speed = str(demo_model_path()), word, False
    model = door()
    assert door.result is not None
    (note,) = [note for note in door.result.notes if "stored as fp16" in note]
    assert note.startswith(said) and "makes nothing faster" in note
    assert "FP16" in repr(model)
    saved = model.save(tmp_path / "half.onnx")
    kinds = {tensor.data_type for tensor in onnx.load(saved).graph.initializer}
    assert onnx.TensorProto.FLOAT16 in kinds
    assert saved.stat().st_size < 0.6 * Path(demo_model_path()).stat().st_size
    images = demo_data().images[:16]
    full, half = (lpot.load(path)(images)[0] for path in (demo_model_path(), saved))
    assert np.abs(full - half).max() < 0.02 * np.abs(full).max()


@pytest.mark.parametrize(
    ("array", "halved"),
    [
        (np.ones((8, 8), np.float32), True),
        (np.full((8, 8), 1e6, np.float32), False),  # beyond float16
        (np.ones((2, 2), np.float32), False),  # not worth a cast
        (np.ones((8, 8), np.int64), False),
    ],
    ids=["plain", "huge", "small", "integers"],
)
def test_what_is_stored_so(array: np.ndarray, halved: bool) -> None:
    node = onnx.helper.make_node("Add", ["x", "w"], ["y"], name="sum")
    twice = onnx.helper.make_node("Mul", ["y", "w"], ["z"], name="product")
    header = onnx.helper.make_model(onnx.helper.make_graph([], "g", [], []))
    header.graph.output.append(onnx.helper.make_tensor_value_info("z", 1, None))
    graph = Graph(header, (node, twice), {"w": array})
    made, stored = store_halves(graph, {"sum", "product"})
    assert stored == (frozenset({"sum", "product"}) if halved else frozenset())
    assert [each.op_type for each in made.nodes].count("Cast") == int(halved)  # one for both
    assert node.input[1] == "w"  # the source is as it was
