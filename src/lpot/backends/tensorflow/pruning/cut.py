"""Channels and blocks of layers removed: the model made again from its layers' own configs."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from lpot.backends.tensorflow.pruning.record import Block
from lpot.backends.tensorflow.pruning.walk import (
    Step,
    as_functional,
    is_nested,
    kind_of,
    packed,
    run,
    walk,
)
from lpot.backends.tensorflow.runtime import tf
from lpot.core.compress.groups import Group, Kept, entries_left
from lpot.core.errors import UnsupportedModel, first_line

CLOSE, ROUNDING = 1e-4, 1e-5  # of the largest output: sums are made in another order
SEED = 1978  # of layers that drew their own
# What Keras raises for a config that doesn't fit, or shapes that don't.
MAKING = (
    *(TypeError, ValueError, NotImplementedError, LookupError, AttributeError, RuntimeError),
    *(AssertionError, tf.errors.OpError),
)
# Which axis of which weight tells the size that a layer's config gives.
_SIZES: Mapping[str, tuple[str, str, int]] = {
    **{
        f"Conv{n}D{kind}": ("filters", "kernel", axis)
        for n in (1, 2, 3)
        for kind, axis in (("", -1), ("Transpose", -2))
    },
    "SeparableConv1D": ("filters", "pointwise_kernel", -1),
    "SeparableConv2D": ("filters", "pointwise_kernel", -1),
    "Dense": ("units", "kernel", -1),
    "Embedding": ("output_dim", "embeddings", -1),
}

Masks = Mapping[tuple[str, int], np.ndarray]  # tensor, axis → which of its entries stay


def rebuilt(model: Any, masks: Masks | None = None, blocks: Iterable[Block] = ()) -> Any:
    """A copy with layers of its own, without the entries that do not stay and without the branches
    of some blocks. It has the names of the model, so that recipes speak of the same ops."""
    maker = _Maker(masks or {}, {block.name: block.shortcut for block in blocks})
    return maker.model(model)


class _Maker:
    def __init__(self, masks: Masks, shortcuts: Mapping[str, int]) -> None:
        self.masks = masks
        self.shortcuts = shortcuts
        self._made: dict[str, Any] = {}

    def model(self, model: Any, prefix: str = "", given: Sequence[Any] | None = None) -> Any:
        inputs = [
            _input(one, model, at, given) for at, one in enumerate(as_functional(model).inputs)
        ]
        outputs = walk(model, inputs, self, prefix)
        if isinstance(model, tf.keras.Sequential):
            return tf.keras.Model(inputs[0], outputs[0], name=model.name)
        ends = packed(model.input, inputs), packed(model.output, outputs)
        return tf.keras.Model(*ends, name=model.name)

    def __call__(self, step: Step) -> Any:
        if step.path in self.shortcuts:
            return step.inputs[self.shortcuts[step.path]]
        if step.path not in self._made:
            return self._first_call(step)
        return self._made[step.path](*step.args, **step.kwargs)

    def _first_call(self, step: Step) -> Any:
        op = step.op
        if is_nested(op):
            made = self.model(op, f"{step.path}.", step.inputs)
            self._made[step.path] = made
            return made(*step.args, **step.kwargs)
        weights = self._weights(step)
        made = self._made[step.path] = _fresh(step, weights)
        output = made(*step.args, **step.kwargs)
        if weights:
            made.set_weights([value for _, value in weights])
        if hasattr(made, "finalize_state"):  # of preprocessing layers: what follows from weights
            made.finalize_state()
        return output

    def _weights(self, step: Step) -> list[tuple[str, np.ndarray]]:
        """The weights of a layer as far as they stay, with their short names."""
        found = []
        for variable in getattr(step.op, "weights", ()):
            value = variable.numpy()
            for axis in range(value.ndim):
                mask = self.masks.get((f"{step.path}.{variable.name}", axis))
                if mask is not None:
                    value = np.compress(mask, value, axis)
            found.append((variable.name, value))
        return found


def _input(tensor: Any, model: Any, at: int, given: Sequence[Any] | None) -> Any:
    """A new end of the graph. Inside of a model its shape is that of what comes in."""
    shape = list(tensor.shape if given is None else given[at].shape)
    if isinstance(model, tf.keras.Sequential):
        shape[0] = None  # the batch that it was first called on, and no wish of its maker
    return tf.keras.Input(
        batch_shape=shape, dtype=tensor.dtype, name=tensor.name, sparse=bool(tensor.sparse)
    )


def _fresh(step: Step, weights: Sequence[tuple[str, np.ndarray]]) -> Any:
    """The operation anew, with the sizes of these weights, or as it is where it has none and can't
    be made from a config (a Lambda)."""
    op = step.op
    try:
        config = op.get_config()
        if kind_of(op) in _SIZES:
            name, weight, axis = _SIZES[kind_of(op)]
            config[name] = dict(weights)[weight].shape[axis]
        if kind_of(op) == "Reshape":
            config["target_shape"] = _target(step)
        if "seed" in config and config["seed"] is None:
            config["seed"] = SEED
        return type(op).from_config(config)
    except MAKING as error:
        if weights:
            raise UnsupportedModel(
                f"the layer {step.path!r} ({type(op).__name__}) can't be made again from its "
                f"config: {first_line(error)}. Give it a get_config() that its __init__ takes, and "
                "register its class (keras.saving.register_keras_serializable)"
            ) from error
    twin = copy.copy(op)
    # Or it would hold every model that it is a part of.
    twin._inbound_nodes, twin._outbound_nodes = [], []
    return twin


def _target(step: Step) -> tuple[Any, ...]:
    """The shape that a Reshape gives, with as many channels as come in."""
    target: tuple[Any, ...] = tuple(step.op.target_shape)
    before, now = step.given[0][-1], step.inputs[0].shape[-1]
    if before == now:
        return target
    return (-1,) if len(target) == 1 else (*target[:-1], now)


def tensors_of(model: Any) -> dict[str, Any]:
    """The variables of layers by the names that places have."""
    found: dict[str, Any] = {}

    def visit(step: Step) -> list[Any]:
        if is_nested(step.op):
            return walk(step.op, step.inputs, visit, f"{step.path}.")
        for variable in getattr(step.op, "weights", ()):
            found[f"{step.path}.{variable.name}"] = variable
        return [None] * len(step.made)

    walk(model, [None] * len(model.inputs), visit)
    return found


def left_of(model: Any, groups: Iterable[Group], kept: Kept) -> dict[tuple[str, int], np.ndarray]:
    """Which entries of tensors stay, by name and axis."""
    shapes = {name: tuple(one.shape) for name, one in tensors_of(model).items()}
    return entries_left(groups, kept, shapes)


def removed(model: Any, groups: Iterable[Group], kept: Kept, blocks: Iterable[Block] = ()) -> Any:
    """A copy without the units that are not kept, and without some blocks."""
    return rebuilt(model, left_of(model, groups, kept), blocks)


@contextmanager
def silenced(model: Any, group: Group, gone: Iterable[int]) -> Iterator[None]:
    """Meanwhile the model ignores some units: what `removed` must be equal to."""
    known, units = tensors_of(model), list(gone)
    readers = {slot.place.tensor for slot in group.slots if slot.reads}
    before = {name: known[name].numpy() for name in readers}
    after = {name: np.array(value) for name, value in before.items()}
    for slot in group.slots:
        if slot.reads:
            value = np.moveaxis(after[slot.place.tensor], slot.place.axis, 0)
            value[group.entries(slot, units)] = 0
    try:
        for name, value in after.items():
            known[name].assign(value)
        yield
    finally:
        for name, value in before.items():
            known[name].assign(value)


def is_exact(model: Any, group: Group, values: Sequence[Any], whole: Sequence[Any]) -> bool:
    """Does the removal of units give the same as ignoring them? Tried with the last one; `whole` is
    what the full model gives."""
    last = group.units - 1
    try:
        small = removed(model, [group], {group.name: tuple(range(last))})
        found = run(small, values)
    except (UnsupportedModel, *MAKING):  # something counts on the old size
        return False
    with silenced(model, group, [last]):
        truth = run(model, values)
    # Behind a softmax one unit may change next to nothing: the error is held against that.
    return all(
        are_close([one], [other], max(ROUNDING, min(CLOSE, CLOSE * 100 * _apart(other, full))))
        for one, other, full in zip(found, truth, whole, strict=True)
    )


def are_close(found: Sequence[Any], truth: Sequence[Any], most: float = CLOSE) -> bool:
    """Are values equal, up to such a part of the largest?"""
    return len(found) == len(truth) and all(
        _apart(one, other) <= most for one, other in zip(found, truth, strict=True)
    )


def _apart(one: Any, other: Any) -> float:
    one, other = np.asarray(one), np.asarray(other)
    if one.shape != other.shape:
        return float("inf")
    if one.dtype.kind != "f":
        return 0.0 if np.array_equal(one, other) else 1.0
    scale = float(np.abs(other).max(initial=0.0)) or 1.0
    return float(np.abs(one - other).max(initial=0.0)) / scale
