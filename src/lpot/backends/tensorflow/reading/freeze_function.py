"""Functions, modules and models that tell no inputs: traced as the calibration batch calls them."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import numpy as np

from lpot.backends.tensorflow.reading.freeze import Frozen, concrete
from lpot.backends.tensorflow.run import first_line
from lpot.backends.tensorflow.runtime import tf
from lpot.core.backend import ModelSpec
from lpot.core.batch import Batch, as_array, split
from lpot.core.errors import DataError, UnsupportedModel

NOT_DATA = ("training", "mask", "self")
TRACING = (TypeError, ValueError, AttributeError, KeyError, IndexError, tf.errors.OpError)


def functions_of(source: Any, spec: ModelSpec) -> Iterator[Frozen]:
    """A tf.function or a tf.Module with `__call__`, frozen: for any batch size, then for one."""
    what = f"the {type(source).__name__} given"
    function = _traceable(source)
    if getattr(function, "input_signature", None) is not None:
        yield concrete(function.get_concrete_function(), "function", function)
        return
    yield concrete(traced(function, function, spec, what), "function", function)
    yield concrete(traced(function, function, spec, what, (False,)), "function", function)


def _traceable(source: Any) -> Any:
    if not isinstance(source, tf.Module):
        return source
    if not callable(source):
        methods = [name for name, value in inspect.getmembers(type(source)) if _is_function(value)]
        hint = f"; give one of its functions ({', '.join(methods)}): module.{methods[0]}"
        raise UnsupportedModel(
            f"the {type(source).__name__} given is a tf.Module without __call__"
            f"{hint if methods else ': give one of its functions instead'}"
        )
    method = source.__call__
    return method if _is_function(method) else tf.function(method)


def _is_function(value: Any) -> bool:
    return hasattr(value, "get_concrete_function")


def traced(
    function: Any,
    signature: Callable[..., Any],
    spec: ModelSpec,
    what: str,
    any_batch: Sequence[bool] = (True, False),
) -> Any:
    """The function traced with the first calibration batch: any batch size, if it takes any.

    `signature` is the function whose parameters tell how many inputs there are.
    """
    raw = None if spec.sample is None else spec.sample()
    if raw is None:
        raise UnsupportedModel(
            f"{what} does not declare its inputs, and there is no calibration batch to infer them "
            "from: give calibration data, or function.get_concrete_function(tf.TensorSpec(…))"
        )
    said = ""
    needed, others = parameters(signature)
    named = [name for name, must in others.items() if must or name in _mapping(raw)]
    names = [*needed, *named]
    for args in _readings(raw, names):
        count = len(needed) if len(args) == len(names) else len(args)
        for free in any_batch:
            specs = _specs(args, names, free)
            # A layer that is built by the second attempt would be refused in the same tf.function.
            tried = function if _is_function(function) else tf.function(function)
            try:
                return tried.get_concrete_function(
                    *specs[:count], **dict(zip(named, specs[count:], strict=False))
                )
            except TRACING as error:
                said = said or cause(error)
    raise UnsupportedModel(
        f"{what} can't be traced with the first calibration batch ({_shapes(raw)}): {said}"
    )


def parameters(function: Callable[..., Any]) -> tuple[list[str], dict[str, bool]]:
    """Names of the parameters that take data: by position, and others by name, with "is needed"."""
    target = getattr(function, "python_function", function)
    try:
        found = inspect.signature(target).parameters.values()
    except (TypeError, ValueError):
        return ["inputs"], {}
    kinds = inspect.Parameter
    data = [item for item in found if item.name not in NOT_DATA]
    placed = [i for i in data if i.kind in (kinds.POSITIONAL_ONLY, kinds.POSITIONAL_OR_KEYWORD)]
    must = {item.name: item.default is inspect.Parameter.empty for item in data}
    needed = [item.name for item in placed if must[item.name]]
    needed = needed or [item.name for item in placed[:1]] or ["inputs"]
    named = [i.name for i in data if i.kind in (kinds.POSITIONAL_OR_KEYWORD, kinds.KEYWORD_ONLY)]
    return needed, {name: must[name] for name in named if name not in needed}


def _mapping(raw: Any) -> Mapping[Any, Any]:
    """The inputs of a batch by name; empty where they have none."""
    first = raw[0] if isinstance(raw, list | tuple) and raw else raw
    return first if isinstance(first, Mapping) else {}


def _readings(raw: Any, names: Sequence[str]) -> Iterator[tuple[Any, ...]]:
    """How a batch may be meant: inputs and labels, inputs by name, or one argument."""
    with suppress(DataError):
        yield _arguments(split(raw, names), names)
    if isinstance(raw, list | tuple) and len(raw) == 2:
        yield (raw[0],)
    yield (raw,)
    if isinstance(raw, list | tuple):
        yield tuple(raw)


def _arguments(batch: Batch, names: Sequence[str]) -> tuple[Any, ...]:
    if isinstance(batch.inputs, tuple):
        return batch.inputs
    return tuple(batch.inputs[name] for name in names if name in batch.inputs)


def _specs(args: tuple[Any, ...], names: Sequence[str], free: bool) -> list[Any]:
    labels = [*names, *(f"inputs_{index}" for index in range(len(args)))]
    return [_spec(value, labels[index], free) for index, value in enumerate(args)]


def _spec(value: Any, name: str, free: bool) -> Any:
    if isinstance(value, dict):
        return {key: _spec(item, str(key), free) for key, item in value.items()}
    if isinstance(value, list | tuple) and any(hasattr(item, "shape") for item in value):
        return type(value)(_spec(item, f"{name}_{i}", free) for i, item in enumerate(value))
    array = as_array(value)
    dtype = tf.string if array.dtype.kind in "OUS" else tf.as_dtype(_narrow(array.dtype))
    sizes = [None, *array.shape[1:]] if free and array.ndim else list(array.shape)
    return tf.TensorSpec(sizes, dtype, safe(name))


def _narrow(dtype: np.dtype) -> np.dtype:
    """Python's own floats are no wish for float64."""
    return np.dtype(np.float32) if dtype == np.float64 else dtype


def safe(name: str) -> str:
    """A name that TensorFlow takes for a node."""
    kept = "".join(c if c.isalnum() or c in "_./-" else "_" for c in name)
    return kept if kept and kept[0].isalnum() else f"input{kept}"


def _shapes(raw: Any) -> str:
    items = raw if isinstance(raw, list | tuple) else [raw]
    if isinstance(raw, dict):
        items = list(raw.values())
    kinds = [f"{getattr(x, 'dtype', type(x).__name__)}{list(np.shape(x))}" for x in items[:4]]
    return ", ".join(kinds)


def cause(error: Exception) -> str:
    """Why tracing failed, without the frames that autograph and Keras put around it."""
    text = re.sub(r"\x1b\[\d+m", "", str(error))
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    raised = [line for line in lines if re.match(r"[\w.]*(Error|Exception)\b.*: \S", line)]
    if raised:
        said = raised[-1]
        after = lines[lines.index(said) + 1 :]
        hollow = "Exception encountered when calling" in said and after
        return after[0] if hollow else said
    if lines and lines[0].startswith("Exception encountered when calling") and len(lines) > 1:
        return f"{type(error).__name__}: {lines[1]}"
    return first_line(error)
