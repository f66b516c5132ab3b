"""Streams of channels: what is tied together, what is left alone, and that no bit changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("tensorflow")
pytest.importorskip("onnxruntime")

from backends.tensorflow.nets import Maker, graph_of, image
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.passes.equalize_layers import equalize_layers
from lpot.backends.tensorflow.runtime import tf, v1
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.streams import find_streams
from lpot.core.ptq.distance import distance
from lpot.core.space import restrict
from search.as_tensorflow import as_tensorflow, turned
from search.tear import MENDED
from search.tear_more import MENDED_MORE

BACKEND = TensorflowBackend()
NETS = {**MENDED, **MENDED_MORE}
TORN = ("residual stream", "depthwise chain", "branches", "perceptron", "squeeze and excite")
TORN += ("giant channel", "padded shortcut")


def net_of(graph_def: Any, output: str = "out") -> Net:
    return Net.of(graph_def, ["x"], [output])


def run(net: Net, batch: np.ndarray) -> np.ndarray:
    graph = tf.Graph()
    with graph.as_default():
        tf.graph_util.import_graph_def(net.graph_def(), name="")
    with v1.Session(graph=graph) as session:
        return np.asarray(session.run(f"{net.outputs[0]}:0", {"x:0": batch}))


@pytest.mark.parametrize("name", TORN)
def test_fp32_results_stay_bit_for_bit(name: str) -> None:
    torn = NETS[name](3)
    net = net_of(as_tensorflow(torn.model).as_graph_def())
    even = equalize_layers(net)
    assert even is not net
    batch = turned(torn.batches[0][0])
    np.testing.assert_array_equal(run(net, batch), run(even, batch))


@pytest.mark.parametrize("name", ["residual stream", "branches"])
def test_a_torn_net_is_near_fp32_with_all_in_int8(name: str) -> None:
    """From the file to the INT8 model as a user gets it: without equalization half is lost."""
    torn = NETS[name](3)
    model = BACKEND.load(as_tensorflow(torn.model).as_graph_def())
    batches = [(turned(batch[0]),) for batch in torn.batches[:4]]
    recipe = restrict(BACKEND.inspect(model), ()).default()
    built = BACKEND.build(model, recipe, BACKEND.observe(model, batches, (0,))[0])
    truth, found = BACKEND.run(model, batches[0]), BACKEND.run(built, batches[0])
    assert distance(truth, found) < 0.01


def streams(build: Callable[[Maker, Any], Any]) -> list[tuple[set[str], set[str]]]:
    def whole(make: Maker) -> None:
        tf.identity(build(make, image()), name="out")

    net = net_of(graph_of(whole))
    return [
        ({name for name, _ in stream.makers}, {name for name, _ in stream.readers})
        for stream in find_streams(net)
    ]


def test_a_residual_stream_is_one() -> None:
    def build(make: Maker, x: Any) -> Any:
        x = tf.nn.relu(make.conv(x, 8, name="stem"))
        y = make.conv(tf.nn.relu(make.conv(x, 4, name="one")), 8, name="two")
        return make.conv(x + y, 2, name="last")

    assert streams(build) == [({"stem", "two"}, {"one", "last"}), ({"one"}, {"two"})]


@pytest.mark.parametrize("curve", [tf.nn.relu6, tf.sigmoid, tf.exp, tf.nn.softmax])
def test_a_curve_is_no_link(curve: Any) -> None:
    def build(make: Maker, x: Any) -> Any:
        return make.conv(curve(make.conv(x, 8, name="one")), 2, name="two")

    assert streams(build) == []


def test_what_leaves_the_net_is_fixed() -> None:
    def build(make: Maker, x: Any) -> Any:
        first = make.conv(x, 4, name="one")
        make.conv(first, 2, name="two")
        return first

    assert streams(build) == []


def test_a_tensor_at_two_places_is_fixed() -> None:
    def build(make: Maker, x: Any) -> Any:
        first = make.conv(x, 4, name="one")
        return make.conv(tf.concat([first, first], -1), 2, name="two")

    assert streams(build) == []


def test_flattened_pictures_are_left_alone() -> None:
    def build(make: Maker, x: Any) -> Any:
        first = tf.nn.relu(make.conv(x, 4, name="one"))
        return make.dense(tf.reshape(first, [-1, 16 * 16 * 4]), 3)

    assert streams(build) == []


def test_a_slice_of_channels_is_no_link() -> None:
    def build(make: Maker, x: Any) -> Any:
        return make.conv(make.conv(x, 8, name="one")[:, :, :, 2:6], 2, name="two")

    assert streams(build) == []


def test_a_sound_net_is_left_as_it_is() -> None:
    def build(make: Maker) -> None:
        x = tf.nn.relu(make.conv(image(), 8, name="one"))
        tf.identity(make.conv(x, 4, name="two"), name="out")

    net = net_of(graph_of(build))
    assert equalize_layers(net) is net
