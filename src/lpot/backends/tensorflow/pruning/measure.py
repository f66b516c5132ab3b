"""What may be cut from a Keras model: groups that hold up in a run, and the importance of units."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lpot.backends.tensorflow.pruning.cut import is_exact, tensors_of
from lpot.backends.tensorflow.pruning.record import Block, find_groups
from lpot.backends.tensorflow.pruning.walk import run
from lpot.backends.tensorflow.runtime import tf
from lpot.core.compress.groups import Group
from lpot.core.progress import tracked

PROBES = 8  # random directions of the outputs, by which importance is estimated

Values = Sequence[Any]  # one tensor for each input of the model, in its order


def sound_groups(model: Any, values: Values, blocks: Mapping[str, Block]) -> list[Group]:
    """The groups whose removal was tried and gives exactly what ignoring them gives."""
    one = [value[:1] if value.shape.rank else value for value in values]
    whole = run(model, one)
    found = find_groups(model, blocks)
    return [group for group in tracked(found) if is_exact(model, group, one, whole)]


def importance(
    model: Any, groups: Sequence[Group], batches: Iterable[Values], seed: int = 0
) -> dict[str, np.ndarray]:
    """How much each unit matters to the outputs: the diagonal Fisher of a gate on it.

    Liu et al., "Group Fisher Pruning for Practical Network Compression" (2021), without labels:
    gradients of random directions of the outputs stand for those of the loss.
    """
    known = tensors_of(model)
    read = {slot.place.tensor for group in groups for slot in group.slots if slot.reads}
    variables = {name: known[name].value for name in sorted(read)}
    total = {group.name: np.zeros(group.units) for group in groups}
    draw = tf.random.Generator.from_seed(seed)
    for values in batches:
        with tf.GradientTape(persistent=True) as tape:
            for variable in variables.values():
                tape.watch(variable)
            outputs = [one for one in run(model, values) if one.dtype.is_floating]
            probes = [_direction(outputs, draw) for _ in range(PROBES)]
        for probe in probes:
            gradients = tape.gradient(probe, variables)
            products = {
                name: np.asarray(variable, np.float64) * np.asarray(gradient, np.float64)
                for (name, variable), gradient in zip(
                    variables.items(), gradients.values(), strict=True
                )
                if gradient is not None
            }
            for group in groups:
                total[group.name] += _gates(group, products) ** 2
    return total


def _direction(outputs: Sequence[Any], draw: Any) -> Any:
    parts = [tf.reduce_sum(one * draw.normal(tf.shape(one), dtype=one.dtype)) for one in outputs]
    return tf.add_n([tf.cast(part, tf.float32) for part in parts])


def _gates(group: Group, products: Mapping[str, np.ndarray]) -> np.ndarray:
    """The gradient of a factor on each unit, as its readers see it."""
    found = np.zeros(group.units)
    for slot in group.slots:
        product = products.get(slot.place.tensor)
        if not slot.reads or product is None:
            continue
        each = np.moveaxis(product, slot.place.axis, 0).reshape(product.shape[slot.place.axis], -1)
        # All channels `outer` times, `inner` entries each.
        channels = each.sum(1).reshape(slot.place.outer, slot.width, -1).sum((0, 2))
        whole = np.zeros(group.size)
        whole[slot.start : slot.start + slot.width] = channels
        found += whole.reshape(group.units, -1).sum(1)
    return found
