"""Small TensorFlow graphs with the structures that matter, the same in every process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from lpot.backends.tensorflow.runtime import GraphDef, tf, v1

SIZE = 16


class Maker:
    """Layers with seeded weights, written into the graph that is current."""

    def __init__(self, seed: int = 0) -> None:
        self.random = np.random.default_rng(seed)

    def weight(self, *shape: int, gain: float = 1.0) -> Any:
        fan = float(np.prod(shape[:-1]))
        values = self.random.normal(size=shape) * gain / np.sqrt(fan)
        return tf.constant(values.astype(np.float32))

    def vector(self, size: int, spread: float = 0.3, around: float = 0.0) -> Any:
        values = around + spread * self.random.normal(size=size)
        return tf.constant(values.astype(np.float32))

    def conv(
        self, x: Any, channels: int, size: int = 3, stride: int = 1, name: str = "conv", **more: Any
    ) -> Any:
        weight = self.weight(size, size, int(x.shape[-1]), channels, gain=1.4)
        padding = more.get("padding", "SAME")
        return tf.nn.conv2d(x, weight, stride, padding, name=name)

    def depthwise(self, x: Any, size: int = 3, name: str = "depthwise") -> Any:
        weight = self.weight(size, size, int(x.shape[-1]), 1, gain=6.0)
        return tf.nn.depthwise_conv2d(x, weight, [1, 1, 1, 1], "SAME", name=name)

    def norm(self, x: Any, name: str = "norm") -> Any:
        size = int(x.shape[-1])
        made, _, _ = v1.nn.fused_batch_norm(
            x,
            self.vector(size, around=1.0),
            self.vector(size),
            self.vector(size),
            tf.abs(self.vector(size, around=1.0)) + 0.5,
            is_training=False,
            name=name,
        )
        return made

    def dense(self, x: Any, width: int, name: str = "dense") -> Any:
        product = tf.matmul(x, self.weight(int(x.shape[-1]), width), name=f"{name}/MatMul")
        return tf.nn.bias_add(product, self.vector(width), name=f"{name}/BiasAdd")


def graph_of(build: Callable[[Maker], None], seed: int = 0) -> GraphDef:
    graph = tf.Graph()
    with graph.as_default():
        build(Maker(seed))
    return graph.as_graph_def()


def image(channels: int = 8) -> Any:
    return v1.placeholder(tf.float32, [None, SIZE, SIZE, channels], name="x")


def little() -> GraphDef:
    """The least with a residual, a follower and a dense layer."""

    def build(make: Maker) -> None:
        stem = tf.nn.relu(make.norm(make.conv(image(), 16, name="stem")), name="stem/relu")
        inner = tf.nn.relu(make.conv(stem, 16, 1, name="inner"))
        total = tf.nn.relu(make.norm(make.conv(inner, 16, name="deep")) + stem)
        pooled = tf.nn.max_pool2d(total, 2, 2, "SAME", name="pool")
        last = tf.nn.relu(make.conv(pooled, 16, 3, 2, name="last"))
        tf.identity(make.dense(tf.reduce_mean(last, [1, 2]), 10), name="logits")

    return graph_of(build)


def cnn() -> GraphDef:
    """Batch norm, residual with and without Relu, depthwise, pooling, concatenation, dense."""

    def build(make: Maker) -> None:
        x = image()
        stem = tf.nn.relu(make.norm(make.conv(x, 16, name="stem/conv")), name="stem/relu")
        inner = tf.nn.relu(tf.nn.bias_add(make.conv(stem, 16, name="a/conv"), make.vector(16)))
        total = make.norm(make.conv(inner, 16, name="b/conv")) + stem
        total = tf.nn.relu(total, name="sum")
        pooled = tf.nn.max_pool2d(total, 2, 2, "SAME", name="pool")
        wide = tf.nn.relu6(make.norm(make.conv(pooled, 32, 1, name="c/conv")), name="c/relu6")
        deep = tf.nn.relu6(make.norm(make.depthwise(wide, name="d/depthwise")), name="d/relu6")
        thin = make.norm(make.conv(deep, 16, 1, name="e/conv"), name="e/out")
        again = tf.nn.relu6(make.norm(make.conv(thin, 32, 1, name="f/conv")))
        flat = make.norm(make.conv(again, 16, 1, name="g/conv")) + thin
        both = tf.concat([flat, tf.nn.relu(make.conv(flat, 8, 1, name="h/conv"))], 3, name="join")
        last = tf.nn.relu(make.conv(both, 16, 3, 2, name="i/conv"), name="last")
        rows = tf.reduce_mean(last, [1, 2])
        hidden = tf.nn.relu(make.dense(rows, 24, "j"))
        tf.identity(make.dense(hidden, 10, "k"), name="logits")

    return graph_of(build)


def block(gelu: str = "tanh") -> GraphDef:
    """A transformer block: projections, GELU, residual sums."""

    def build(make: Maker) -> None:
        x = v1.placeholder(tf.float32, [None, 32], name="x")
        one = make.dense(x, 32, "query")
        score = tf.nn.softmax(tf.matmul(one, make.dense(x, 32, "key"), transpose_b=True))
        mixed = make.dense(tf.matmul(score, make.dense(x, 32, "value")), 32, "out") + x
        wide = make.dense(mixed, 64, "up")
        if gelu == "tanh":
            cube = wide + 0.044715 * tf.pow(wide, 3.0)
            wide = wide * (0.5 * (1.0 + tf.tanh(0.7978845608 * cube)))
        else:
            wide = 0.5 * wide * (1.0 + tf.math.erf(wide / 1.4142135624))
        tf.identity(make.dense(wide, 32, "down") + mixed, name="y")

    return graph_of(build)


def images(count: int = 3, batch: int = 4, channels: int = 8, seed: int = 1) -> list[Any]:
    random = np.random.default_rng(seed)
    shape = (batch, SIZE, SIZE, channels)
    return [(random.normal(size=shape).astype(np.float32),) for _ in range(count)]


def rows(count: int = 3, batch: int = 16, width: int = 32, seed: int = 1) -> list[Any]:
    random = np.random.default_rng(seed)
    return [(random.normal(size=(batch, width)).astype(np.float32),) for _ in range(count)]


def iterator_graph() -> GraphDef:
    """A graph that reads its data itself: file name and batch size are fed once."""
    graph = tf.Graph()
    with graph.as_default():
        make = Maker()
        file = v1.placeholder(tf.string, [], name="input_file")
        size = v1.placeholder(tf.int64, [], name="batch_size")
        data = tf.data.TextLineDataset(file)
        data = data.map(lambda line: tf.strings.to_number(tf.strings.split([line], ",").values))
        data = data.map(lambda row: (tf.ensure_shape(row, [8]), tf.cast(row[0], tf.int32)))
        iterator = v1.data.make_initializable_iterator(data.batch(size))
        assert iterator.initializer.name == "MakeIterator"
        values, label = iterator.get_next()
        hidden = tf.nn.relu(make.dense(values, 16, "hidden"))
        logits = make.dense(hidden, 2, "MatMul_head")
        start, end = tf.unstack(logits, axis=1, name="unstack")
        assert (start.name, end.name) == ("unstack:0", "unstack:1")
        tf.identity(label, name="label")
    return graph.as_graph_def()


def write_lines(path: Path, count: int = 20) -> Path:
    random = np.random.default_rng(3)
    lines = [",".join(f"{v:.4f}" for v in random.normal(size=8)) for _ in range(count)]
    path.write_text("\n".join(lines) + "\n")
    return path
