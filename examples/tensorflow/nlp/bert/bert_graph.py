"""BERT for question answering as a TensorFlow 1 graph that reads its features from a TFRecord.

Variables carry the names of the public BERT checkpoints; the head stands at the root of the graph
(`MatMul`, `BiasAdd`, `unstack`), the encoder's products under `bert/encoder/layer_N/…`.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import tensorflow as tf

v1 = tf.compat.v1

MASKED = -10000.0
EPSILON = 1e-12


@dataclass(frozen=True)
class BertConfig:
    """What bert_config.json says of the net's shape; keys that do not matter here are left out."""

    vocab_size: int
    hidden_size: int = 768
    num_hidden_layers: int = 12
    num_attention_heads: int = 12
    intermediate_size: int = 3072
    hidden_act: str = "gelu"
    max_position_embeddings: int = 512
    type_vocab_size: int = 2

    @classmethod
    def from_file(cls, path: str | Path) -> BertConfig:
        known = {field.name for field in fields(cls)}
        content = json.loads(Path(path).read_text())
        config = cls(**{key: value for key, value in content.items() if key in known})
        if config.hidden_act not in ACTIVATIONS:
            raise SystemExit(f"{path}: hidden_act {config.hidden_act!r}, not in {[*ACTIVATIONS]}")
        if config.hidden_size % config.num_attention_heads:
            raise SystemExit(f"{path}: hidden_size is no multiple of num_attention_heads")
        return config


def gelu(x: Any) -> Any:
    """As the public BERT code has it: by tanh."""
    return x * (0.5 * (1.0 + tf.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * tf.pow(x, 3)))))


def gelu_erf(x: Any) -> Any:
    """As PyTorch's BERT has it."""
    return x * 0.5 * (1.0 + tf.math.erf(x / math.sqrt(2.0)))


ACTIVATIONS: dict[str, Callable[[Any], Any]] = {
    "gelu": gelu,
    "gelu_erf": gelu_erf,
    "relu": tf.nn.relu,
    "tanh": tf.tanh,
}


def question_graph(config: BertConfig, seq_length: int) -> tf.Graph:
    """The whole graph: `input_file` and `batch_size` are fed once, to `MakeIterator`.

    Fetch `IteratorGetNext:3` (unique ids), `unstack:0` and `unstack:1` (start and end logits).
    """
    graph = tf.Graph()
    with graph.as_default():
        features = read_features(seq_length)
        with v1.variable_scope("bert"):
            hidden = encode(config, features, seq_length)
        with v1.variable_scope("cls/squad"):
            weights = variable("output_weights", [2, config.hidden_size])
            bias = variable("output_bias", [2])
        logits = tf.nn.bias_add(tf.matmul(hidden, weights, transpose_b=True), bias)
        logits = tf.transpose(tf.reshape(logits, [-1, seq_length, 2]), [2, 0, 1])
        tf.unstack(logits, axis=0, name="unstack")
    return graph


def read_features(seq_length: int) -> dict[str, Any]:
    file = v1.placeholder(tf.string, [], name="input_file")
    size = v1.placeholder(tf.int64, [], name="batch_size")
    columns = {
        name: tf.io.FixedLenFeature([seq_length], tf.int64)
        for name in ("input_ids", "input_mask", "segment_ids")
    }
    columns["unique_ids"] = tf.io.FixedLenFeature([], tf.int64)

    def parse(record: Any) -> dict[str, Any]:
        found = tf.io.parse_single_example(record, columns)
        return {name: tf.cast(value, tf.int32) for name, value in found.items()}

    data = tf.data.TFRecordDataset(file).map(parse).batch(size)
    # The features come in the order of their names: unique_ids is IteratorGetNext:3.
    return v1.data.make_initializable_iterator(data).get_next()


def variable(name: str, shape: list[int]) -> Any:
    # Filled from a checkpoint only: zeros cost nothing to hold in the graph.
    return v1.get_variable(name, shape, initializer=v1.zeros_initializer(), use_resource=False)


def encode(config: BertConfig, features: dict[str, Any], seq_length: int) -> Any:
    """Rows of the last hidden layer, one for each token."""
    hidden = embed(config, features, seq_length)
    with v1.variable_scope("encoder"):
        mask = tf.cast(features["input_mask"][:, None, None, :], tf.float32)
        mask = (1.0 - mask) * MASKED
        for number in range(config.num_hidden_layers):
            with v1.variable_scope(f"layer_{number}"):
                hidden = layer(config, hidden, mask, seq_length)
    return hidden


def embed(config: BertConfig, features: dict[str, Any], seq_length: int) -> Any:
    width = config.hidden_size
    with v1.variable_scope("embeddings"):
        words = variable("word_embeddings", [config.vocab_size, width])
        types = variable("token_type_embeddings", [config.type_vocab_size, width])
        places = variable("position_embeddings", [config.max_position_embeddings, width])
        total = tf.gather(words, features["input_ids"]) + tf.gather(types, features["segment_ids"])
        return normalize(tf.reshape(total + places[None, :seq_length], [-1, width]))


def layer(config: BertConfig, x: Any, mask: Any, seq_length: int) -> Any:
    width = config.hidden_size
    with v1.variable_scope("attention"):
        with v1.variable_scope("self"):
            mixed = attend(config, x, mask, seq_length)
        with v1.variable_scope("output"):
            x = normalize(dense(mixed, width, "dense") + x)
    with v1.variable_scope("intermediate"):
        wide = ACTIVATIONS[config.hidden_act](dense(x, config.intermediate_size, "dense"))
    with v1.variable_scope("output"):
        return normalize(dense(wide, width, "dense") + x)


def attend(config: BertConfig, x: Any, mask: Any, seq_length: int) -> Any:
    heads = config.num_attention_heads
    size = config.hidden_size // heads

    def split(name: str) -> Any:
        rows = tf.reshape(dense(x, config.hidden_size, name), [-1, seq_length, heads, size])
        return tf.transpose(rows, [0, 2, 1, 3])

    query, key, value = split("query"), split("key"), split("value")
    scores = tf.matmul(query, key, transpose_b=True) * (1.0 / math.sqrt(size))
    mixed = tf.matmul(tf.nn.softmax(scores + mask), value)
    return tf.reshape(tf.transpose(mixed, [0, 2, 1, 3]), [-1, config.hidden_size])


def dense(x: Any, width: int, name: str) -> Any:
    with v1.variable_scope(name):
        kernel = variable("kernel", [int(x.shape[-1]), width])
        return tf.nn.bias_add(tf.matmul(x, kernel), variable("bias", [width]))


def normalize(x: Any) -> Any:
    width = int(x.shape[-1])
    with v1.variable_scope("LayerNorm"):
        beta, gamma = variable("beta", [width]), variable("gamma", [width])
        mean, variance = tf.nn.moments(x, [-1], keepdims=True)
        return tf.nn.batch_normalization(x, mean, variance, beta, gamma, EPSILON)
