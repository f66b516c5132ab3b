"""What `evaluate` gets: a tf.Graph that can be called as the user's model was."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from lpot.backends.tensorflow.reading.call_form import IGNORED, CallForm
from lpot.backends.tensorflow.run import feed, fill, first_line, session_config
from lpot.backends.tensorflow.runtime import tf, v1
from lpot.backends.tensorflow.slim import SlimSession
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.nodes import full_name, tensor_name
from lpot.core.batch import Inputs, InputSpec, split
from lpot.core.errors import DataError


class CallableGraph(tf.Graph):  # type: ignore[misc]
    """A graph, for scripts that open a session on it; and `graph(x)`, for all others.

    A model that came as Keras model, function or module takes what it took and returns what it
    returned, as eager tensors. Any other graph takes its inputs by position or by name and
    returns its one output, or a list of them, as arrays.
    """

    def __init__(
        self,
        net: Net,
        form: CallForm | None = None,
        slim: SlimSession | None = None,
    ) -> None:
        super().__init__()
        fill(self, net)
        self._lpot_size = sum(node.ByteSize() for node in net.nodes.values())
        self.input_names, self.output_names = net.inputs, net.outputs
        self.form = form
        self._lpot_slim = slim  # runs the calls, where it is given
        self._lpot_session: v1.Session | None = None

    @property
    def graph(self) -> CallableGraph:
        """Itself: what a wrapper around a graph would be asked for."""
        return self

    @property
    def specs(self) -> tuple[InputSpec, ...]:
        return tuple(
            spec_of(name, self.get_tensor_by_name(full_name(name))) for name in self.input_names
        )

    @property
    def session(self) -> v1.Session:
        """One that knows all tensors."""
        if self._lpot_session is None:
            self._lpot_session = v1.Session(graph=self, config=session_config(size=self._lpot_size))
        return self._lpot_session

    @property
    def is_open(self) -> bool:
        return self._lpot_session is not None

    def close(self) -> None:
        """Free the session; the next call opens another."""
        if self._lpot_session is not None:
            self._lpot_session.close()
            self._lpot_session = None

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self.form is not None:
            values = self._run(self.form.feeds(args, kwargs))
            named = dict(zip(map(tensor_name, self.output_names), values, strict=True))
            return self.form.packed(named)
        values = self._run(_inputs(args, kwargs))
        return values[0] if len(values) == 1 else values

    def predict(
        self, x: Any, batch_size: int = 32, verbose: Any = None, steps: int | None = None
    ) -> Any:
        """As Keras does it: arrays in slices, or whatever yields batches; the results joined."""
        batches = _slices(x, batch_size) if _is_data(x) else _first_items(x, self.input_names)
        results = [
            tf.nest.map_structure(np.asarray, self(batch)) for batch in _some(batches, steps)
        ]
        if not results:
            raise DataError("predict was given no data")
        return tf.nest.map_structure(lambda *parts: np.concatenate(parts), *results)

    def _run(self, inputs: Inputs) -> list[np.ndarray]:
        feeds = feed(self.specs, inputs)
        try:
            found: list[np.ndarray] = (self._lpot_slim or self.session).run(
                [full_name(name) for name in self.output_names], feeds
            )
        except tf.errors.OpError as error:
            shapes = {name: np.shape(value) for name, value in feeds.items()}
            raise DataError(
                f"TensorFlow failed on a batch of {shapes}: {first_line(error)}"
            ) from error
        return found


def spec_of(name: str, tensor: tf.Tensor) -> InputSpec:
    shape = None if tensor.shape.rank is None else tuple(tensor.shape.as_list())
    return InputSpec(name, _dtype(tensor.dtype), shape)


def _dtype(dtype: tf.DType) -> str:
    if dtype == tf.string:
        return "object"
    if dtype == tf.bfloat16:
        return "float32"
    return str(np.dtype(dtype.as_numpy_dtype).name)


def _inputs(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Inputs:
    named = {key: value for key, value in kwargs.items() if key not in IGNORED}
    if named and not args:
        return named
    if len(args) == 1 and isinstance(args[0], Mapping):
        return dict(args[0])
    if len(args) == 1 and isinstance(args[0], tuple | list) and hasattr(args[0][0], "shape"):
        return tuple(args[0])
    return args


def _is_data(x: Any) -> bool:
    """Arrays, or a nest of them; not something that yields batches."""
    if isinstance(x, Mapping):
        return True
    if isinstance(x, list | tuple):
        return bool(x) and all(hasattr(item, "shape") for item in x)
    return hasattr(x, "shape") and hasattr(x, "dtype")


def _slices(x: Any, size: int) -> Iterator[Any]:
    count = int(np.shape(tf.nest.flatten(x)[0])[0])
    for start in range(0, count, size):
        yield tf.nest.map_structure(lambda array, at=start: array[at : at + size], x)


def _first_items(batches: Iterable[Any], names: Sequence[str]) -> Iterator[Any]:
    """The inputs of batches that may come with labels."""
    for raw in batches:
        if not isinstance(raw, list | tuple):
            yield raw
            continue
        found = split(raw, names).inputs
        yield found[0] if isinstance(found, tuple) and len(found) == 1 else found


def _some(batches: Iterator[Any], steps: int | None) -> Iterator[Any]:
    for index, batch in enumerate(batches):
        if steps is not None and index >= steps:
            return
        yield batch
