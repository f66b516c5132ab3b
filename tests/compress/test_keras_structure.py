"""Which channels of a Keras model go together, and what is left when they go: equal to ignoring
them, in any net."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow")
pytest.importorskip("sklearn")

from tests.compress.keras_nets import batch, joined, residual, stirred  # noqa: E402

from lpot.backends.tensorflow.pruning.cut import (  # noqa: E402
    are_close,
    is_exact,
    rebuilt,
    removed,
    silenced,
)
from lpot.backends.tensorflow.pruning.measure import importance, sound_groups  # noqa: E402
from lpot.backends.tensorflow.pruning.record import find_blocks, find_groups  # noqa: E402
from lpot.backends.tensorflow.pruning.walk import as_functional, run  # noqa: E402
from lpot.backends.tensorflow.pruning.wiring import Wiring  # noqa: E402
from lpot.core.compress.groups import Group, Place, Slot, strongest  # noqa: E402
from lpot.core.errors import UnsupportedModel  # noqa: E402

layers = tf.keras.layers
keras = tf.keras


def values(*arrays: np.ndarray) -> list[Any]:
    return [tf.constant(array) for array in arrays]


PICTURES = values(batch(2, 8, 8, 3))


def found_in(model: Any, inputs: list[Any]) -> dict[str, Group]:
    copy = rebuilt(model)
    return {group.name: group for group in sound_groups(copy, inputs, find_blocks(copy))}


def check(model: Any, group: Group, inputs: list[Any], gone: list[int]) -> Any:
    """The smaller model, which gives what the full one gives without those units."""
    root = rebuilt(model)
    kept = tuple(unit for unit in range(group.units) if unit not in gone)
    small = removed(root, [group], {group.name: kept})
    with silenced(root, group, gone):
        assert are_close(run(small, inputs), run(root, inputs))
    assert are_close(run(root, inputs), run(model, inputs))  # and then it is as it was
    assert small.count_params() < root.count_params()
    return small


def test_every_group_of_a_joined_net_is_found_and_goes_exactly() -> None:
    net = joined()
    groups = found_in(net, PICTURES)
    assert set(groups) == {"apart", "excite", "fc1", "inner", "squeeze"}
    stream = groups["inner"]  # the residual, the join, and the depthwise convolution behind it
    assert (stream.size, stream.block) == (14, 1)
    touched = {slot.place.tensor for slot in stream.slots}
    assert {"stem.kernel", "norm.moving_mean", "left.kernel", "depth.kernel"} <= touched
    for group in groups.values():
        small = check(net, group, PICTURES, [0, group.units - 1])
        assert [layer.name for layer in small.layers] == [layer.name for layer in net.layers]


def test_all_groups_at_once() -> None:
    net = rebuilt(joined())
    groups = sound_groups(net, PICTURES, {})
    weight = importance(net, groups, [PICTURES])
    kept = {g.name: strongest(weight[g.name], 0.5, spans=g.spans) for g in groups}
    small = removed(net, groups, kept)
    assert small.get_layer("depth").kernel.shape == (3, 3, 7, 2)
    assert small.get_layer("excite").filters == 6 and small.get_layer("apart").filters == 5
    assert small.output_shape == net.output_shape
    assert np.isfinite(run(small, PICTURES)[0]).all()


def test_units_that_matter_are_the_important_ones() -> None:
    given = keras.Input((4,))
    hidden = layers.Dense(6, name="hidden")(given)
    net = rebuilt(keras.Model(given, layers.Dense(2, name="out")(hidden)))
    out = net.get_layer("out").kernel
    out.assign(out * np.array([1, 1, 1e-3, 1, 1e-3, 1], np.float32)[:, None])
    (group,) = sound_groups(net, values(batch(8, 4)), {})
    weight = importance(net, [group], [values(batch(8, 4))])["hidden"]
    assert set(np.argsort(weight)[:2]) == {2, 4}


def test_what_is_on_a_shortcut_of_its_own_is_a_block() -> None:
    net = rebuilt(residual())
    blocks = find_blocks(net)
    assert set(blocks) == {"block0", "block1", "block2"}
    names = {group.name for group in find_groups(net, blocks)}
    assert {"block0.a0", "block1.a1", "block2.a2"} < names  # they go with their blocks
    small = rebuilt(net, blocks=[blocks["block1"]])
    assert not {"a1", "b1", "block1"} & {layer.name for layer in small.layers}
    # The same as a branch that gives nothing.
    net.get_layer("b1").set_weights([0 * w for w in net.get_layer("b1").get_weights()])
    inputs = values(batch(2, 8, 8, 1))
    assert are_close(run(small, inputs), run(net, inputs))


def test_a_projected_shortcut_is_no_block_and_neither_is_what_holds_blocks() -> None:
    x = given = keras.Input((8, 8, 4))
    branch = layers.Conv2D(4, 1, name="inner")(x)
    once = layers.Add(name="inside")([x, branch])
    whole = layers.Add(name="around")([layers.Conv2D(4, 1, name="more")(once), x])
    projected = layers.Add(name="projected")(
        [layers.Conv2D(6, 1, name="p")(whole), layers.Conv2D(6, 3, padding="same")(whole)]
    )
    scaled = layers.Add(name="scaled")([projected, layers.ReLU()(projected)])  # no layer in it
    assert set(find_blocks(rebuilt(keras.Model(given, scaled)))) == {"inside"}


def nested() -> Any:
    def inner(name: str) -> Any:
        given = keras.Input((8, 8, 4))
        x = layers.Conv2D(6, 3, padding="same", activation="relu", name="a")(given)
        x = layers.Conv2D(4, 1, name="b")(x)
        return keras.Model(given, layers.Add(name="sum")([given, x]), name=name)

    x = given = keras.Input((8, 8, 3))
    x = layers.Conv2D(4, 3, padding="same", name="a")(x)
    x = inner("second")(inner("first")(x))
    head = keras.Sequential([layers.GlobalAveragePooling2D(), layers.Dense(3, name="fc")])
    return keras.Model(given, head(x), name="outer")


def test_models_in_a_model_are_cut_where_they_are() -> None:
    net = nested()
    groups = found_in(net, PICTURES)
    assert set(groups) == {"first.sum.first.a", "second.sum.second.a", "a"}
    for group in groups.values():
        check(net, group, PICTURES, [1])
    small = check(net, groups["first.sum.first.a"], PICTURES, [0, 3])
    assert small.get_layer("first").get_layer("a").filters == 4
    assert small.get_layer("second").get_layer("a").filters == 6
    root = rebuilt(net)
    thin = rebuilt(root, blocks=[find_blocks(root)["second.sum"]])
    assert [layer.name for layer in thin.get_layer("second").layers[1:]] == []


def two_ends() -> Any:
    left, right = keras.Input((6,), name="left"), keras.Input((8, 8, 3), name="right")
    one = layers.Dense(8, activation="relu", name="words")(left)
    two = layers.Conv2D(8, 3, activation="relu", name="picture")(right)
    both = layers.Multiply()([one, layers.GlobalMaxPooling2D()(two)])
    ends = {"score": layers.Dense(2, name="score")(both), "seen": two}
    return keras.Model({"left": left, "right": right}, ends)


def test_an_output_keeps_its_channels_and_what_is_tied_to_them() -> None:
    inputs = values(batch(2, 6), batch(2, 8, 8, 3))
    assert found_in(two_ends(), inputs) == {}
    net = two_ends()
    score = keras.Model(net.input, net.output["score"])
    (group,) = found_in(score, inputs).values()
    assert {"words.kernel", "picture.kernel"} <= {slot.place.tensor for slot in group.slots}
    small = check(score, group, inputs, [2, 5])
    assert set(small.input) == {"left", "right"}


class Own(layers.Layer):
    """A layer that knows its own size."""

    def __init__(self, units: int = 6, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self.units = units

    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], self.units), name="kernel")

    def call(self, x: Any) -> Any:
        return tf.matmul(x, self.kernel)


def left_alone() -> dict[str, Callable[[Any], Any]]:
    shared = layers.Dense(6, name="shared")
    return {
        "a norm over the channels": lambda x: layers.LayerNormalization()(x),
        "a softmax": lambda x: layers.Softmax()(x),
        "a sum over the channels": lambda x: x * tf.keras.ops.sum(x, -1, keepdims=True),
        "one layer twice": lambda x: shared(shared(x)),
        "a layer of one's own": lambda x: Own()(x),
        "a lambda": lambda x: layers.Lambda(lambda y: y[:, ::-1] * y)(x),
        "a vector of numbers": lambda x: x * np.arange(6, dtype=np.float32),
        "pieces": lambda x: layers.Reshape((2, 3))(x),
    }


@pytest.mark.parametrize("kind", left_alone())
def test_what_counts_on_its_channels_is_left_alone(kind: str) -> None:
    given = keras.Input((4,))
    x = left_alone()[kind](layers.Dense(6, name="hidden")(given))
    x = layers.Flatten()(x)
    net = stirred(keras.Model(given, layers.Dense(2, name="out")(x)))
    assert "hidden" not in {group.name for group in find_groups(rebuilt(net))}
    assert "hidden" not in found_in(net, values(batch(3, 4)))


def test_a_layer_that_ends_in_a_softmax_keeps_its_units() -> None:
    given = keras.Input((4,))
    x = layers.Dense(6, activation="softmax", name="hidden")(given)
    net = keras.Model(given, layers.Dense(2, name="out")(x))
    assert find_groups(rebuilt(net)) == []


def test_a_map_with_one_channel_gates_all_of_them() -> None:
    given = keras.Input((8, 8, 3))
    x = layers.Conv2D(6, 3, name="a")(given)
    gate = layers.Conv2D(1, 1, activation="sigmoid", name="gate")(x)
    net = keras.Model(given, layers.Conv2D(2, 1, name="out")(layers.Multiply()([x, gate])))
    (group,) = found_in(net, PICTURES).values()
    check(net, group, PICTURES, [2, 3])


def test_a_copy_computes_the_same_and_leaves_the_original_alone() -> None:
    x = given = keras.Input((4,))
    norm = layers.Normalization(name="known")
    norm.adapt(3 * batch(64, 4) + 1)
    x = layers.Dense(6)(norm(x))
    own = layers.Lambda(lambda y: y * y + 1, name="own")
    net = rebuilt(keras.Model(given, layers.Dense(2)(own(x))))
    inputs = values(batch(5, 4))
    assert are_close(run(rebuilt(net), inputs), [net(inputs[0])])
    # Operations between layers keep their names, too.
    whole = joined()
    assert [*Wiring(rebuilt(whole)).steps] == [*Wiring(whole).steps]
    # Or it would hold every model that was tried.
    assert len(net.get_layer("own")._inbound_nodes) == 1
    assert not np.allclose(net.get_layer("known")(inputs[0]), inputs[0])


def test_a_sequence_takes_any_batch() -> None:
    net = keras.Sequential([keras.Input((4,), batch_size=3), layers.Dense(6), layers.Dense(2)])
    assert rebuilt(net).inputs[0].shape == (None, 4)


@pytest.mark.parametrize("kind", ["grouped", "twice"])
def test_convolutions_that_cannot_lose_channels(kind: str) -> None:
    x = given = keras.Input((8, 8, 4))
    x = layers.Conv2D(8, 3, name="a")(x)
    if kind == "grouped":
        x = layers.Conv2D(8, 3, groups=4, name="b")(x)
    else:
        tower = keras.Sequential([layers.Conv2D(8, 1, name="t")], name="tower")
        x = layers.Concatenate()([tower(x), tower(layers.ReLU()(x))])
    net = keras.Model(given, layers.Conv2D(2, 1, name="out")(x))
    assert found_in(net, values(batch(2, 8, 8, 4))) == {}


def test_a_wrong_group_is_noticed_even_behind_a_softmax() -> None:
    given = keras.Input((4,))
    hidden = layers.Dense(6, name="hidden")(given)
    net = rebuilt(keras.Model(given, layers.Dense(3, activation="softmax", name="out")(hidden)))
    weight = net.get_layer("out").kernel
    weight.assign(weight * 5e-5)  # all classes nearly alike
    (group,) = find_groups(net)
    inputs = values(batch(4, 4))
    assert is_exact(net, group, inputs, run(net, inputs))
    moved = [slot for slot in group.slots if not slot.reads]
    # Another row of the reader than the one that goes with the maker's column.
    reads = [Slot(Place("out.kernel", 0), -1, 6, True)]
    assert not is_exact(net, Group("hidden", 6, 1, (*moved, *reads)), inputs, run(net, inputs))


class Written(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.out = layers.Dense(6, name="hidden"), layers.Dense(2, name="out")

    def call(self, x: Any) -> Any:
        return self.out(tf.keras.ops.relu(self.hidden(x)))


def test_a_model_written_as_a_class_is_told_and_the_way_round_works() -> None:
    model, inputs = Written(), values(batch(2, 4))
    model(inputs[0])
    with pytest.raises(UnsupportedModel, match=r"keras\.Model\(x, model\.call\(x\)\)"):
        as_functional(model)
    x = keras.Input((4,))
    (group,) = found_in(keras.Model(x, model.call(x)), inputs).values()
    assert group.name == "hidden"


def test_a_layer_that_cannot_be_made_again_is_named() -> None:
    class Odd(Own):
        def get_config(self) -> dict[str, Any]:
            return {**super().get_config(), "unknown": 1}

    given = keras.Input((4,))
    net = keras.Model(given, Odd(3, name="strange")(given))
    with pytest.raises(UnsupportedModel, match=r"the layer 'strange'.*get_config"):
        rebuilt(net)
