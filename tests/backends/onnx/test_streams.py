"""Groups of channels: what is tied together, what is left alone, and that no bit changes."""

from __future__ import annotations

import math
import sys

import numpy as np
import pytest
from onnx import helper

from backends.onnx.nets import Net, cnn
from lpot.backends.onnx import OnnxBackend
from lpot.backends.onnx.edges import edge_groups
from lpot.backends.onnx.graph import Graph
from lpot.backends.onnx.load import load_graph
from lpot.backends.onnx.passes.equalize_layers import equalize_layers
from lpot.backends.onnx.run import session
from lpot.backends.onnx.streams import find_streams
from lpot.core.ptq.streams import Stream
from lpot.core.space import restrict
from search.tear import MENDED, Loom
from search.tear_more import MENDED_MORE, Weaver

INPUT = {"x": ["n", 8, 6, 6]}


def graph_of(net: Net, output: str, inputs: dict[str, list] = INPUT) -> Graph:
    return load_graph(net.make(inputs, [output]))[0]


def streams_of(graph: Graph) -> list[Stream]:
    return find_streams(graph).streams


def members(group: Stream) -> tuple[list[str], list[str]]:
    makers, readers = (sorted(name for name, _ in side) for side in (group.makers, group.readers))
    return makers, readers


def groups(net: Net, output: str) -> list[tuple[list[str], list[str]]]:
    return [members(group) for group in streams_of(graph_of(net, output))]


def run(graph: Graph, batch: np.ndarray) -> np.ndarray:
    return session(graph).run(None, {"x": batch})[0]


NETS = {**MENDED, **MENDED_MORE}
# These are mended by smoothing in front of their products, or need nothing.
SMOOTHED = ("wide stream", "gelu outliers", "query outliers")
EQUALIZED = [name for name in NETS if name not in SMOOTHED]


@pytest.mark.parametrize("name", EQUALIZED)
def test_fp32_results_stay_bit_for_bit(name: str) -> None:
    torn = NETS[name](3)
    graph = load_graph(torn.model)[0]
    even = equalize_layers(graph)
    assert even is not graph
    for batch in torn.batches[:2]:
        np.testing.assert_array_equal(run(graph, batch[0]), run(even, batch[0]))


def test_a_residual_stream_is_one_group() -> None:
    net = Loom()
    x = net.relu(net.conv("x", "stem", (8, 8, 3, 3)))
    y = net.conv(net.relu(net.conv(x, "one", (4, 8, 1, 1))), "two", (8, 4, 1, 1))
    net.conv(net.add("Add", [x, y], "sum"), "last", (2, 8, 1, 1))
    assert groups(net, "last") == [(["stem", "two"], ["last", "one"]), (["one"], ["two"])]


def test_a_concat_places_its_parts() -> None:
    net = Loom()
    left, right = net.conv("x", "left", (3, 8, 1, 1)), net.conv("x", "right", (5, 8, 1, 1))
    net.conv(net.add("Concat", [left, right], "both", axis=1), "last", (2, 8, 1, 1))
    (group,) = streams_of(graph_of(net, "last"))
    assert group.size == 8
    assert dict(group.makers) == {"left": 0, "right": 3}


def test_a_split_is_read_in_parts() -> None:
    net = Loom()
    net.weights["sizes"] = np.array([3, 5])
    net.conv("x", "stem", (8, 8, 1, 1))
    net.nodes.append(helper.make_node("Split", ["stem", "sizes"], ["a", "b"], "split", axis=1))
    first, second = net.conv("a", "first", (4, 3, 1, 1)), net.conv("b", "second", (4, 5, 1, 1))
    net.conv(net.add("Add", [first, second], "sum"), "last", (2, 4, 1, 1))
    found = streams_of(graph_of(net, "last"))
    parts = next(group for group in found if group.size == 8)
    assert dict(parts.readers) == {"first": 0, "second": 3}


@pytest.mark.parametrize("between", ["Sigmoid", "Clip", "Exp", "Softmax"])
def test_a_curve_is_no_link(between: str) -> None:
    net = Loom()
    x = net.add(between, [net.conv("x", "one", (4, 8, 1, 1))], "curve")
    net.conv(x, "two", (2, 4, 1, 1))
    assert groups(net, "two") == []


def test_what_leaves_the_net_is_fixed() -> None:
    net = Loom()
    x = net.conv("x", "one", (4, 8, 1, 1))
    net.conv(x, "two", (2, 4, 1, 1))
    graph = load_graph(net.make(INPUT, ["two", "one"]))[0]
    assert streams_of(graph) == []


def test_a_tensor_added_to_itself_elsewhere_is_fixed() -> None:
    net = Loom()
    x = net.conv("x", "one", (4, 8, 1, 1))
    net.conv(net.add("Concat", [x, x], "twice", axis=1), "two", (2, 8, 1, 1))
    assert groups(net, "two") == []


def test_shared_weights_are_left_alone() -> None:
    net = Loom()
    x = net.conv("x", "one", (8, 8, 1, 1))
    net.add("Conv", [x, "one.w", "one.b"], "two", kernel_shape=[1, 1])
    assert groups(net, "two") == []


def test_a_gate_lets_through_what_it_gates() -> None:
    """Squeeze and excite: the gate's own channels are not those of the stream."""
    net = Loom()
    x = net.relu(net.conv("x", "stem", (8, 8, 1, 1)))
    squeezed = net.add("GlobalAveragePool", [x], "mean")
    gate = net.conv(net.relu(net.conv(squeezed, "down", (2, 8, 1, 1))), "up", (8, 2, 1, 1))
    gated = net.add("Mul", [x, net.add("Sigmoid", [gate], "gate")], "gated")
    net.conv(gated, "last", (4, 8, 1, 1))
    assert groups(net, "last") == [(["stem"], ["down", "last"]), (["down"], ["up"])]


@pytest.mark.parametrize("last", [False, True])
def test_flattened_channels_have_many_entries(last: bool) -> None:
    """As PyTorch flattens (channels outside), and as Keras does (channels inside)."""
    net = Weaver()
    x = net.relu(net.conv("x", "stem", (4, 8, 3, 3)))
    x = net.add("Transpose", [x], "turned", perm=[0, 2, 3, 1]) if last else x
    x = net.add("Reshape", [x, net.const("flat.shape", [-1, 4 * 36], np.int64)], "flat")
    net.gemm(x, "fc", 4 * 36, 5)
    graph = graph_of(net, "fc")
    (group,) = streams_of(graph)
    assert members(group) == (["stem"], ["fc"]) and group.size == 4
    scale = np.array([1.0, 64.0, 1.0, 1 / 32], np.float32)
    net.weights["stem.w"] *= scale.reshape(-1, 1, 1, 1)
    net.weights["stem.b"] *= scale
    net.weights["fc.w"] /= np.tile(scale, 36) if last else scale.repeat(36)
    torn = graph_of(net, "fc")
    even = equalize_layers(torn)
    assert even is not torn
    batch = np.random.default_rng(0).standard_normal((3, 8, 6, 6)).astype(np.float32)
    np.testing.assert_array_equal(run(torn, batch), run(even, batch))
    np.testing.assert_allclose(run(graph, batch), run(even, batch), rtol=1e-4, atol=1e-5)


def test_of_two_that_are_multiplied_one_is_free() -> None:
    net = Loom()
    one, two = net.conv("x", "one", (4, 8, 1, 1)), net.conv("x", "two", (4, 8, 1, 1))
    gate = net.add("Mul", [one, net.add("Sigmoid", [one], "sigmoid")], "silu")
    net.conv(net.add("Mul", [gate, two], "product"), "last", (2, 4, 1, 1))
    assert groups(net, "last") == [(["two"], ["last"])]


def test_a_sound_net_is_left_as_it_is() -> None:
    graph = load_graph(cnn())[0]
    assert equalize_layers(graph) is graph


def test_a_sum_between_followers_is_freed_by_a_group(monkeypatch: pytest.MonkeyPatch) -> None:
    """The middle sum of a stream is read by a conv and added to: both sides must leave INT8."""
    net = Loom()
    x = net.conv("x", "stem", (8, 8, 3, 3))
    for name in ("a", "b", "c"):
        x = net.add("Add", [x, net.conv(x, name, (8, 8, 3, 3))], f"{name}.sum")
    net.conv(x, "last", (4, 8, 1, 1))
    backend = OnnxBackend()
    model = backend.load(net.make(INPUT, ["last"]))
    recipe = restrict(backend.inspect(model), ()).default()
    batches = [(np.random.default_rng(seed).random((4, 8, 6, 6), np.float32),) for seed in (0, 1)]
    seen = backend.observe(model, batches, (0,))[0]
    found = {
        name: {key.name for key in keys}
        for name, keys in edge_groups(model.prepared, recipe, seen.tensors)
    }
    assert found["a.sum"] == {"a", "b"} and found["b.sum"] == {"b", "c"}
    alone = backend.rank(model, recipe, seen)
    monkeypatch.setattr(sys.modules["lpot.backends.onnx.rank"], "EXPLAINED", math.inf)
    grouped = backend.rank(model, recipe, seen)
    assert grouped.keys() == alone.keys()
    assert all(grouped[key] >= alone[key] for key in alone) and grouped != alone


def test_a_pad_of_channels_is_part_of_a_wider_stream() -> None:
    """The shortcut of CIFAR's ResNets: thinned out, and zeros for the channels that it lacks."""
    net = Weaver()
    stem = net.conv("x", "stem", (4, 8, 1, 1))
    for name, values in (("from", [0]), ("to", [99]), ("axis", [2]), ("step", [2])):
        net.const(name, values, np.int64)
    thin = net.add("Slice", [stem, "from", "to", "axis", "step"], "thin")
    wide = net.add("Pad", [thin, net.const("zeros", [0, 1, 0, 0, 0, 3, 0, 0], np.int64)], "wide")
    other = net.add("Slice", ["x", "from", "to", "axis", "step"], "other")
    x = net.add("Add", [wide, net.conv(other, "beside", (8, 8, 1, 1))], "sum")
    net.conv(x, "last", (2, 8, 1, 1))
    (group,) = streams_of(graph_of(net, "last"))
    assert group.size == 8
    assert dict(group.makers) == {"stem": 1, "beside": 0}


@pytest.mark.parametrize(("start", "step", "placed"), [(3, 1, 3), (-5, 1, 3), (0, 2, None)])
def test_a_slice_of_channels_is_read_at_its_place(
    start: int, step: int, placed: int | None
) -> None:
    net = Weaver()
    net.conv("x", "stem", (8, 8, 1, 1))
    for name, value in (("from", start), ("to", 99), ("axis", 1), ("step", step)):
        net.const(name, [value], np.int64)
    part = net.add("Slice", ["stem", "from", "to", "axis", "step"], "part")
    net.conv(part, "last", (2, 5 if step == 1 else 4, 1, 1))
    found = streams_of(graph_of(net, "last"))
    places = {name: at for group in found for name, at in group.readers}
    assert places == ({} if placed is None else {"last": placed})


def test_pads_that_are_counted_in_the_graph_are_constants() -> None:
    """As PyTorch's exporter writes them: a dozen ops on small integers."""
    net = Weaver()
    net.conv("x", "stem", (4, 8, 1, 1))
    net.const("four", [4], np.int64)
    net.const("given", [0, 2, 0, 0], np.int64)
    zeros = net.add("ConstantOfShape", ["four"], "none", value=helper.make_tensor("v", 7, [1], [0]))
    pads = net.add("Concat", ["given", zeros], "pads", axis=0)
    net.conv(net.add("Pad", ["stem", pads], "wide"), "last", (2, 6, 1, 1))
    proto = net.make(INPUT, ["last"])
    model = OnnxBackend().load(proto)
    (group,) = streams_of(model.prepared)
    assert members(group) == (["stem"], ["last"]) and group.size == 6
