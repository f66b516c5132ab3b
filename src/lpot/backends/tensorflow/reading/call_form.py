"""How the user's model was called and what it returned: the frozen graph does the same."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from lpot.backends.tensorflow.runtime import tf
from lpot.backends.tensorflow.structure.nodes import tensor_name
from lpot.core.batch import Inputs
from lpot.core.errors import DataError

IGNORED = ("training", "mask", "verbose")  # what Keras models are called with besides data


@dataclass(frozen=True, eq=False)
class CallForm:
    """Nests (tuples, lists, dicts) of tensor names, as they stood in the call."""

    args: tuple[Any, ...]
    kwargs: Mapping[str, Any]
    outputs: Any

    @classmethod
    def of(cls, function: Any, inputs: Sequence[str], outputs: Sequence[str]) -> CallForm | None:
        """Of a ConcreteFunction; None where its parts do not match its tensors."""
        nest = function.structured_input_signature
        if nest is None:
            return None
        specs = [spec for spec in tf.nest.flatten(nest) if isinstance(spec, tf.TypeSpec)]
        results = tf.nest.flatten(function.structured_outputs)
        if len(specs) != len(inputs) or len(results) != len(outputs):
            return None
        names = iter(map(tensor_name, inputs))
        args, kwargs = tf.nest.map_structure(
            lambda spec: next(names) if isinstance(spec, tf.TypeSpec) else None, nest
        )
        ends = tf.nest.pack_sequence_as(
            function.structured_outputs, [tensor_name(name) for name in outputs]
        )
        return cls(tuple(args), dict(kwargs), ends)

    def feeds(self, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Inputs:
        """The arguments of a call as inputs of the graph, by tensor name."""
        named = {key: value for key, value in kwargs.items() if key not in IGNORED}
        if named and not self.kwargs:
            args, named = (*args, *named.values()), {}
        wanted: list[Any] = [*self.args, *(self.kwargs[key] for key in sorted(self.kwargs))]
        given = [*args, *(named[key] for key in sorted(named))]
        if len(given) != len(wanted):
            if len(given) == 1 and isinstance(given[0], Mapping):
                return dict(given[0])  # a dict by name, for a function of several arguments
            if len(given) == 1 and isinstance(given[0], list | tuple):
                given = list(given[0])
            elif len(wanted) == 1 and not isinstance(wanted[0], str):
                given = [given]
        if len(given) != len(wanted):
            raise DataError(
                f"the model takes {len(wanted)} argument(s), as the calibration data gave them, "
                f"but got {len(given)}: give data for optional ones as a dict by name"
            )
        found: dict[str, Any] = {}
        for form, value in zip(wanted, given, strict=True):
            found.update(_matched(form, value))
        return found

    def call(self, function: Callable[..., Any], fed: Mapping[str, Any]) -> Any:
        """What a function gives that is called as the model was, with values by tensor name."""
        args, kwargs = tf.nest.map_structure(
            lambda name: None if name is None else tf.convert_to_tensor(fed[name]),
            (self.args, dict(self.kwargs)),
        )
        return function(*args, **kwargs)

    def packed(self, values: Mapping[str, Any]) -> Any:
        """What the model returned, of eager tensors."""
        return tf.nest.map_structure(lambda name: tf.convert_to_tensor(values[name]), self.outputs)


def _matched(form: Any, value: Any) -> dict[str, Any]:
    if form is None:
        return {}
    if isinstance(form, str):
        return {form: value}
    if isinstance(form, Mapping):
        if isinstance(value, Mapping):
            missing = [key for key in form if key not in value]
            if missing:
                raise DataError(f"the model takes a dict with {list(form)}: missing {missing}")
            pairs: list[tuple[Any, Any]] = [(form[key], value[key]) for key in form]
        else:
            pairs = list(zip(form.values(), _several(value, len(form)), strict=True))
    elif isinstance(value, Mapping):
        return dict(value)  # by the names of the graph's inputs
    else:
        pairs = list(zip(form, _several(value, len(form)), strict=True))
    found: dict[str, Any] = {}
    for inner, item in pairs:
        found.update(_matched(inner, item))
    return found


def _several(value: Any, count: int) -> list[Any]:
    items = list(value) if isinstance(value, list | tuple) else [value]
    if len(items) != count:
        raise DataError(f"the model takes {count} inputs together, got {len(items)}")
    return items
