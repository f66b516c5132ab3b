"""The graph of a functional Keras model, node by node, through the models inside of it."""

from __future__ import annotations

import inspect
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Any

from lpot.backends.tensorflow.runtime import tf
from lpot.core.errors import UnsupportedModel


@dataclass(frozen=True, eq=False)
class Step:
    """One call of a layer or of an op of `keras.ops`: its path, and the values that it gets."""

    path: str
    node: Any
    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    inputs: Sequence[Any]  # those of the arguments that are values of the graph

    @property
    def op(self) -> Any:
        return self.node.operation

    @property
    def given(self) -> list[tuple[Any, ...]]:
        """Shapes of its inputs in the model as it is; None for sizes that are open."""
        return [tuple(tensor.shape) for tensor in self.node.input_tensors]

    @property
    def made(self) -> list[tuple[Any, ...]]:
        return [tuple(tensor.shape) for tensor in self.node.outputs]


Visit = Callable[[Step], Any]


@dataclass(frozen=True, eq=False)
class Seen:
    """What a step got, and what it gave."""

    inputs: Sequence[Any]
    output: Any


def walk(model: Any, values: Sequence[Any], visit: Visit, prefix: str = "") -> list[Any]:
    """What the outputs become, where `visit` says what each step makes of its inputs."""
    model = as_functional(model)
    known = {id(one): value for one, value in zip(model.inputs, values, strict=True)}
    for node in nodes_of(model):
        args, kwargs = node.arguments.fill_in(known)
        inputs = [known[id(tensor)] for tensor in node.input_tensors]
        made = visit(Step(f"{prefix}{node.operation.name}", node, args, kwargs, inputs))
        known |= {id(one): value for one, value in zip(node.outputs, flat(made), strict=True)}
    return [known[id(one)] for one in model.outputs]


def nodes_of(model: Any) -> Iterator[Any]:
    """The calls that make up a functional model, each after those that it needs."""
    by_depth: Mapping[int, Sequence[Any]] = model._nodes_by_depth
    for depth in sorted(by_depth, reverse=True):
        yield from (node for node in by_depth[depth] if not node.is_input)


def called_once(model: Any) -> Set[int]:
    """The ids of operations that a model calls once."""
    counts = Counter(id(node.operation) for node in nodes_of(model))
    return {key for key, count in counts.items() if count == 1}


def flat(value: Any) -> list[Any]:
    import keras

    found: list[Any] = keras.tree.flatten(value)
    return found


def packed(form: Any, values: Sequence[Any]) -> Any:
    """Values in the nest of lists and dicts that `form` is."""
    import keras

    return keras.tree.pack_sequence_as(form, list(values))


def is_nested(op: Any) -> bool:
    return isinstance(op, tf.keras.Model) and bool(getattr(op, "inputs", None))


def as_functional(model: Any) -> Any:
    """The graph of a model; a Sequential keeps its own out of sight."""
    if not isinstance(model, tf.keras.Model):
        raise UnsupportedModel(
            "structured pruning takes Keras models (the object, .keras, .h5), whose layers can be "
            "made again with fewer channels; from frozen graphs and SavedModels they can't be read"
        )
    if not is_nested(model):
        raise UnsupportedModel(
            f"the Keras model {model.name!r} is written as a class, so its layers are not known as "
            "a graph: make one with x = keras.Input(shape); keras.Model(x, model.call(x)), and "
            "give that"
        )
    if isinstance(model, tf.keras.Sequential):
        return tf.keras.Model(model.inputs, model.outputs, name=model.name)
    return model


def run(
    model: Any,
    values: Sequence[Any],
    training: bool = False,
    seen: dict[str, Seen] | None = None,
) -> list[Any]:
    """The outputs; what steps got and gave is put into `seen`, for the paths that it has."""

    def visit(step: Step, prefix: str = "") -> Any:
        if is_nested(step.op):
            made: Any = walk(step.op, step.inputs, visit, f"{step.path}.")
        else:
            told = {"training": training} if _knows_training(step.op) else {}
            made = step.op(*step.args, **{**step.kwargs, **told})
        if seen is not None and step.path in seen:
            seen[step.path] = Seen(step.inputs, flat(made)[0])
        return made

    return walk(model, values, visit)


def kind_of(op: Any) -> str:
    """The name of one of Keras's own layers, or `ops.` and that of an operation of `keras.ops`.

    Empty for any other class, even a subclass of theirs: what that does, nobody knows.
    """
    name = type(op).__name__
    if isinstance(op, tf.keras.layers.Layer):
        return name if type(op) is getattr(tf.keras.layers, name, None) else ""
    return f"ops.{name}" if type(op).__module__.startswith("keras.") else ""


def _knows_training(op: Any) -> bool:
    return "training" in inspect.signature(op.call).parameters
