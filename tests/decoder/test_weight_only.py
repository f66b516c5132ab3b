"""`approach: weight_only` on ONNX graphs: formats, kernels, rounding on disk, sensitivity."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from decoder.nets import small_net, tiny
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.run import file_session, session
from lpot.backends.onnx.segments import cut
from lpot.backends.onnx.weight_only import WeightOnlyBackend, Wishes
from lpot.backends.onnx.weight_only.emit import Stored, emit
from lpot.backends.onnx.weight_only.formats import format_of, label, product_choices
from lpot.backends.onnx.weight_only.guard import Guard, _Lone
from lpot.backends.onnx.weight_only.kept import formats
from lpot.backends.onnx.weight_only.rounding import CHANCE
from lpot.backends.onnx.weight_only.sensitivity import divergence
from lpot.core.errors import UnsupportedModel
from lpot.core.recipe import FP32, Recipe
from lpot.core.space import restrict
from lpot.core.weight_only.grid import Format
from lpot.core.weight_only.nearest import round_to_nearest


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LPOT_CACHE", str(tmp_path / "cache"))


def _ids(count: int = 4) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(1)
    return [{"ids": rng.integers(0, 1200, (1, 32))} for _ in range(count)]


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> WeightOnlyBackend:
    """Kernels are trusted: on ops this small none of them pays."""
    monkeypatch.setattr(Guard, "allows", lambda *given: True)
    return WeightOnlyBackend(Wishes(bits=(2, 3, 4, 8)))


@pytest.mark.parametrize("bits", (2, 3, 4, 8))
@pytest.mark.parametrize("group", (0, 16, 32))
@pytest.mark.parametrize("symmetric", (True, False))
def test_kernels_multiply_with_the_values_that_the_codes_stand_for(
    bits: int, group: int, symmetric: bool
) -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((48, 70)).astype(np.float32)  # 70 is no multiple of a group
    x = rng.standard_normal((5, 70)).astype(np.float32)
    given = helper.make_tensor_value_info("x", TensorProto.FLOAT, [None, 70])
    out = helper.make_tensor_value_info("y", TensorProto.FLOAT, None)
    header = helper.make_model(
        helper.make_graph([], "g", [given], [out]), opset_imports=[helper.make_opsetid("", 17)]
    )
    header.ir_version = 8
    node = helper.make_node("MatMul", ["x", "w"], ["y"], name="op")
    graph = Graph(header, (node,), {"w": weight.T.copy()})
    stored = Stored(round_to_nearest(weight, Format(bits, group, symmetric)))
    (found,) = session(emit(graph, {"op": stored})).run(None, {"x": x})
    truth = x @ stored.values().T
    np.testing.assert_allclose(found, truth, atol=0.03 * np.abs(truth).max())


def test_every_op_with_a_matrix_has_formats_and_the_others_a_reason(
    backend: WeightOnlyBackend,
) -> None:
    model = backend.load(small_net())
    ops = {key.name: info for key, info in backend.inspect(model).ops.items()}
    words = [label(choice) for choice in ops["first"].choices]
    assert words[0] == "int2-sym-g32-learned" and words[-1] == "fp32"
    assert any(word.startswith("dynamic") for word in words)
    assert [label(choice) for choice in ops["embed"].choices] == [
        "int4-sym-g32-rtn",
        "int8-sym-g32-rtn",
        "fp32",
    ]
    assert ops["second"].can_be_low and "no weight" in ops["bend"].reason


def test_a_mix_of_formats_runs_and_fewer_bits_do_more_harm(
    backend: WeightOnlyBackend, tmp_path: Path
) -> None:
    model = backend.load(small_net())
    space = restrict(backend.inspect(model), ())
    observations = backend.observe(model, _ids(), (0,))[0]
    backend.keep_in(tmp_path / "weights")
    tradeoffs = backend.tradeoffs(model, space.choices, observations)
    for options in tradeoffs.values():
        by_bits = {o.config.weight.bits: o.error for o in options if o.config.mode == "weight_only"}
        assert sorted(by_bits.values(), reverse=True) == [by_bits[b] for b in sorted(by_bits)]
        assert [o.error for o in options if o.config == FP32] == [0.0]
    (truth,) = backend.run(model, _ids()[0])
    wide = {key: options[-2] for key, options in space.choices.items()}
    built = backend.build(model, Recipe(wide), observations)
    (found,) = backend.run(built, _ids()[0])
    assert 0 < np.abs(found - truth).max() < 0.2 * np.abs(truth).max()
    kinds = {node.op_type for node in built.graph.nodes}
    assert "GatherBlockQuantized" in kinds and built.nbytes < 0.5 * model.nbytes


def test_weights_that_were_rounded_before_a_kill_are_not_rounded_again(
    backend: WeightOnlyBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = backend.load(small_net())
    space = restrict(backend.inspect(model), ())
    observations = backend.observe(model, _ids(), (0,))[0]
    backend.keep_in(tmp_path)
    first = backend.build(model, space.default(), observations)
    done = sorted(tmp_path.glob("*.npz"))
    done[0].write_bytes(b"cut off")
    again = WeightOnlyBackend(backend.wishes)
    again.observe(model, _ids(), (0,))
    again.keep_in(tmp_path)
    assert len(list(tmp_path.glob("*.npz"))) == len(done) - 1
    rounded: list[str] = []
    import lpot.backends.onnx.weight_only.rounding as rounding

    usual = rounding._round_one
    monkeypatch.setattr(
        rounding,
        "_round_one",
        lambda g, node, *rest: (rounded.append(node.name), usual(g, node, *rest)),
    )
    second = again.build(model, space.default(), observations)
    assert len(rounded) == 1
    for name, array in first.graph.weights.items():
        np.testing.assert_array_equal(array, second.graph.weights[name])


def test_each_product_sees_what_the_rounded_ones_before_it_give(
    backend: WeightOnlyBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = backend.load(small_net())
    space = restrict(backend.inspect(model), ())
    observations = backend.observe(model, _ids(), (0,))[0]
    backend.keep_in(tmp_path)
    import lpot.backends.onnx.weight_only.rounding as rounding

    seen: dict[str, np.ndarray] = {}
    usual = rounding._round_one
    monkeypatch.setattr(
        rounding,
        "_round_one",
        lambda g, node, c, s, store: (seen.update({node.name: s}), usual(g, node, c, s, store)),
    )
    backend.build(model, space.default(), observations)
    store = backend.the_store
    word = {key.name: label(config) for key, config in space.default().ops.items()}
    table = store.get("embed", word["embed"]).values()
    rows = np.concatenate([table[batch["ids"][0]] for batch in _ids()])
    first = np.tanh(rows @ store.get("first", word["first"]).values().T)
    for name, x in (("first", rows), ("second", first)):
        truth = x.T @ x / len(x)
        np.testing.assert_allclose(seen[name].judge, truth, rtol=1e-3, atol=1e-4)
        added = seen[name].hessian - seen[name].judge
        share = CHANCE * len(truth) / len(x) * np.diagonal(truth).mean()
        np.testing.assert_allclose(added, share * np.eye(len(truth)), rtol=1e-3, atol=1e-4)


def test_inputs_are_factored_once_for_all_formats_and_never_where_they_are_too_many(
    backend: WeightOnlyBackend, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import lpot.backends.onnx.weight_only.rounding as rounding
    import lpot.backends.onnx.weight_only.ways as ways

    model = backend.load(small_net())
    space = restrict(backend.inspect(model), ())
    observations = backend.observe(model, _ids(), (0,))[0]
    sizes: list[int] = []
    usual = ways.factored
    monkeypatch.setattr(ways, "factored", lambda h: (sizes.append(len(h)), usual(h))[1])
    backend.keep_in(tmp_path / "all")
    backend.tradeoffs(model, space.choices, observations)
    assert sizes == [64, 96]
    monkeypatch.setattr(rounding, "WIDEST", 64)
    backend.keep_in(tmp_path / "narrow")
    assert backend.build(model, space.default(), observations).recipe == space.default()
    assert sizes == [64, 96, 64]


def test_segments_hold_no_more_than_passes_between_layers(tmp_path: Path) -> None:
    pytest.importorskip("transformers")
    from lpot.backends import export_decoder

    backend = WeightOnlyBackend()
    graph = backend.load(export_decoder(tiny("Qwen2"), tmp_path)).prepared
    products = {node.name for node in graph.nodes if node.op_type == "MatMul"}
    segments = cut(graph, products)
    found = [{node.name for node in one.nodes} & products for one in segments]
    assert all(found) and set().union(*found) == products
    assert {"layers.1/attn/o_proj"} in found and {"layers.1/mlp/down_proj"} in found
    for segment in segments[1:]:
        assert len([name for name in segment.enters if "past" not in name]) <= 6


def test_a_kernel_that_is_wrong_or_missing_or_slow_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    guard = Guard({}, prompt_length=8)
    config = next(product_choices(Wishes(bits=(4,)), "this", 64))
    assert format_of(config).bits == 4
    assert guard.times(64, 64, config) is not None
    monkeypatch.setattr("lpot.backends.onnx.weight_only.guard._Lone.is_right", lambda self: 0.0)
    assert guard.times(64, 80, config) is None and "wrong" in guard.refused[label(config)]
    monkeypatch.setattr("lpot.backends.onnx.weight_only.guard._Lone.is_right", lambda self: 1.0)
    monkeypatch.setattr(
        "lpot.backends.onnx.weight_only.guard._Lone.turn",
        lambda self, tokens: lambda: 1.0 if self.config.is_float else 30.0,
    )
    slow = Guard({}, prompt_length=8)
    assert not slow.allows(32, 96, config, 0.3)
    assert "0.03 of FP32's speed" in slow.refused[label(config)]


def test_a_machine_that_is_disturbed_for_a_while_tells_the_same_shares(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """While another program takes a core, both formats take twice as long."""
    monkeypatch.setattr("lpot.backends.onnx.weight_only.guard.ROUNDS", 7)
    clock = {"turns": 0}

    def turn(self: _Lone, tokens: int) -> Callable[[], float]:
        def timed() -> float:
            clock["turns"] += 1
            disturbed = 2.0 if clock["turns"] // 10 % 2 == 0 else 1.0
            return disturbed * (1.0 if self.config.is_float else 0.5) * tokens

        return timed

    monkeypatch.setattr("lpot.backends.onnx.weight_only.guard._Lone.turn", turn)
    guard = Guard({}, prompt_length=8)
    for config in product_choices(Wishes(), "this", 64):
        low = guard.times(64, 112, config)
        plain = guard.times(64, 112, FP32)  # timed again beside each format
        assert plain is not None and low is not None
        share = 1.0 if config.is_float else 0.5
        assert (low.token / plain.token, low.prompt / plain.prompt) == (share, share)
    least = guard.times(64, 112, FP32)
    assert least is not None and (least.token, least.prompt) == (1.0, 8.0)


@pytest.mark.parametrize("bits", (4, 8))
def test_no_weight_of_a_timed_product_is_packed_with_another(bits: int) -> None:
    """The runtime packs equal ones once: they would be read from the cache, unlike a decoder's."""
    for config in (FP32, next(product_choices(Wishes(bits=(bits,)), "this", 64))):
        lone = _Lone(64, 96, config)
        graph = lone._graph(6)
        large = [array.tobytes() for array in graph.weights.values() if array.nbytes > 1024]
        assert len(large) >= 6 and len(set(large)) == len(large)
        assert lone.is_right() == 1.0


@pytest.mark.parametrize("levelled", (True, False))
def test_the_error_of_rounded_inputs_is_that_of_the_model_built_so(levelled: bool) -> None:
    backend = WeightOnlyBackend(Wishes(calibrated=False))
    model = backend.load(small_net())
    observations = backend.observe(model, _ids(), (0,))[0]
    choices = product_choices(backend.wishes, "this", 64, levelled)
    (dynamic,) = [config for config in choices if config.mode == "dynamic"]
    key = next(key for key in backend.inspect(model).ops if key.name == "first")
    probe = observations.probe[0]
    low = backend.build(model, Recipe({key: dynamic}), observations)
    truth, found = (backend.run(each, probe) for each in (model, low))
    ((option,),) = backend.tradeoffs(model, {key: (dynamic,)}, observations).values()
    assert option.error == pytest.approx(divergence(truth[0], found[0]), rel=1e-3)
    assert option.error > 0


@pytest.mark.parametrize("opset", (13, 21))
def test_a_token_with_huge_activations_leaves_the_others_their_precision(opset: int) -> None:
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((64, 96)).astype(np.float32)
    x = rng.standard_normal((2, 9, 64)).astype(np.float32)
    x[0, 0] *= 1e4
    x[1, 3] = 0
    info = helper.make_tensor_value_info
    proto = helper.make_model(
        helper.make_graph(
            [helper.make_node("MatMul", ["x", "w"], ["y"], name="product")],
            "g",
            [info("x", TensorProto.FLOAT, ["rows", "tokens", 64])],
            [info("y", TensorProto.FLOAT, None)],
            [onnx.numpy_helper.from_array(weight, "w")],
        ),
        opset_imports=[helper.make_opsetid("", opset)],
        ir_version=8,
    )
    backend = WeightOnlyBackend(Wishes(calibrated=False))
    model = backend.load(proto)
    (key,) = backend.inspect(model).ops
    truth = x @ weight
    off = []
    for levelled in (True, False):
        choices = product_choices(backend.wishes, "this", 64, levelled)
        (config,) = [each for each in choices if each.mode == "dynamic"]
        (found,) = backend.run(backend.build(model, Recipe({key: config})), {"x": x})
        rows = np.abs(found - truth).max(-1) / np.maximum(np.abs(truth).max(-1), 1e-6)
        off.append(rows.max())
    assert off[0] > 0.5 and off[1] < 0.05


def test_only_inputs_that_a_norm_has_levelled_are_rounded_with_one_scale(tmp_path: Path) -> None:
    from lpot.backends import export_decoder

    backend = WeightOnlyBackend(Wishes(calibrated=False))
    graph = backend.load(export_decoder(tiny("Llama"), tmp_path)).prepared
    found: dict[str, set[str | None]] = {}
    for node in graph.nodes:
        if node.op_type == "MatMul":
            choices = formats(graph, node, backend.wishes, "this")
            words = {c.activation.granularity for c in choices if c.mode == "dynamic"}
            found.setdefault(node.name.split("/")[-1], set()).update(words)
    by_token = {name for name, words in found.items() if words == {"per_token"}}
    assert by_token == {"o_proj", "down_proj"}
    assert all(words == {"per_tensor"} for name, words in found.items() if name not in by_token)


def test_divergence_is_that_of_scipy() -> None:
    special = pytest.importorskip("scipy.special")
    rng = np.random.default_rng(0)
    one, other = rng.standard_normal((2, 5, 11)).astype(np.float32)
    truth = special.rel_entr(special.softmax(one, -1), special.softmax(other, -1)).sum(-1).mean()
    assert divergence(one, other) == pytest.approx(truth, rel=1e-4)
    assert divergence(one, np.full_like(other, np.nan)) == float("inf")


@pytest.mark.parametrize("refused", (False, True))
def test_fp32_runs_from_its_file(
    refused: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file that the runtime does not take as it is runs in the form that was read."""
    opened: list[str] = []

    def open_file(path: str) -> Any:
        opened.append(path)
        if refused:
            raise UnsupportedModel("an old opset")
        return file_session(path)

    monkeypatch.setattr("lpot.backends.onnx.weight_only.file_session", open_file)
    onnx.save(small_net(), tmp_path / "net.onnx")
    inputs = {"ids": np.arange(32)[None]}
    backend = WeightOnlyBackend()
    found = backend.run(backend.load(tmp_path / "net.onnx"), inputs)
    assert set(opened) == {str(tmp_path / "net.onnx")}
    np.testing.assert_array_equal(found[0], backend.run(backend.load(small_net()), inputs)[0])
