"""A graph that computes in another runtime: what `evaluate` gets of a model tuned as a file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from lpot.backends.tensorflow.reading.callable_graph import CallableGraph
from lpot.backends.tensorflow.run import feed
from lpot.backends.tensorflow.runtime import tf, v1
from lpot.backends.tensorflow.structure.nodes import full_name, node_name
from lpot.core.batch import Inputs
from lpot.core.errors import UnsupportedModel

if TYPE_CHECKING:
    from lpot.backends.tensorflow.model import TensorflowModel


class TensorflowPresenter:
    """Inputs of the file bear the names of the graph's tensors; outputs come in their order."""

    def __init__(self, model: TensorflowModel) -> None:
        if model.iterator is not None:
            raise UnsupportedModel(
                "the graph reads its data itself, by an iterator, which no other runtime does"
            )
        wrong = [name for name in map(full_name, model.net.outputs) if not name.endswith(":0")]
        if wrong:
            raise UnsupportedModel(f"output {wrong[0]} is not the first of its op")
        self.model = model

    def feeds(self, inputs: Inputs) -> dict[str, np.ndarray]:
        given = feed(self.model.inputs, inputs)
        return {full_name(name): np.asarray(value) for name, value in given.items()}

    def __call__(self, model: Any) -> ForeignGraph:
        return ForeignGraph(self.model, model)


class ForeignGraph(CallableGraph):
    """The names of the graph given; one op in it calls the runtime."""

    def __init__(self, home: TensorflowModel, model: Any) -> None:
        tf.Graph.__init__(self)
        self.input_names, self.output_names = home.net.inputs, home.net.outputs
        self.form = home.form_of_call
        self._lpot_size = 0
        self._lpot_slim = None
        self._lpot_session: v1.Session | None = None
        tensors = {full_name(name): home.net.tensor(name) for name in home.net.inputs}
        results = [home.net.tensor(name) for name in home.net.outputs]

        def run(*values: Any) -> list[np.ndarray]:
            feeds = dict(zip(tensors, values, strict=True))
            return [np.asarray(value) for value in model.backend.run(model, feeds)]

        with self.as_default():
            given = [
                v1.placeholder(tensor.dtype, tensor.shape, name=node_name(name))
                for name, tensor in tensors.items()
            ]
            made = tf.numpy_function(run, given, [tensor.dtype for tensor in results])
            for value, tensor, name in zip(made, results, home.net.outputs, strict=True):
                value.set_shape(tensor.shape)
                tf.identity(value, name=node_name(name))
