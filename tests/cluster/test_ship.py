"""Kits of trials reach other processes whole; weights go as buffers, not in the pickle."""

from __future__ import annotations

import io
import pickletools
from typing import Any

import numpy as np
import pytest

from lpot.backends import get_backend
from lpot.jobs.execute import dump as dumps
from lpot.jobs.execute.dump import Shipment, ship, unship

MARK = 123456.789  # as float32 it is four bytes that nothing else has
MARKED = np.full(50_000, MARK, np.float32)


def arrived(made: Shipment) -> Any:
    """What the other side gets, whose buffers are its own."""
    return unship(made.head, made.sizes, [chunk.tobytes() for chunk in made.chunks()])


def assert_apart(made: Shipment) -> None:
    """The weights are in the buffers, as they lie in memory, and nowhere in the pickle."""
    pattern = np.float32(MARK).tobytes() * 4
    assert pattern not in made.head and len(made.head) < MARKED.nbytes // 10
    assert any(pattern in bytes(part) for part in made.parts)
    for _, argument, _ in pickletools.genops(made.head):
        assert not isinstance(argument, bytes | bytearray) or len(argument) < 4096


@pytest.mark.parametrize("chunk", [1, 7, 64, 1000, 1 << 20])
def test_buffers_of_all_sizes_arrive(monkeypatch: pytest.MonkeyPatch, chunk: int) -> None:
    monkeypatch.setattr(dumps, "CHUNK", chunk)
    sizes = (0, 1, 3, 64, 65, 999, 1000, 0, 2)
    value = [np.arange(size, dtype=np.uint16) for size in sizes]
    made = ship(value)
    assert all(0 < piece.nbytes <= chunk for piece in made.chunks())
    found = arrived(made)
    assert all(np.array_equal(a, b) for a, b in zip(value, found, strict=True))
    found[3][0] = 7  # it may be written to
    assert value[3][0] == 0


def test_an_onnx_proto() -> None:
    onnx = pytest.importorskip("onnx")
    stored = onnx.numpy_helper.from_array(MARKED, "w")
    graph = onnx.helper.make_graph([], "g", [], [], [stored])
    model = onnx.helper.make_model(graph)
    made = ship({"model": model, "again": model}, get_backend("onnx").reduced)
    assert_apart(made)
    found = arrived(made)
    assert found["model"] == model and found["again"] is found["model"]


def test_a_file_in_memory() -> None:
    """Keras packs its models in one."""
    stream = io.BytesIO(MARKED.tobytes())
    stream.seek(8)
    made = ship(stream)
    assert_apart(made)
    found = arrived(made)
    assert found.tell() == 8 and found.getvalue() == stream.getvalue()


def test_a_keras_model() -> None:
    pytest.importorskip("tensorflow")
    import keras

    net = keras.Sequential([keras.layers.Input((5,)), keras.layers.Dense(10_000, use_bias=False)])
    net.layers[0].set_weights([MARKED.reshape(5, 10_000)])
    made = ship(net, get_backend("tensorflow").reduced)
    assert_apart(made)
    assert np.array_equal(arrived(made).get_weights()[0], net.get_weights()[0])


def test_a_graph_def() -> None:
    tf = pytest.importorskip("tensorflow")
    with tf.Graph().as_default() as graph:
        tf.constant(MARKED, name="w")
    made = ship(graph.as_graph_def(), get_backend("tensorflow").reduced)
    assert_apart(made)
    assert arrived(made) == graph.as_graph_def()


def test_a_torch_module(monkeypatch: pytest.MonkeyPatch) -> None:
    torch = pytest.importorskip("torch")
    monkeypatch.setattr(torch, "save", None)  # which is how torch itself would pickle storages
    net = torch.nn.Sequential(torch.nn.Linear(100, 500), torch.nn.Linear(100, 500))
    net[1].weight = net[0].weight  # tied
    net.register_buffer("view", net[0].weight.data[3])  # shares its storage
    net.register_buffer("empty", torch.empty(0))
    net.register_buffer("narrow", torch.ones(3, dtype=torch.bfloat16))
    with torch.no_grad():
        net[0].weight.fill_(MARK)
    made = ship(net, get_backend("pytorch").reduced)
    assert_apart(made)
    assert sum(made.sizes) < 1.05 * (MARKED.nbytes + 2 * 500 * 4)  # once, though held three times
    found = arrived(made)
    assert found[1].weight is found[0].weight
    assert found.state_dict().keys() == net.state_dict().keys()
    for name, value in net.state_dict().items():
        assert torch.equal(found.state_dict()[name], value), name
    with torch.no_grad():
        found[0].weight[3, 0] = 1.0  # a buffer of its own, still shared within
    assert found.view[0] == 1.0 and net.view[0] == MARKED[0]


def test_what_can_not_be_sent_is_told() -> None:
    import threading

    with pytest.raises(dumps.DUMP_ERRORS):
        ship(threading.Lock())
