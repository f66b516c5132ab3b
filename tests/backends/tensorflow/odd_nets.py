"""Graphs of odd structure: what strangers bring. Each gives a model, batches and its outputs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from backends.tensorflow.nets import Maker, graph_of
from lpot.backends.tensorflow.runtime import tf, v1

Odd = tuple[Any, list[Any], tuple[str, ...]]
RANDOM = np.random.default_rng(7)
keras = tf.keras
layers = keras.layers


def values(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def of_graph(build: Callable[[Maker], None], *shape: int, outputs: tuple[str, ...] = ()) -> Odd:
    return graph_of(build), [(values(*shape),) for _ in range(2)], outputs


def of_keras(model: Any, *shapes: tuple[int, ...]) -> Odd:
    return model, [tuple(values(*shape) for shape in shapes) for _ in range(2)], ()


def channels_first() -> Odd:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 8, 16, 16], name="x")
        y = tf.nn.conv2d(x, make.weight(3, 3, 8, 16), 1, "SAME", data_format="NCHW", name="first")
        y = tf.nn.relu(tf.nn.bias_add(y, make.vector(16), data_format="NCHW"))
        y = tf.nn.relu(make.conv(tf.transpose(y, [0, 2, 3, 1]), 16, name="second"))
        tf.reduce_mean(y, [1, 2], name="y")

    return of_graph(build, 2, 8, 16, 16)


def shared_weights() -> Odd:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 16, 16, 8], name="x")
        weight = make.weight(3, 3, 8, 8)
        one = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(x, weight, 1, "SAME"), make.vector(8)))
        two = tf.nn.relu(tf.nn.bias_add(tf.nn.conv2d(one, weight, 1, "SAME"), make.vector(8)))
        three = make.norm(tf.nn.conv2d(two, weight, 1, "SAME"))
        tf.reduce_mean(three + one, [1, 2], name="y")

    return of_graph(build, 2, 16, 16, 8)


def dilations() -> Odd:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 16, 16, 8], name="x")
        y = tf.nn.relu(tf.nn.conv2d(x, make.weight(3, 3, 8, 16), 1, "SAME", dilations=2))
        y = tf.nn.relu(tf.nn.atrous_conv2d(y, make.weight(3, 3, 16, 16), 2, "SAME"))
        weight, strides = make.weight(3, 3, 16, 1), [1, 1, 1, 1]
        y = tf.nn.relu(tf.nn.depthwise_conv2d(y, weight, strides, "SAME", dilations=[2, 2]))
        y = tf.nn.depthwise_conv2d(y, make.weight(3, 3, 16, 2), [1, 2, 2, 1], "VALID")
        tf.reduce_mean(y, [1, 2], name="y")

    return of_graph(build, 2, 16, 16, 8)


def paddings() -> Odd:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 16, 16, 8], name="x")
        uneven, even = [[0, 0], [1, 0], [0, 1], [0, 0]], [[0, 0], [1, 1], [1, 1], [0, 0]]
        y = tf.nn.relu(tf.nn.conv2d(x, make.weight(3, 3, 8, 16), 2, uneven))
        y = tf.nn.relu(make.conv(tf.pad(y, uneven), 16, padding="VALID", name="zeros"))
        y = tf.nn.relu(make.conv(tf.pad(y, even, "REFLECT"), 16, padding="VALID", name="mirror"))
        y = make.conv(tf.pad(y, even, constant_values=1.0), 16, padding="VALID", name="ones")
        y = tf.nn.depthwise_conv2d(tf.pad(y, even), make.weight(3, 3, 16, 1), [1, 1, 1, 1], "VALID")
        tf.reduce_mean(y, [1, 2], name="y")

    return of_graph(build, 2, 16, 16, 8)


def batched_products() -> Odd:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 12, 32], name="x")
        query = tf.matmul(x, make.weight(32, 32))
        key = tf.einsum("btd,df->btf", x, make.weight(32, 32))
        value = tf.tensordot(x, make.weight(32, 32), [[2], [0]])
        heads = [
            tf.transpose(tf.reshape(one, [-1, 12, 4, 8]), [0, 2, 1, 3])
            for one in (query, key, value)
        ]
        share = tf.nn.softmax(tf.matmul(heads[0], heads[1], transpose_b=True))
        mixed = tf.reshape(tf.transpose(tf.matmul(share, heads[2]), [0, 2, 1, 3]), [-1, 12, 32])
        total = tf.matmul(mixed, make.weight(32, 32), transpose_b=True) + x
        tf.matmul(total, tf.reshape(make.weight(32, 16), [1, 32, 16]), name="y")

    return of_graph(build, 2, 12, 32)


def outputs_in_the_middle() -> Odd:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 16, 16, 8], name="x")
        one = tf.nn.relu(make.conv(x, 16, name="a"), name="a/relu")
        two = make.conv(one, 16, name="c")
        low, soft = tf.nn.relu(two, name="d"), tf.nn.sigmoid(two)
        three = tf.nn.relu(make.conv(one, 16, name="f") + low)
        parts = tf.split(three, 2, axis=3)
        both = tf.concat([parts[1], tf.nn.relu(make.conv(parts[0], 8, name="g"))], 3)
        tf.reduce_mean(both * soft, [1, 2], name="y")

    return of_graph(build, 2, 16, 16, 8, outputs=("a/relu", "a", "c", "d", "y"))


def old_control_flow() -> Odd:
    def build(make: Maker) -> None:
        v1.disable_control_flow_v2()
        try:
            x = v1.placeholder(tf.float32, [None, 16], name="x")
            weight = make.weight(16, 16)
            _, state = v1.while_loop(
                lambda step, state: step < 3,
                lambda step, state: (step + 1, tf.nn.relu(tf.matmul(state, weight))),
                [tf.constant(0), tf.nn.relu(make.dense(x, 16, "before"))],
            )
            chosen = v1.cond(
                tf.reduce_sum(x) > 0,
                lambda: tf.matmul(state, weight),
                lambda: tf.matmul(state, make.weight(16, 16)),
            )
            tf.identity(make.dense(chosen, 4, "after"), name="y")
        finally:
            v1.enable_control_flow_v2()

    return of_graph(build, 8, 16)


def functions() -> Odd:
    make = Maker()
    one, two = make.weight(16, 16).numpy(), make.weight(16, 16).numpy()

    @tf.function
    def inner(x: Any) -> Any:
        return tf.nn.relu(tf.matmul(x, two))

    @tf.function(input_signature=[tf.TensorSpec([None, 16], tf.float32, name="x")])
    def outer(x: Any) -> Any:
        state = inner(tf.nn.relu(tf.matmul(x, one)))
        _, state = tf.while_loop(
            lambda step, state: step < 3,
            lambda step, state: (step + 1, tf.nn.relu(tf.matmul(state, one))),
            [tf.constant(0), state],
        )
        return {"y": tf.matmul(state, two)}

    return outer.get_concrete_function(), [(values(8, 16),) for _ in range(2)], ()


def dead_and_wild_channels() -> Odd:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 16, 16, 8], name="x")
        weight = make.random.normal(size=(3, 3, 8, 8)).astype(np.float32) * 0.1
        weight[..., 3], weight[..., 4], weight[..., 5] = 0, 1e-30, weight[..., 5] * 1e4
        y = tf.nn.relu(tf.nn.conv2d(x, tf.constant(weight), 1, "SAME", name="wild"))
        tf.reduce_mean(make.conv(y, 8, name="next"), [1, 2], name="y")

    return of_graph(build, 2, 16, 16, 8)


def transposed_products() -> Odd:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [16, None], name="x")
        y = tf.nn.relu(tf.matmul(x, make.weight(16, 8), transpose_a=True))
        tf.tanh(tf.matmul(y, make.weight(4, 8), transpose_b=True) + make.vector(4), name="y")
        tf.matmul(make.weight(3, 16), x, name="left")

    return of_graph(build, 16, 4, outputs=("y", "left"))


def other_number_types() -> Odd:
    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 16], name="x")
        wide = tf.matmul(tf.cast(x, tf.float64), tf.cast(make.weight(16, 16), tf.float64))
        thin = tf.matmul(tf.cast(wide, tf.float16), tf.cast(make.weight(16, 8), tf.float16))
        tf.identity(make.dense(tf.cast(thin, tf.float32), 4), name="y")

    return of_graph(build, 4, 16)


def several_inputs() -> Odd:
    picture, facts = keras.Input((16, 16, 3), name="picture"), keras.Input((5,), name="facts")
    x = layers.BatchNormalization()(layers.Conv2D(8, 3, activation="relu")(picture))
    y = layers.Dense(8, activation="relu")(facts)
    both = layers.Concatenate()([layers.GlobalAveragePooling2D()(x), y])
    ends = [layers.Dense(3, activation="softmax")(both), layers.Dense(1)(both)]
    return of_keras(keras.Model([picture, facts], ends), (4, 16, 16, 3), (4, 5))


def unknown_sizes() -> Odd:
    model = keras.Sequential(
        [
            keras.Input((None, None, 3)),
            layers.Conv2D(8, 3, padding="same"),
            layers.BatchNormalization(),
            layers.LeakyReLU(),
            layers.SeparableConv2D(16, 3, activation="swish"),
            layers.MaxPool2D(),
            layers.Conv2DTranspose(8, 2, 2),
            layers.GlobalMaxPooling2D(),
            layers.Dropout(0.5),
            layers.Dense(4),
        ]
    )
    return of_keras(model, (2, 16, 16, 3))


def called_on_a_batch() -> Odd:
    model = keras.Sequential([layers.Dense(16, activation="relu"), layers.Dense(4)])
    model(values(2, 6))
    return of_keras(model, (5, 6))


class Own(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.one, self.two = layers.Dense(16), layers.Dense(3)

    def call(self, inputs: Any) -> Any:
        return {"y": self.two(tf.nn.relu(self.one(inputs["a"]))) + inputs["b"]}


def a_class_of_ones_own() -> Odd:
    model = Own()
    model({"a": values(2, 6), "b": values(2, 3)})
    return of_keras(model, (5, 6), (5, 3))


def squeeze_and_excite() -> Odd:
    x = keras.Input((16, 16, 8))
    y = layers.Activation("swish")(layers.BatchNormalization()(layers.Conv2D(32, 1)(x)))
    y = layers.BatchNormalization()(layers.DepthwiseConv2D(3, padding="same")(y))
    y = layers.Activation("hard_sigmoid")(y)
    gate = layers.Conv2D(8, 1, activation="swish")(layers.GlobalAveragePooling2D(keepdims=True)(y))
    y = layers.Multiply()([y, layers.Conv2D(32, 1, activation="sigmoid")(gate)])
    y = layers.Add()([layers.BatchNormalization()(layers.Conv2D(8, 1)(y)), x])
    model = keras.Model(x, layers.Dense(4)(layers.GlobalAveragePooling2D()(y)))
    return of_keras(model, (2, 16, 16, 8))


def embedding() -> Odd:
    x = keras.Input((20,), dtype="int32")
    y = layers.GlobalAveragePooling1D()(layers.Embedding(100, 16)(x))
    model = keras.Model(x, layers.Dense(2)(layers.Dense(32, activation="gelu")(y)))
    batches = [(RANDOM.integers(0, 100, (4, 20)).astype(np.int32),) for _ in range(2)]
    return model, batches, ()


def recurrent() -> Odd:
    x = keras.Input((10, 8))
    y = layers.Bidirectional(layers.LSTM(16, return_sequences=True))(x)
    return of_keras(keras.Model(x, layers.Dense(2)(layers.GRU(8)(y))), (4, 10, 8))


def one_and_three_dimensions() -> Odd:
    x, z = keras.Input((40, 16)), keras.Input((8, 8, 8, 4))
    y = layers.MaxPooling1D()(layers.Conv1D(16, 3, activation="relu")(x))
    y = layers.Conv1D(16, 3, padding="causal", dilation_rate=2)(y)
    deep = layers.GlobalAveragePooling3D()(layers.Conv3D(8, 3, activation="relu")(z))
    both = layers.Concatenate()([layers.GlobalMaxPooling1D()(y), deep])
    return of_keras(keras.Model([x, z], layers.Dense(2)(both)), (4, 40, 16), (4, 8, 8, 8, 4))


ODD: tuple[Callable[[], Odd], ...] = (
    channels_first,
    shared_weights,
    dilations,
    paddings,
    batched_products,
    outputs_in_the_middle,
    old_control_flow,
    functions,
    dead_and_wild_channels,
    transposed_products,
    other_number_types,
    several_inputs,
    unknown_sizes,
    called_on_a_batch,
    a_class_of_ones_own,
    squeeze_and_excite,
    embedding,
    recurrent,
    one_and_three_dimensions,
)
