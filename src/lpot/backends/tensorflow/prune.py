"""The weights of a Keras model in training, for pruners that set some of them to zero."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any

import numpy as np

from lpot.backends.tensorflow.runtime import tf
from lpot.core.batch import split
from lpot.core.compress.schedule import learning_rate_factor
from lpot.core.compress.trainers import CRITERIONS, OPTIMIZERS, Named
from lpot.core.errors import DataError, UnsupportedModel
from lpot.core.progress import tracked

_KERNELS = ("kernel", "depthwise_kernel", "pointwise_kernel", "recurrent_kernel")


class KerasWeights:
    """Reads and masks the kernels of layers, named `layer.kernel`. Keras keeps no gradients."""

    has_gradients = False

    def __init__(self, model: Any) -> None:
        if not isinstance(model, tf.keras.Model):
            raise UnsupportedModel(
                f"a {type(model).__name__} can't be trained here: give the Keras model"
            )
        self.model = model
        self._own: dict[str, Any] = {}
        self._rest: list[str] = []
        for layer in _leaves(model):
            for variable in layer.weights:
                short = variable.name.rpartition("/")[2].partition(":")[0]
                name = f"{layer.name}.{short}"
                if short in _KERNELS and len(variable.shape) > 1:
                    self._own[name] = variable
                else:
                    self._rest.append(name)
            self._rest.append(layer.name)

    def names(self) -> list[str]:
        return list(self._own)

    def others(self) -> list[str]:
        return self._rest

    def read(self, name: str) -> np.ndarray:
        return np.asarray(self._own[name].numpy(), np.float32)

    def mask(self, name: str, keep: np.ndarray) -> None:
        self._own[name].assign(self.read(name) * keep)

    def gradient(self, name: str) -> np.ndarray | None:
        return None

    def pull(self, name: str, amount: np.ndarray) -> None:
        """There are no gradients to add to."""

    def snapshot(self) -> Any:
        return [np.array(weight) for weight in self.model.get_weights()]

    def restore(self, snapshot: Any) -> None:
        self.model.set_weights(snapshot)


def _leaves(model: Any) -> list[Any]:
    return [
        layer for layer in model._flatten_layers(include_self=False) if not hasattr(layer, "layers")
    ]


def hooked_loop(
    section: Mapping[str, Any], loader: Iterable[Any], hooks: Any
) -> Callable[[Any], None]:
    """Batch by batch, with the original's hooks around them."""
    provide()
    ((name, options),) = section["optimizer"].items()
    ((loss, how),) = section["criterion"].items()
    kind, given = OPTIMIZERS.make("tensorflow", name, options, tf.keras.optimizers.Optimizer)
    loss_kind, loss_given = CRITERIONS.make("tensorflow", loss, how, tf.keras.losses.Loss)
    criterion = loss_kind(**loss_given)
    factor = learning_rate_factor(section, loader)

    def train(model: Any) -> None:
        optimizer = kind(**given)
        rate = float(optimizer.learning_rate)
        for epoch in tracked(range(section.get("start_epoch", 0), section["end_epoch"])):
            hooks.on_epoch_begin(epoch)
            for number, raw in enumerate(islice(loader, section.get("iteration"))):
                hooks.on_batch_begin(number)
                if factor is not None:
                    optimizer.learning_rate = rate * factor(epoch, number)
                _step(model, optimizer, criterion, raw)
                hooks.on_batch_end()
            hooks.on_epoch_end()

    return train


def _step(model: Any, optimizer: Any, criterion: Any, raw: Any) -> None:
    batch = split(raw, None)
    if batch.labels is None:
        raise DataError("the training data has no labels: it must yield (inputs, labels)")
    inputs = list(batch.inputs.values() if isinstance(batch.inputs, Mapping) else batch.inputs)
    with tf.GradientTape() as tape:
        output = model(inputs[0] if len(inputs) == 1 else inputs, training=True)
        labels = np.asarray(batch.labels).reshape(-1)
        loss = tf.reduce_mean(criterion(labels, output))
    variables = model.trainable_variables
    optimizer.apply_gradients(zip(tape.gradient(loss, variables), variables, strict=True))


class CrossEntropyLoss:
    """Of class numbers, for models that end in a softmax and those that give scores."""

    def __init__(self, reduction: str = "mean") -> None:
        self.reduction = reduction

    def __call__(self, labels: Any, output: Any) -> Any:
        sums = np.asarray(tf.reduce_sum(output, -1))
        logits = not np.allclose(sums, 1, atol=1e-3)
        losses = tf.keras.losses.sparse_categorical_crossentropy(labels, output, from_logits=logits)
        return tf.reduce_sum(losses) if self.reduction == "sum" else tf.reduce_mean(losses)


def provide() -> None:
    """TensorFlow is imported when it is needed, and its names with it."""
    if "SGD" in OPTIMIZERS.names("tensorflow"):
        return
    kinds = tf.keras.optimizers
    OPTIMIZERS.provide(
        "tensorflow",
        {"SGD": Named(kinds.SGD), "Adam": Named(kinds.Adam), "AdamW": Named(kinds.AdamW)},
    )
    CRITERIONS.provide("tensorflow", {"CrossEntropyLoss": Named(CrossEntropyLoss)})
