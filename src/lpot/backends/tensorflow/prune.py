"""The weights of a Keras model in training, for pruners that set some of them to zero."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np

from lpot.backends.tensorflow.resume import plain
from lpot.backends.tensorflow.runtime import tf
from lpot.core.errors import UnsupportedModel, a_kind

_KERNELS = ("kernel", "depthwise_kernel", "pointwise_kernel", "recurrent_kernel")
Gradients = dict[int, Any]  # by the id of a variable
_GRADIENTS: dict[int, Gradients] = {}  # by the id of a model, while its pruners look at them


class KerasWeights:
    """Reads and masks the kernels of layers, named `layer.kernel`, `model.layer.kernel` where a
    model is inside of another. Gradients are known while a loop hands them out."""

    def __init__(self, model: Any) -> None:
        if not isinstance(model, tf.keras.Model):
            raise UnsupportedModel(f"{a_kind(model)} can't be trained here: give the Keras model")
        if not model.built:
            raise UnsupportedModel(
                f"the Keras model {model.name!r} has no weights yet: call it on a batch, or build "
                "it, before it is pruned"
            )
        self.model = model
        self._known, self._layers = _variables(model)

    def names(self) -> list[str]:
        return [name for name in self._known if name.rpartition(".")[2] in _KERNELS]

    def further(self) -> dict[str, str]:
        rest = self._known.keys() - self.names()
        return {name: name for name in rest if len(self._known[name].shape) > 1}

    def others(self) -> list[str]:
        return [*self._layers, *self._known]

    def computed(self) -> list[str]:
        return []

    def read(self, name: str) -> np.ndarray:
        return np.asarray(self._known[name].numpy(), np.float32)

    def mask(self, name: str, keep: np.ndarray) -> None:
        self._known[name].assign(self.read(name) * keep)

    def watch(self, names: Iterable[str]) -> None:
        """A loop hands them out, or they stay unknown."""

    def release(self) -> None:
        """Nothing was watched."""

    def gradient(self, name: str) -> np.ndarray | None:
        found = self._gradients.get(id(self._known[name]))
        return None if found is None else np.asarray(tf.convert_to_tensor(found), np.float32)

    def pull(self, name: str, amount: np.ndarray) -> None:
        found = self._gradients
        key = id(self._known[name])
        found[key] = tf.convert_to_tensor(found[key]) + tf.cast(amount, found[key].dtype)

    @property
    def _gradients(self) -> Gradients:
        return _GRADIENTS.get(id(self.model), {})

    def snapshot(self) -> Any:
        return [np.array(weight) for weight in self.model.get_weights()]

    def restore(self, snapshot: Any) -> None:
        self.model.set_weights(snapshot)

    def packed(self, snapshot: Any) -> dict[str, np.ndarray]:
        return {str(number): plain(value) for number, value in enumerate(snapshot)}

    def unpacked(self, arrays: Mapping[str, np.ndarray]) -> Any:
        return [arrays[str(number)] for number in range(len(arrays))]


@contextmanager
def handed_out(model: Any, gradients: Gradients) -> Iterator[None]:
    """Pruners of this model may read these gradients, and change them."""
    _GRADIENTS[id(model)] = gradients
    try:
        yield
    finally:
        del _GRADIENTS[id(model)]


def _variables(model: Any) -> tuple[dict[str, Any], list[str]]:
    """Every variable once, by a name of its own, and the names of layers."""
    known: dict[str, Any] = {}
    layers: list[str] = []
    seen: set[int] = set()

    def walk(part: Any, prefix: str) -> None:
        for layer in part._flatten_layers(include_self=False, recursive=False):
            if id(layer) in seen:  # used twice
                continue
            seen.add(id(layer))
            layers.append(f"{prefix}{layer.name}")
            walk(layer, f"{prefix}{layer.name}.")
            for variable in layer.weights:
                if id(variable) not in seen:
                    seen.add(id(variable))
                    short = variable.name.rpartition("/")[2].partition(":")[0]
                    known[_unused(f"{prefix}{layer.name}", short, known)] = variable

    walk(model, "")
    return known, layers


def _unused(layer: str, short: str, known: dict[str, Any]) -> str:
    """Layers of a model that is written as a class may share a name."""
    name, number = f"{layer}.{short}", 1
    while name in known:
        name, number = f"{layer}_{number}.{short}", number + 1
    return name
