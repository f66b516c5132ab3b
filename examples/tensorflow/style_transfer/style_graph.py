"""A small net for style transfer, untrained: one encoder, statistics exchanged, one decoder.

    python style_graph.py --output_dir=./model

Content features take the mean and deviation of the style's (AdaIN). The weights are drawn from a
seed: what comes out is the content tinted by the style, enough to see what INT8 changes.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path
from typing import Any

os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # read when TensorFlow is imported

import numpy as np
import tensorflow as tf

from lpot.adaptor.tf_utils.util import write_graph

v1 = tf.compat.v1
FILE = "style_transfer.pb"
WIDTHS = (32, 64, 128)


class Weights:
    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)
        self.made: dict[str, np.ndarray] = {}

    def conv(self, x: Any, width: int, stride: int, name: str, size: int = 3) -> Any:
        shape = (size, size, int(x.shape[-1]), width)
        if name not in self.made:  # content and style go through the same weights
            scale = np.sqrt(2 / np.prod(shape[:3]))
            self.made[name] = (scale * self.random.normal(size=shape)).astype(np.float32)
        return tf.nn.conv2d(x, self.made[name], stride, "SAME", name=f"{name}/Conv2D")


def style_graph(seed: int = 0) -> Any:
    """Frozen; inputs `content` and `style`, images in 0 to 1; output `stylized`."""
    graph = tf.Graph()
    with graph.as_default():
        weights = Weights(seed)
        content = v1.placeholder(tf.float32, [None, None, None, 3], name="content")
        style = v1.placeholder(tf.float32, [None, None, None, 3], name="style")
        mixed = exchange(encode(weights, content, "content"), encode(weights, style, "style"))
        tint = decode(weights, mixed)
        size = tf.shape(content)[1:3]
        tint = tf.image.resize(tint, size)
        tf.clip_by_value(content + 0.4 * tf.tanh(0.5 * tint), 0.0, 1.0, name="stylized")
    return graph.as_graph_def()


def encode(weights: Weights, image: Any, scope: str) -> Any:
    x = image - 0.5
    with tf.name_scope(scope):
        for number, width in enumerate(WIDTHS):
            x = tf.nn.relu(weights.conv(x, width, 1 if number == 0 else 2, f"encode{number}"))
    return x


def exchange(content: Any, style: Any) -> Any:
    """The content's features with the style's mean and deviation."""
    mean, variance = tf.nn.moments(content, [1, 2], keepdims=True)
    other, spread = tf.nn.moments(style, [1, 2], keepdims=True)
    return (content - mean) * tf.sqrt((spread + 1e-3) / (variance + 1e-3)) + other


def decode(weights: Weights, x: Any) -> Any:
    for number, width in enumerate(reversed(WIDTHS[:-1])):
        x = tf.repeat(tf.repeat(x, 2, axis=1), 2, axis=2)
        x = tf.nn.relu(weights.conv(x, width, 1, f"decode{number}"))
    return weights.conv(x, 3, 1, "image")


def main() -> None:
    parser = argparse.ArgumentParser(description="Write the style net as a frozen graph")
    parser.add_argument("--output_dir", type=Path, default=Path("./model"))
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    write_graph(style_graph(options.seed), options.output_dir / FILE)
    print(options.output_dir / FILE)


if __name__ == "__main__":
    main()
