"""Decoders read on behind a cache that stays in place, as they do behind one that is copied."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

pytest.importorskip("torch")
pytest.importorskip("transformers")

from decoder.nets import FAMILIES, tiny
from lpot.backends import export_decoder, get_backend
from lpot.core.backend import Caching, ModelSpec
from lpot.core.errors import DataError
from lpot.core.model import Model
from lpot.jobs.decoder.reading import reader

IDS = np.random.default_rng(0).integers(3, 97, (2, 24))


def loaded(family: str, folder: Path, watched: str = "") -> Model:
    """The decoder; with one more output, no cache can stay in place."""
    proto = onnx.load(export_decoder(tiny(family), folder))
    if watched:
        value = helper.make_tensor_value_info(watched, TensorProto.FLOAT, None)
        proto.graph.output.append(value)
    return get_backend("onnx").load(proto, ModelSpec())


def is_in_place(model: Model) -> bool:
    assert isinstance(model.backend, Caching)
    return model.backend.in_place(model, 1, 8) is not None


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_text_in_pieces_is_read_as_a_whole(family: str, tmp_path: Path) -> None:
    model = loaded(family, tmp_path / "one")
    copied = loaded(family, tmp_path / "other", watched="embedded")
    assert is_in_place(model) and not is_in_place(copied)
    whole = reader(model, 2, 24).call(IDS, 0)().copy()
    # Of several rows the runtime reads on by one token at a time.
    pieces = {1: ((0, 9), (9, 10), (10, 11), (11, 24)), 2: ((0, 9), (9, 10), (10, 11))}
    for each in (model, copied):
        for rows, parts in pieces.items():
            reading = reader(each, rows, 40)  # more room than is used
            for start, end in parts:
                part = reading.call(IDS[:rows, start:end], start)()
                np.testing.assert_allclose(part, whole[:rows, start:end], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_a_long_prompt_is_read_in_pieces(
    family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = loaded(family, tmp_path)
    whole = reader(model, 1, 30).call(IDS[:1], 0)().copy()
    monkeypatch.setattr("lpot.jobs.decoder.reading.PIECE", 7)
    reading = reader(model, 1, 30)
    call = reading.call(IDS[:1], 0)
    for _ in range(2):  # what is timed is called again and again
        last = call()
        assert last.shape[1] == 3
        np.testing.assert_allclose(last, whole[:, 21:], rtol=1e-3, atol=1e-3)
    with pytest.raises(DataError, match="room for 30 tokens"):
        reader(model, 1, 30).call(np.tile(IDS[:1], 2), 0)()


def test_what_the_runtime_refuses_is_told(tmp_path: Path) -> None:
    reading = reader(loaded("Llama", tmp_path), 2, 24)
    reading.call(IDS[:, :9], 0)()
    with pytest.raises(DataError, match="batch_size must be 1"):
        reading.call(IDS[:, 9:12], 9)()


def test_a_call_may_be_repeated(tmp_path: Path) -> None:
    model = loaded("Llama", tmp_path)
    reading = reader(model, 2, 12)
    reading.call(IDS[:, :9], 0)()
    again = reading.call(IDS[:, 9:10], 9)
    first = again().copy()
    np.testing.assert_array_equal(again(), first)


def test_more_tokens_than_there_is_room_for_are_told(tmp_path: Path) -> None:
    reading = reader(loaded("Llama", tmp_path), 2, 8)
    with pytest.raises(DataError, match=r"room for 8 tokens.*9"):
        reading.call(IDS[:, :9], 0)


def test_caches_in_another_type_are_copied(tmp_path: Path) -> None:
    model = loaded("Llama", tmp_path)
    proto = model.native
    for value in (*proto.graph.input[2:], *proto.graph.output[1:]):
        value.type.tensor_type.elem_type = TensorProto.FLOAT16
    from lpot.backends.onnx.decoder.in_place import caches_of
    from lpot.backends.onnx.load import load_graph

    assert caches_of(load_graph(proto)[0]) == ()
