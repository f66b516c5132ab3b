"""More cases of the TensorFlow zoo: what models are fed, where they ran, how old graphs branch."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from backends.tensorflow.nets import graph_of
from lpot.backends.tensorflow.runtime import GraphDef, tf, v1

keras = tf.keras
layers = keras.layers
RANDOM = np.random.default_rng(13)


def rows(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def dense() -> Any:
    return keras.Sequential(
        [keras.Input((16,)), layers.Dense(32, activation="relu"), layers.Dense(4)]
    )


def nests() -> Any:
    weight = tf.constant(rows(8, 8))

    @tf.function
    def call(given: Any) -> Any:
        first, second = given["b"]
        return {"sum": tf.nn.relu(given["a"] @ weight) + first, "rest": [second @ weight]}

    return call, [({"a": rows(4, 8), "b": (rows(4, 8), rows(4, 8))},)] * 2


def looped() -> Any:
    weight = tf.constant(rows(16, 16))

    @tf.function
    def call(x: Any) -> Any:
        for _ in tf.range(3):
            x = tf.nn.relu(x @ weight)
        if tf.reduce_sum(x) > 0:
            x = x @ weight
        return x @ weight

    return call, [rows(4, 16)] * 2


def of_bytes() -> Any:
    given = keras.Input((16, 16, 3), dtype="uint8")
    x = layers.Conv2D(8, 3, activation="relu")(layers.Rescaling(1 / 255.0)(given))
    model = keras.Model(given, layers.Dense(4)(layers.Flatten()(x)))
    return model, [RANDOM.integers(0, 255, (2, 16, 16, 3)).astype(np.uint8)] * 2


def of_ids() -> Any:
    given = keras.Input((6,), dtype="int64")
    x = layers.Embedding(50, 16, mask_zero=True)(given)
    x = layers.Bidirectional(layers.LSTM(8, return_sequences=True))(x)
    model = keras.Model(given, layers.Dense(3)(layers.GRU(8)(x)))
    return model, [RANDOM.integers(0, 50, (4, 6))] * 2


def of_halves() -> Any:
    given = keras.Input((16,), dtype="float16")
    x = layers.Dense(32, activation="relu")(given)
    return keras.Model(given, layers.Dense(4)(x)), [rows(4, 16).astype(np.float16)] * 2


def called_twice() -> Any:
    base = keras.Sequential([layers.Conv2D(8, 3, activation="relu"), layers.GlobalMaxPooling2D()])
    one, two = keras.Input((16, 16, 3)), keras.Input((16, 16, 3))
    apart = layers.Dense(4)(base(one) - base(two))
    model = keras.Model([one, two], {"apart": {"scores": apart}, "list": [base(one)]})
    return model, [(rows(2, 16, 16, 3), rows(2, 16, 16, 3))] * 2


def with_assets() -> Any:
    folder = Path(tempfile.mkdtemp())
    (folder / "words.txt").write_text("a\nb\nc\n")
    given = keras.Input((3,), dtype="string")
    x = layers.StringLookup(vocabulary=str(folder / "words.txt"))(given)
    x = layers.Dense(4)(layers.Flatten()(layers.Embedding(8, 16)(x)))
    keras.Model(given, x).export(str(folder / "saved"))
    return folder / "saved", [np.array([["a", "b", "zz"]] * 4)] * 2


def on_devices() -> GraphDef:
    def build(make: Any) -> None:
        x = v1.placeholder(tf.float32, [None, 16], name="x")
        with tf.device("/device:GPU:1"):
            x = tf.nn.relu(make.dense(x, 32, "up"))
        with tf.device("/job:worker/task:3/device:GPU:0"):
            tf.identity(make.dense(x, 4, "down"), name="y")

    return graph_of(build)


def old_flow(kind: str) -> GraphDef:
    """Switch and Merge, or Enter and Exit, as TensorFlow 1 wrote them."""

    def build(make: Any) -> None:
        x = v1.placeholder(tf.float32, [None, 16], name="x")
        weight = tf.constant(rows(16, 16))
        x = tf.matmul(x, weight)
        if kind == "branch":
            x = v1.cond(tf.reduce_sum(x) > 0, lambda: tf.matmul(x, weight), lambda: x * 2.0)
        else:
            _, x = v1.while_loop(
                lambda i, h: i < 3, lambda i, h: (i + 1, tf.nn.relu(tf.matmul(h, weight))), [0, x]
            )
        tf.identity(tf.matmul(x, weight), name="y")

    v1.disable_control_flow_v2()
    try:
        return graph_of(build)
    finally:
        v1.enable_control_flow_v2()


def composite(kind: str) -> Any:
    """A function of a ragged or a sparse tensor."""
    weight = tf.constant(rows(10, 8))
    if kind == "ragged":
        spec: Any = tf.RaggedTensorSpec([None, None], tf.float32)
        given: Any = tf.ragged.constant([[1.0, 2.0], [3.0]])
    else:
        spec = tf.SparseTensorSpec([None, 10], tf.float32)
        given = tf.sparse.from_dense(np.eye(4, 10, dtype=np.float32))

    @tf.function(input_signature=[spec])
    def call(x: Any) -> Any:
        full = x.to_tensor(shape=[None, 10]) if kind == "ragged" else tf.sparse.to_dense(x)
        return tf.matmul(full, weight)

    return call, [given] * 2


def with_words() -> Any:
    weight = tf.constant(rows(16, 16))

    @tf.function
    def call(x: Any) -> Any:
        return tf.reduce_mean(x @ weight), tf.shape(x)[0], tf.constant("name")

    return call, [rows(4, 16)] * 2


def scaled_without_bias() -> GraphDef:
    def build(make: Any) -> None:
        x = v1.placeholder(tf.float32, [None, 16], name="x")
        tf.matmul(x * 0.25, tf.constant(rows(16, 8)), name="y")

    return graph_of(build)


def with_default() -> GraphDef:
    def build(make: Any) -> None:
        x = v1.placeholder(tf.float32, [None, 16], name="x")
        keep = v1.placeholder_with_default(1.0, [], name="keep")
        tf.identity(make.dense(x * keep, 8), name="y")

    return graph_of(build)


class Scale(layers.Layer):
    def build(self, shape: Any) -> None:
        self.kernel = self.add_weight(shape=(shape[-1], 8))

    def call(self, x: Any) -> Any:
        return tf.matmul(x, self.kernel)


def scaled() -> Any:
    return keras.Sequential([keras.Input((16,)), Scale(), layers.Dense(4)])


def saved(model: Any, name: str) -> Path:
    path = Path(tempfile.mkdtemp()) / name
    model.save_weights(path) if name.endswith(".weights.h5") else model.save(path)
    return path


def unknown_op() -> GraphDef:
    made = on_devices()
    made.node.add(name="z", op="NotOfTensorFlow", input=["y"])
    return made


class Rewound:
    """A loader that keeps its place on itself, as the tutorials of TensorFlow write it."""

    batch_size = 4

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.left = iter([rows(4, 16) for _ in range(5)])

    def get_input(self) -> np.ndarray:
        return next(self.left)

    def __iter__(self) -> Iterator[np.ndarray]:
        return self

    def __next__(self) -> np.ndarray:
        return self.get_input()


FED: Mapping[str, Callable[[], Any]] = {
    "a nest of dicts and tuples": nests,
    "loops and branches of a function": looped,
    "bytes": of_bytes,
    "ids and masks": of_ids,
    "16-bit floats": of_halves,
    "one part called twice": called_twice,
    "a SavedModel with assets": with_assets,
    "devices that are not here": lambda: (on_devices(), [rows(4, 16)] * 2),
    "a branch of TensorFlow 1": lambda: (old_flow("branch"), [rows(4, 16)] * 2),
    "a loop of TensorFlow 1": lambda: (old_flow("loop"), [rows(4, 16)] * 2),
    "an input with a default": lambda: (with_default(), [rows(4, 16)] * 2),
    "a scale before a product without bias": lambda: (scaled_without_bias(), [rows(4, 16)] * 2),
    "a ragged tensor": lambda: composite("ragged"),
    "a sparse tensor": lambda: composite("sparse"),
    "numbers and words that come out": with_words,
    "a layer of one's own": lambda: (scaled(), [rows(4, 16)] * 2),
    "a loader that keeps its place": lambda: (dense(), Rewound()),
}
WRONG: Mapping[str, Callable[[], Any]] = {
    "a layer of one's own, in a file": lambda: (saved(scaled(), "m.keras"), [rows(4, 16)] * 2),
    "weights alone": lambda: (saved(dense(), "m.weights.h5"), [rows(4, 16)] * 2),
    "an op that nobody has": lambda: (unknown_op(), [rows(4, 16)] * 2),
    "a graph without nodes": lambda: (GraphDef(), [rows(4, 16)] * 2),
    "samples without a batch axis": lambda: (dense(), [rows(16)] * 2),
}
