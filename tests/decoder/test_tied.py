"""A head that is the embedding: one matrix, stored once, in FP32 and in few bits."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from decoder.nets import FAMILIES, tiny
from decoder.test_export import feeds
from lpot.backends.onnx.decoder.export import ObjectTensors
from lpot.backends.onnx.decoder.families import shape_of
from lpot.backends.onnx.decoder.names import Weights
from lpot.backends.onnx.decoder.write import write_decoder
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.passes.fold_constants import fold_constants
from lpot.backends.onnx.run import session
from lpot.backends.onnx.weight_only.emit import Stored, emit
from lpot.core.weight_only.grid import Format
from lpot.core.weight_only.nearest import round_to_nearest

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

SHAPE = (97, 64)  # of the table


def tied(monkeypatch: pytest.MonkeyPatch, tie: bool = True) -> tuple[Any, Graph]:
    monkeypatch.setitem(FAMILIES["Llama"], "tie_word_embeddings", tie)
    model = tiny("Llama")
    weights = Weights(shape_of(model.config.to_dict()), ObjectTensors(model.state_dict()))
    return model, write_decoder(weights)


def logits(graph: Graph, ids: np.ndarray) -> np.ndarray:
    opened = session(graph)
    found: np.ndarray = opened.run(["logits"], feeds(opened, ids))[0]
    return found


def in_bits(graph: Graph, table: int, head: int, symmetric: bool = True) -> Graph:
    """Embedding and head in so many bits, each rounded for itself."""
    matrix = graph.weights["embed_tokens.weight"]
    names = {n.op_type: n.name for n in graph.nodes if "embed_tokens.weight" in n.input}
    formats = {names["Gather"]: Format(table, 32), "lm_head": Format(head, 32, symmetric)}
    stored = {name: Stored(round_to_nearest(matrix, fmt)) for name, fmt in formats.items()}
    return emit(fold_constants(graph), stored)


def large(graph: Graph) -> list[str]:
    """Tensors that are as large as the table, or a packed form of it."""
    packed = {name: a for name, a in graph.weights.items() if a.dtype == np.uint8}
    codes = {name: a for name, a in packed.items() if not name.endswith("/zeros")}
    return [name for name, array in codes.items() if len(array) == SHAPE[0]]


def test_fp32_stores_the_matrix_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model, graph = tied(monkeypatch)
    assert [n for n, a in graph.weights.items() if SHAPE in (a.shape, a.shape[::-1])] == [
        "embed_tokens.weight"
    ]
    ids = np.random.default_rng(0).integers(3, 97, (2, 20))
    with torch.no_grad():
        truth = model(torch.tensor(ids)).logits.numpy()
    np.testing.assert_allclose(logits(graph, ids), truth, atol=2e-4 * np.abs(truth).max())


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("blocks", [2, 3])
@pytest.mark.parametrize(("table", "head"), [(4, 4), (8, 8), (4, 8)])
def test_codes_of_the_head_serve_as_the_table(
    monkeypatch: pytest.MonkeyPatch, table: int, head: int, blocks: int, symmetric: bool
) -> None:
    monkeypatch.setitem(FAMILIES["Llama"], "hidden_size", 32 * blocks)
    _, graph = tied(monkeypatch)
    low = in_bits(graph, table, head, symmetric)
    assert len(large(low)) == 1 and "embed_tokens.weight" not in low.weights
    ids = np.random.default_rng(0).integers(3, 97, (1, 20))
    fmt = Format(head, 32, symmetric)
    matrix = round_to_nearest(graph.weights["embed_tokens.weight"], fmt).values()
    rounded = graph.replaced(graph.nodes, {**graph.weights, "embed_tokens.weight": matrix})
    truth = logits(rounded, ids)  # the head's kernel rounds its inputs, too
    np.testing.assert_allclose(logits(low, ids), truth, atol=0.03 * np.abs(truth).max())


def test_coarser_codes_than_were_asked_for_do_not_serve(monkeypatch: pytest.MonkeyPatch) -> None:
    _, graph = tied(monkeypatch)
    assert len(large(in_bits(graph, 8, 4))) == 2


def test_matrices_that_differ_are_stored_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    _, graph = tied(monkeypatch, tie=False)
    names = {n.op_type: n.name for n in graph.nodes if "embed_tokens.weight" in n.input}
    stored = {
        names["Gather"]: round_to_nearest(graph.weights["embed_tokens.weight"], Format(8, 32)),
        "lm_head": round_to_nearest(graph.weights["lm_head.weight"].T, Format(8, 32)),
    }
    assert len(large(emit(graph, {name: Stored(each) for name, each in stored.items()}))) == 2
