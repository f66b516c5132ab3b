"""Models for the TensorFlow zoo: families of keras.applications, odd structures, old forms.

Each entry makes (model, batches); what it takes besides goes to `lpot.tune`.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from backends.tensorflow.nets import graph_of
from backends.tensorflow.odd_nets import ODD
from lpot.backends.tensorflow.runtime import tf, v1
from zoo.tensorflow_habits import HABITS, MISTAKES
from zoo.tensorflow_inputs import FED, WRONG
from zoo.tensorflow_packages import packaged

keras = tf.keras
layers = keras.layers
RANDOM = np.random.default_rng(11)
Case = tuple[Any, list[Any], dict[str, Any]]

FAMILIES: Mapping[str, int] = {
    **dict.fromkeys(("MobileNet", "MobileNetV2", "MobileNetV3Small", "MobileNetV3Large"), 64),
    **dict.fromkeys(("ResNet50", "ResNet50V2", "VGG16", "DenseNet121", "NASNetMobile"), 64),
    **dict.fromkeys(("EfficientNetB0", "EfficientNetV2B0", "ConvNeXtTiny"), 64),
    **dict.fromkeys(("InceptionV3", "InceptionResNetV2", "Xception"), 80),
}


def values(*shape: int) -> np.ndarray:
    return RANDOM.normal(size=shape).astype(np.float32)


def batches(*shape: int) -> list[Any]:
    return [values(*shape) for _ in range(2)]


def family(name: str, size: int) -> Case:
    made = getattr(keras.applications, name)(
        weights=None, include_top=False, pooling="avg", input_shape=(size, size, 3)
    )
    return made, [128 + 50 * values(2, size, size, 3) for _ in range(2)], {}


# -- structures ---------------------------------------------------------------------------------


def sequence(*steps: Any, shape: tuple[Any, ...] = (16, 16, 8)) -> Any:
    return keras.Sequential([keras.Input(shape), *steps, layers.Dense(4)])


def flat(*steps: Any, shape: tuple[Any, ...] = (16, 16, 8)) -> Any:
    return sequence(*steps, layers.GlobalAveragePooling2D(), shape=shape)


def conv(**kwargs: Any) -> Any:
    return layers.Conv2D(16, 3, activation="relu", **kwargs)


def twin_pools() -> Any:
    x = given = keras.Input((16, 16, 8))
    x = conv()(x)
    ends = [layers.Add()([layers.MaxPooling2D(2)(x), layers.Conv2D(16, 2, 2)(x)]) for _ in range(2)]
    return keras.Model(given, layers.Concatenate()(ends))


def attention(**kwargs: Any) -> Any:
    x = given = keras.Input((12, 32))
    x = layers.Add()([x, layers.MultiHeadAttention(4, 8)(x, x, **kwargs)])
    x = layers.LayerNormalization()(x)
    x = layers.Add()([x, layers.Dense(32)(layers.Dense(64, activation="gelu")(x))])
    return keras.Model(given, layers.Dense(4)(layers.GlobalAveragePooling1D()(x)))


def unet() -> Any:
    x = given = keras.Input((16, 16, 3))
    skip = x = conv(padding="same")(x)
    x = conv(padding="same")(layers.MaxPooling2D()(x))
    x = layers.Conv2DTranspose(16, 2, 2)(x)
    x = conv(padding="same")(layers.Concatenate()([x, skip]))
    x = layers.UpSampling2D(2, interpolation="bilinear")(x)
    return keras.Model(given, layers.Conv2D(2, 1)(x))


def sharing() -> Any:
    left, right = keras.Input((16, 16, 3), name="left"), keras.Input((16, 16, 3), name="right")
    tower = keras.Sequential([conv(), layers.GlobalAveragePooling2D(), layers.Dense(8)])
    return keras.Model([left, right], layers.Dot(1)([tower(left), tower(right)]))


def many_outputs() -> Any:
    x = given = keras.Input((16, 16, 3))
    one = conv()(x)
    two = conv()(one)
    return keras.Model(given, {"deep": two, "shallow": one, "mean": tf.keras.ops.mean(two)})


def nested() -> Any:
    inner = flat(conv(), layers.BatchNormalization(), conv())
    given = keras.Input((16, 16, 8))
    return keras.Model(given, layers.Softmax()(inner(given)))


STRUCTURES: Mapping[str, Callable[[], tuple[Any, list[Any]]]] = {
    "twin pools and sums": lambda: (twin_pools(), batches(2, 16, 16, 8)),
    "attention": lambda: (attention(), batches(2, 12, 32)),
    "causal attention": lambda: (attention(use_causal_mask=True), batches(2, 12, 32)),
    "u-net with transposed convolutions": lambda: (unet(), batches(2, 16, 16, 3)),
    "siamese": lambda: (sharing(), [(values(2, 16, 16, 3), values(2, 16, 16, 3))] * 2),
    "outputs in a dict": lambda: (many_outputs(), batches(2, 16, 16, 3)),
    "a model in a model": lambda: (nested(), batches(2, 16, 16, 8)),
    "separable": lambda: (flat(layers.SeparableConv2D(16, 3), conv()), batches(2, 16, 16, 8)),
    "depthwise": lambda: (flat(layers.DepthwiseConv2D(3), conv()), batches(2, 16, 16, 8)),
    "grouped": lambda: (flat(conv(groups=4), conv()), batches(2, 16, 16, 8)),
    "dilated": lambda: (flat(conv(dilation_rate=2), conv()), batches(2, 16, 16, 8)),
    "PReLU": lambda: (flat(conv(), layers.PReLU(shared_axes=[1, 2])), batches(2, 16, 16, 8)),
    "LeakyReLU": lambda: (
        flat(layers.Conv2D(16, 3), layers.LeakyReLU(), conv()),
        batches(2, 16, 16, 8),
    ),
    "swish": lambda: (
        flat(layers.Conv2D(16, 3, activation="swish"), conv()),
        batches(2, 16, 16, 8),
    ),
    "hard swish": lambda: (
        flat(layers.Conv2D(16, 3, activation="hard_swish"), conv()),
        batches(2, 16, 16, 8),
    ),
    "group norm": lambda: (
        flat(layers.Conv2D(16, 3), layers.GroupNormalization(4), conv()),
        batches(2, 16, 16, 8),
    ),
    "batch norm first": lambda: (
        flat(layers.BatchNormalization(), conv(), layers.BatchNormalization()),
        batches(2, 16, 16, 8),
    ),
    "preprocessing": lambda: (
        flat(layers.Rescaling(1 / 127.5, -1), layers.Resizing(12, 12), conv()),
        batches(2, 16, 16, 8),
    ),
    "augmentation": lambda: (
        flat(layers.RandomFlip(), layers.Dropout(0.5), layers.GaussianNoise(1.0), conv()),
        batches(2, 16, 16, 8),
    ),
    "cropping and padding": lambda: (
        flat(layers.ZeroPadding2D(2), conv(), layers.Cropping2D(1), conv()),
        batches(2, 16, 16, 8),
    ),
    "Conv1D": lambda: (
        sequence(layers.Conv1D(16, 3), layers.Conv1D(16, 3), shape=(20, 8)),
        batches(2, 20, 8),
    ),
    "causal Conv1D": lambda: (
        sequence(layers.Conv1D(16, 3, padding="causal", dilation_rate=2), shape=(20, 8)),
        batches(2, 20, 8),
    ),
    "Conv3D": lambda: (
        sequence(layers.Conv3D(8, 2), layers.GlobalAveragePooling3D(), shape=(6, 6, 6, 2)),
        batches(2, 6, 6, 6, 2),
    ),
    "LSTM": lambda: (sequence(layers.LSTM(16), shape=(10, 8)), batches(2, 10, 8)),
    "bidirectional GRU": lambda: (
        sequence(layers.Bidirectional(layers.GRU(16)), shape=(10, 8)),
        batches(2, 10, 8),
    ),
    "time distributed": lambda: (
        sequence(layers.TimeDistributed(layers.Dense(8)), layers.LSTM(8), shape=(10, 8)),
        batches(2, 10, 8),
    ),
    "ConvLSTM": lambda: (
        sequence(layers.ConvLSTM2D(4, 3), layers.GlobalAveragePooling2D(), shape=(4, 8, 8, 2)),
        batches(2, 4, 8, 8, 2),
    ),
    "free height and width": lambda: (
        flat(conv(), conv(), shape=(None, None, 3)),
        [values(2, 16, 16, 3), values(2, 20, 24, 3)],
    ),
    "one batch size": lambda: (
        keras.Sequential([keras.Input(batch_shape=(2, 16, 16, 3)), conv(), layers.Flatten()]),
        batches(2, 16, 16, 3),
    ),
    "dense alone": lambda: (sequence(layers.Dense(64), shape=(32,)), batches(4, 32)),
    "einsum": lambda: (
        sequence(layers.EinsumDense("abc,cde->abde", (None, 4, 8)), shape=(6, 16)),
        batches(2, 6, 16),
    ),
    "zero weights": lambda: (
        flat(conv(kernel_initializer="zeros"), conv()),
        batches(2, 16, 16, 8),
    ),
    "constant input": lambda: (flat(conv(), conv()), [np.zeros((2, 16, 16, 8), np.float32)] * 2),
    "nothing to quantize": lambda: (
        keras.Sequential([keras.Input((8,)), layers.Activation("relu")]),
        batches(2, 8),
    ),
    "sixty layers": lambda: (
        flat(*(conv(padding="same") for _ in range(60))),
        batches(1, 16, 16, 8),
    ),
    "twenty thousand classes": lambda: (sequence(layers.Dense(20000), shape=(16,)), batches(2, 16)),
}


# -- forms --------------------------------------------------------------------------------------


def folder() -> Path:
    return Path(tempfile.mkdtemp(prefix="zoo"))


def frozen(make: Any) -> None:
    x = v1.placeholder(tf.float32, [None, 16, 16, 8], name="x")
    y = tf.nn.relu(make.norm(make.conv(x, 16, name="one")))
    y = tf.nn.relu(make.conv(y, 16, name="two") + y)
    tf.identity(make.conv(tf.nn.max_pool2d(y, 2, 2, "SAME"), 8, name="three"), name="y")


def as_file(suffix: str, binary: bool = True) -> Path:
    place = folder()
    tf.io.write_graph(graph_of(frozen), str(place), f"m{suffix}", as_text=not binary)
    return place / f"m{suffix}"


def with_variables(ends: Callable[[Any, Any, Any], Path]) -> Path:
    graph = tf.Graph()
    with graph.as_default(), v1.Session(graph=graph) as session:
        x = v1.placeholder(tf.float32, [None, 16, 16, 8], name="x")
        w = v1.get_variable("w", [3, 3, 8, 16], use_resource=False)
        v = v1.get_variable("v", [3, 3, 16, 8], use_resource=True)
        y = tf.nn.conv2d(tf.nn.relu(tf.nn.conv2d(x, w, 1, "SAME")), v, 1, "SAME")
        y = tf.identity(y, name="y")
        session.run(v1.global_variables_initializer())
        return ends(session, x, y)


def checkpoint(session: Any, x: Any, y: Any) -> Path:
    place = folder()
    v1.train.Saver().save(session, str(place / "model.ckpt"))
    return place


def old_saved_model(session: Any, x: Any, y: Any) -> Path:
    place = folder() / "saved"
    v1.saved_model.simple_save(session, str(place), {"image": x}, {"scores": y})
    return place


def old_lookup(session: Any, x: Any, y: Any) -> Path:
    place = folder() / "saved"
    words = v1.placeholder(tf.string, [None], name="words")
    table = tf.lookup.StaticHashTable(
        tf.lookup.KeyValueTensorInitializer(["a", "b"], tf.constant([1.0, 2.0])), 0.0
    )
    scores = tf.reduce_mean(y, [1, 2, 3]) * table.lookup(words)
    session.run(v1.tables_initializer())
    v1.saved_model.simple_save(
        session,
        str(place),
        {"image": x, "words": words},
        {"scores": scores},
        legacy_init_op=v1.tables_initializer(),
    )
    return place


def keras_file(suffix: str) -> Path:
    path = folder() / "m.h5" if suffix == ".hdf5" else folder() / f"m{suffix}"
    flat(conv(), conv()).save(path)
    return path.rename(path.with_suffix(suffix))


def exported(model: Any) -> Path:
    place = folder() / "exported"
    model.export(str(place), verbose=False)
    return place


def mixed(policy: str) -> Any:
    keras.mixed_precision.set_global_policy(policy)
    try:
        return flat(conv(), layers.BatchNormalization(), conv(), layers.Dense(8))
    finally:
        keras.mixed_precision.set_global_policy("float32")


class Subclassed(keras.Model):
    def __init__(self) -> None:
        super().__init__()
        self.embed, self.one = layers.Embedding(50, 16), layers.Dense(32, activation="relu")
        self.two = layers.Dense(4)

    def call(self, ids: Any, weights: Any) -> Any:
        return {"scores": self.two(self.one(tf.reduce_mean(self.embed(ids), 1) * weights))}


class Parts(tf.Module):
    def __init__(self) -> None:
        super().__init__()
        self.w = tf.Variable(values(8, 16))

    @tf.function
    def __call__(self, x: Any) -> Any:
        return tf.nn.relu(x @ self.w), x

    @tf.function
    def encode(self, x: Any) -> Any:
        return tf.tanh(x @ self.w)


PARTS = Parts()  # a method does not keep its module alive


def texts(output: str) -> Any:
    x = given = keras.Input((), dtype="string")
    sizes = {"output_sequence_length": 6} if output == "int" else {}
    x = layers.TextVectorization(output_mode=output, vocabulary=["a", "b", "c"], **sizes)(x)
    x = layers.Flatten()(layers.Embedding(10, 8)(x)) if output == "int" else x
    return keras.Model(given, layers.Dense(4)(layers.Dense(16, activation="relu")(x)))


def looked_up() -> Any:
    word, number = keras.Input((1,), dtype="string"), keras.Input((1,), dtype="int64")
    one = layers.StringLookup(vocabulary=["a", "b"], output_mode="one_hot")(word)
    two = layers.IntegerLookup(vocabulary=[5, 7], output_mode="one_hot")(number)
    x = layers.Dense(16, activation="relu")(layers.Concatenate()([one, two]))
    return keras.Model([word, number], layers.Dense(3)(x))


SENTENCES = [np.array(["a b", "c", "x a"], object)] * 2
IMAGES = (2, 16, 16, 8)
FORMS: Mapping[str, Callable[[], Case | tuple[Any, list[Any]]]] = {
    "frozen .pb": lambda: (as_file(".pb"), batches(*IMAGES)),
    "frozen .pbtxt": lambda: (as_file(".pbtxt", binary=False), batches(*IMAGES)),
    "GraphDef": lambda: (graph_of(frozen), batches(*IMAGES)),
    "checkpoint of TensorFlow 1": lambda: (with_variables(checkpoint), batches(*IMAGES)),
    "SavedModel of TensorFlow 1": lambda: (with_variables(old_saved_model), batches(*IMAGES)),
    "SavedModel of TensorFlow 1 with a table": lambda: (
        with_variables(old_lookup),
        [(values(*IMAGES), np.array(["a", "z"], object))] * 2,
    ),
    "SavedModel of Keras": lambda: (exported(flat(conv(), conv())), batches(*IMAGES)),
    ".keras": lambda: (keras_file(".keras"), batches(*IMAGES)),
    ".h5": lambda: (keras_file(".h5"), batches(*IMAGES)),
    ".hdf5": lambda: (keras_file(".hdf5"), batches(*IMAGES)),
    "mixed_float16": lambda: (mixed("mixed_float16"), batches(*IMAGES)),
    "mixed_bfloat16": lambda: (mixed("mixed_bfloat16"), batches(*IMAGES)),
    "float16": lambda: (mixed("float16"), batches(*IMAGES)),
    "subclassed, two arguments": lambda: (
        Subclassed(),
        [(RANDOM.integers(0, 50, (4, 10)), values(4, 16))] * 2,
    ),
    "tf.Module": lambda: (PARTS, batches(4, 8)),
    "tf.function": lambda: (PARTS.encode, batches(4, 8)),
    "ConcreteFunction": lambda: (
        PARTS.encode.get_concrete_function(tf.TensorSpec([None, 8])),
        batches(4, 8),
    ),
    "words to integers": lambda: (texts("int"), SENTENCES),
    "words counted": lambda: (texts("multi_hot"), SENTENCES),
    "words summed up": lambda: (texts("count"), SENTENCES),
    "lookups": lambda: (
        looked_up(),
        [(np.array([["a"], ["q"]], object), np.array([[5], [6]]))] * 2,
    ),
    "words, exported": lambda: (exported(texts("int")), SENTENCES),
    "a dataset": lambda: (
        flat(conv()),
        tf.data.Dataset.from_tensor_slices((values(8, 16, 16, 8), np.zeros(8))).batch(4),
    ),
}
# What must be refused, in one sentence.
REFUSED: Mapping[str, Callable[[], tuple[Any, list[Any]]]] = {
    "an empty file": lambda: (_written("m.pb", b""), batches(*IMAGES)),
    "a TensorFlow Lite file": lambda: (_written("m.tflite", b"TFL3"), batches(*IMAGES)),
    "a TensorFlow.js file": lambda: (_written("model.json", b"{}"), batches(*IMAGES)),
    "half a file": lambda: (
        _written("m.pb", as_file(".pb").read_bytes()[:3000]),
        batches(*IMAGES),
    ),
    "batches of another shape": lambda: (as_file(".pb"), batches(2, 16, 16, 7)),
    "data that are not finite": lambda: (as_file(".pb"), [np.full(IMAGES, np.nan, np.float32)]),
    "no data": lambda: (as_file(".pb"), []),
}


def _written(name: str, data: bytes) -> Path:
    path = folder() / name
    path.write_bytes(data)
    return path


def _odd(make: Callable[[], Any]) -> Case:
    model, data, outputs = make()
    conf = {"model": {"name": "odd", "outputs": list(outputs)}} if outputs else None
    return model, data, {} if conf is None else {"config": conf}


def _of_package(path: Path, shape: tuple[int, ...]) -> Case:
    return path, batches(*shape), {}


def cases() -> dict[str, Callable[[], Any]]:
    """Name → what makes the case; the kind stands before the colon."""
    return {
        **{f"structure: {name}": make for name, make in STRUCTURES.items()},
        **{f"odd: {make.__name__}": lambda m=make: _odd(m) for make in ODD},
        **{f"form: {name}": make for name, make in FORMS.items()},
        **{f"fed: {name}": make for name, make in FED.items()},
        **{f"habit: {name}": make for name, make in HABITS.items()},
        **{f"refused: {name}": make for name, make in {**REFUSED, **WRONG, **MISTAKES}.items()},
        **{
            f"package: {name}": lambda p=path, s=shape: _of_package(p, s)
            for name, (path, shape) in packaged().items()
        },
        **{f"family: {n}": lambda n=n, s=s: family(n, s) for n, s in FAMILIES.items()},
    }
