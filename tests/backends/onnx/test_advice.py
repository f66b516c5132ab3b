"""Advice from statistics: smoothing that changes no bit, ranges for long tails, gains by shape."""

from __future__ import annotations

import importlib
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from backends.onnx.nets import cnn, images, mlp, tokens
from lpot.backends.onnx import OnnxBackend
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.model import OnnxModel
from lpot.backends.onnx.passes.smooth_channels import smooth_channels
from lpot.backends.onnx.run import session
from lpot.core.backend import Observations
from lpot.core.files.store import load_observations, save_observations
from lpot.core.recipe import Recipe
from lpot.core.repairs import Repairs
from lpot.core.space import restrict
from search.tear import GUILTY, MENDED, Loom, Torn, outputs, sentences

BACKEND = OnnxBackend()


def prepared(torn: Torn) -> tuple[OnnxModel, Recipe, Observations]:
    model = BACKEND.load(torn.model)
    recipe = restrict(BACKEND.inspect(model), ()).default()
    return model, recipe, BACKEND.observe(model, torn.batches[:-1], (0,))[0]


@pytest.mark.parametrize("alpha", [0.35, 0.8])
def test_smoothing_changes_no_bit_of_fp32(alpha: float) -> None:
    torn = MENDED["wide stream"](0)
    model, recipe, seen = prepared(torn)
    low = [key.name for key in recipe.low_ops]
    graph, stats = smooth_channels(model.prepared, low, seen.channels, alpha)
    assert stats
    for batch in torn.batches[:2]:
        np.testing.assert_array_equal(
            outputs(model.prepared.embedded(), batch), outputs(graph.embedded(), batch)
        )


def test_smoothed_ranges_hold_what_was_seen() -> None:
    model, recipe, seen = prepared(MENDED["wide stream"](0))
    low = [key.name for key in recipe.low_ops]
    _, stats = smooth_channels(model.prepared, low, seen.channels, 0.5)
    for name, found in stats.items():
        before = seen.tensors[name.removesuffix("/smooth")]
        spans = [high - low for low, high in (found.range(), before.range())]
        assert spans[0] < spans[1]


def test_only_the_readers_in_int8_are_smoothed() -> None:
    model, _, seen = prepared(MENDED["wide stream"](0))
    graph, _ = smooth_channels(model.prepared, ["b1.value"], seen.channels, 0.5)
    reads = {node.name: node.input[0] for node in graph.nodes}
    assert reads["b1.value"].endswith("/smooth") and not reads["b1.gate"].endswith("/smooth")


def test_advice_brings_the_outputs_nearer() -> None:
    torn = MENDED["wide stream"](0)
    model, recipe, seen = prepared(torn)
    usual = torn.score(BACKEND.build(model, recipe, seen).native)
    smooth = [found for found in BACKEND.advise(model, recipe, seen) if found.repairs.smoothing]
    assert len(smooth) == 4
    assert max(torn.score(BACKEND.build(model, r, seen).native) for r in smooth) > usual + 0.1


def test_a_sound_net_gets_no_advice() -> None:
    net = Loom(0)
    x = net.relu(net.linear("x", "one", 32, 32))
    net.linear(x, "two", 32, 8)
    torn = Torn(net.make({"x": ["n", 6, 32]}, ["two.sum"]), sentences(0))
    assert list(BACKEND.advise(*prepared(torn))) == []


def test_long_tails_get_another_range() -> None:
    net = Loom(0)
    net.linear("x", "one", 32, 8)
    torn = Torn(net.make({"x": ["n", 6, 32]}, ["one.sum"]), sentences(0))
    model, recipe, seen = prepared(torn)
    name = model.prepared.nodes[-2].input[0]  # what the product reads
    for _ in range(40):  # a hundred thousand values, and one far out
        seen.tensors[name].update(np.random.default_rng(0).standard_normal(100_000))
    seen.tensors[name].update([30.0])
    changed = next(BACKEND.advise(model, recipe, seen))
    assert all(changed.ops[key].activation.algorithm != "minmax" for key in changed.low_ops)


def test_noisy_inputs_may_be_ranged_while_running() -> None:
    torn = GUILTY["loud tokens"](0)
    model, recipe, seen = prepared(torn)
    dynamic = [
        {key.name for key in found.low_ops if found.ops[key].mode == "dynamic"}
        for found in BACKEND.advise(model, recipe, seen)
    ]
    assert {"one", "two"} in dynamic
    allowed = restrict(BACKEND.inspect(model, "auto"), ())
    chosen = next(r for r in BACKEND.advise(model, recipe, seen) if r.ops != recipe.ops)
    assert all(chosen.ops[key] in allowed.choices[key] for key in chosen.low_ops)


def test_repairs_survive_disk(tmp_path: Path) -> None:
    torn = MENDED["wide stream"](1)
    model, recipe, seen = prepared(torn)
    smooth = Recipe(recipe.ops, recipe.samples, Repairs(smoothing=0.5))
    save_observations(tmp_path / "seen.npz", {0: seen})
    again = load_observations(tmp_path / "seen.npz")[0]
    first, second = (
        outputs(
            BACKEND.build(model, Recipe.from_json(smooth.to_json()), known).native, torn.batches[0]
        )
        for known in (seen, again)
    )
    np.testing.assert_array_equal(first, second)


def test_gains_by_shape(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LPOT_CACHE", str(tmp_path))
    model, recipe, seen = prepared(MENDED["residual stream"](0))
    found = BACKEND.gains(model, recipe, seen)
    assert {key.name for key in found} == {"stem", "a1", "a2", "b1", "b2", "last", "fc"}
    assert all(math.isfinite(value) for value in found.values())
    names = {key.name: value for key, value in found.items()}
    assert names["a1"] == names["b1"]  # one shape, measured once
    assert BACKEND.gains(model, recipe, seen) == found


@pytest.mark.parametrize(
    ("net", "batches", "kinds"),
    [(mlp(), tokens(), ["MatMul", "MatMul"]), (cnn(), images(), ["Gemm"])],
    ids=["MatMul", "Gemm"],
)
def test_gains_of_dynamic_products_are_those_of_what_is_built(
    net: Any, batches: Any, kinds: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LPOT_CACHE", str(tmp_path))
    model = BACKEND.load(net)
    seen = BACKEND.observe(model, batches, (0,))[0]
    recipe = restrict(BACKEND.inspect(model, "dynamic"), ()).default()
    timed: list[list[str]] = []
    exact: list[Any] = []

    def count(shape: tuple[int, ...], graph: Graph) -> float:
        ran = [node.op_type for node in graph.nodes]
        x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
        (found,) = session(graph).run(None, {"x": x})
        if len(ran) == 1:  # FP32 comes first
            exact.append(found)
            timed.append(ran)
        else:
            assert np.linalg.norm(found - exact[-1]) < 0.05 * np.linalg.norm(exact[-1])
            timed[-1].append(ran[1])
        return float(len(ran))

    monkeypatch.setattr(importlib.import_module("lpot.backends.onnx.gains"), "_time", count)
    found = BACKEND.gains(model, recipe, seen)
    assert set(found) == set(recipe.low_ops)
    assert all(value < 0 for value in found.values())  # one op in FP32, several in INT8
    assert timed == [[kind, "MatMulInteger"] for kind in kinds]
