"""Decoders of transformers as ONNX: the same logits and the same text, with the cache."""

from __future__ import annotations

import json
import mmap
import re
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from decoder.nets import FAMILIES, SMALL, tiny
from lpot.backends.onnx.decoder.export import ObjectTensors, export_decoder
from lpot.backends.onnx.decoder.families import shape_of
from lpot.backends.onnx.decoder.names import Weights
from lpot.backends.onnx.decoder.write import write_decoder
from lpot.backends.onnx.load import load_graph
from lpot.backends.onnx.run import session
from lpot.core.errors import UnsupportedModel
from lpot.data.safetensors_folder import FolderTensors

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")


def exported(model: Any) -> ort.InferenceSession:
    weights = Weights(shape_of(model.config.to_dict()), ObjectTensors(model.state_dict()))
    return session(write_decoder(weights))


def feeds(opened: ort.InferenceSession, ids: np.ndarray) -> dict[str, np.ndarray]:
    found = {"input_ids": ids, "attention_mask": np.ones_like(ids)}
    for value in opened.get_inputs()[2:]:
        found[value.name] = np.zeros((len(ids), value.shape[1], 0, value.shape[3]), np.float32)
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_transformers_at_once_and_token_by_token(family: str) -> None:
    model = tiny(family)
    opened = exported(model)
    ids = np.random.default_rng(0).integers(3, 97, (2, 20))
    with torch.no_grad():
        truth = model(torch.tensor(ids)).logits.numpy()
    whole = opened.run(None, feeds(opened, ids))
    np.testing.assert_allclose(whole[0], truth, atol=2e-4 * np.abs(truth).max())
    given = feeds(opened, ids[:, :12])
    names = [value.name for value in opened.get_inputs()[2:]]
    outputs = opened.run(None, given)
    for at in range(12, 20):
        step = {"input_ids": ids[:, at : at + 1], "attention_mask": np.ones((2, at + 1), np.int64)}
        outputs = opened.run(None, {**step, **dict(zip(names, outputs[1:], strict=True))})
        np.testing.assert_allclose(outputs[0][:, 0], truth[:, at], atol=2e-4 * np.abs(truth).max())


def test_a_folder_gives_what_the_object_gives_in_any_dtype_and_in_shards(tmp_path: Path) -> None:
    model = tiny("Llama")
    model.save_pretrained(tmp_path / "whole")
    model.to(torch.bfloat16).save_pretrained(tmp_path / "halves", max_shard_size="100KB")
    state = ObjectTensors(model.state_dict())
    folder = FolderTensors(tmp_path / "halves")
    assert len(list((tmp_path / "halves").glob("*.safetensors"))) > 1
    assert set(folder) == set(state)
    for name in folder:
        np.testing.assert_array_equal(folder[name], state[name])
    assert FolderTensors(tmp_path / "whole")["lm_head.weight"].dtype == np.float32


def test_folders_that_hold_no_decoder_are_told(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match=r"no \.safetensors file"):
        FolderTensors(tmp_path)
    (tmp_path / "model.safetensors").write_bytes(b"\xff" * 20)
    with pytest.raises(UnsupportedModel, match="not a readable safetensors"):
        FolderTensors(tmp_path)
    with pytest.raises(UnsupportedModel, match=r"type 'bert'.*supported are"):
        shape_of({"model_type": "bert"})
    with pytest.raises(UnsupportedModel, match="lacks 'num_attention_heads'"):
        shape_of({"model_type": "llama"})
    with pytest.raises(UnsupportedModel, match=r"'circle'.*use default, .*yarn"):
        shape_of({"model_type": "llama", **SMALL, "rope_scaling": {"rope_type": "circle"}})


def test_no_copy_of_all_weights_is_held(tmp_path: Path) -> None:
    """Matrices stay views of the safetensors until they are written, and leave the memory again
    when a session has packed them."""
    tiny("Llama").save_pretrained(tmp_path / "net")
    config = json.loads((tmp_path / "net" / "config.json").read_text())
    made = write_decoder(Weights(shape_of(config), FolderTensors(tmp_path / "net")))
    matrices = [array for name, array in made.weights.items() if name.endswith("proj.weight")]
    assert len(matrices) == 10 and all(isinstance(_root(array), mmap.mmap) for array in matrices)
    graph, _ = load_graph(export_decoder(tmp_path / "net", tmp_path / "out"))
    before = _resident(tmp_path / "out" / "model.onnx.data")
    opened = session(graph)
    assert sum(np.sum(array) for array in graph.weights.values())  # all is read again
    read = _resident(tmp_path / "out" / "model.onnx.data")
    again = session(graph)
    assert before <= _resident(tmp_path / "out" / "model.onnx.data") < read / 4
    given = feeds(opened, np.arange(3, 20)[None])
    np.testing.assert_array_equal(opened.run(None, given)[0], again.run(None, given)[0])


def _root(array: Any) -> Any:
    while isinstance(array, np.ndarray) and array.base is not None:
        array = array.base
    return array


def _resident(path: Path) -> int:
    """KB of a mapped file that are in this process's memory."""
    smaps = Path("/proc/self/smaps")
    if not smaps.is_file():
        pytest.skip("needs /proc")
    found = re.findall(rf"{re.escape(str(path))}\n(?:.*\n)*?Rss: +(\d+) kB", smaps.read_text())
    return sum(map(int, found))
