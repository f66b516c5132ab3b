"""The Keras model behind a handle: a copy of its own, which pruning works on."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from lpot.backends.tensorflow import run as running
from lpot.backends.tensorflow.pruning.cut import are_close, rebuilt
from lpot.backends.tensorflow.pruning.measure import Values
from lpot.backends.tensorflow.pruning.walk import as_functional, run
from lpot.backends.tensorflow.reading import load as loading
from lpot.backends.tensorflow.reading.freeze_function import safe
from lpot.backends.tensorflow.runtime import tf
from lpot.backends.tensorflow.structure.nodes import full_name, node_name
from lpot.core.backend import ModelSpec
from lpot.core.batch import Inputs
from lpot.core.compress.samples import first
from lpot.core.errors import UnsupportedModel

if TYPE_CHECKING:
    from lpot.backends.tensorflow.model import TensorflowModel


def root_of(model: TensorflowModel) -> Any:
    """Made at the first call: what the user does with the model afterwards doesn't reach it."""
    if model.root is None:
        if model.keras is None:
            as_functional(None)  # which says what is accepted
        assert model.keras is not None
        model.root = rebuilt(model.keras())
    return model.root


def values_of(model: TensorflowModel, inputs: Inputs) -> Values:
    """A batch as the Keras model takes it: the graph's inputs are named after its own."""
    fed = running.feed(model.inputs, inputs)
    named = {node_name(name): tf.constant(value) for name, value in fed.items()}
    names = [safe(one.name) for one in root_of(model).inputs]
    if set(names) == set(named):
        return [named[name] for name in names]
    return [tf.constant(fed[full_name(name)]) for name in model.input_names]


def check_copy(model: TensorflowModel, inputs: Inputs) -> None:
    """Made from the layers' configs, does it compute what the model computes?"""
    if not any(spec.shape and isinstance(spec.shape[0], int) for spec in model.inputs):
        inputs = first(inputs, 1)
    found = run(root_of(model), values_of(model, inputs))
    if not are_close(found, running.run(model, inputs)):
        raise UnsupportedModel(
            "the Keras model, made again from the configs of its layers, gives other outputs: a "
            "layer keeps something beside its weights that its get_config() does not tell, the "
            "model was trained after it was loaded, or it draws random numbers"
        )


def handle(source: TensorflowModel, small: Any) -> TensorflowModel:
    """A pruned Keras model as a model that trials can be built from."""
    spec = ModelSpec(inputs=source.input_names, outputs=source.output_names)
    loaded = loading.load(small, spec)
    made = adopted(source, type(source)(source.backend, loaded.net))
    made.root = small
    return made


def adopted(source: TensorflowModel, found: TensorflowModel) -> TensorflowModel:
    """With everything of the source that its form and its callers depend on."""
    if (found.input_names, found.output_names) != (source.input_names, source.output_names):
        raise UnsupportedModel(
            f"the pruned model has inputs {list(found.input_names)} and outputs "
            f"{list(found.output_names)}, not {list(source.input_names)} and "
            f"{list(source.output_names)}"
        )
    made = type(source)(
        source.backend,
        found.net,
        source.form,
        source.source,
        signature=source.signature,
        form_of_call=source.form_of_call,
    )
    made.is_pruned = True
    return made
