"""The handle of a TensorFlow model: one frozen graph with named inputs and outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from lpot.backends.tensorflow.reading.call_form import CallForm
from lpot.backends.tensorflow.reading.callable_graph import CallableGraph, spec_of
from lpot.backends.tensorflow.run import HEAVY
from lpot.backends.tensorflow.runtime import GraphDef, tf, v1
from lpot.backends.tensorflow.slim import SlimSession, slim_session
from lpot.backends.tensorflow.structure.graph import ITERATOR, Net, fingerprint
from lpot.backends.tensorflow.structure.nodes import full_name, node_name
from lpot.core.batch import Inputs, InputSpec
from lpot.core.cpu import give_back
from lpot.core.errors import UnsupportedModel
from lpot.core.model import Model
from lpot.core.recipe import OpKey, Recipe

if TYPE_CHECKING:
    from lpot.backends.tensorflow import TensorflowBackend
    from lpot.backends.tensorflow.plan import Plan
    from lpot.backends.tensorflow.prepare import Prepared
    from lpot.core.compress.prunable import Variant


class TensorflowModel(Model):
    """`net` is what runs; `form` is what came in (pb, saved_model, keras, checkpoint, graph)."""

    backend: TensorflowBackend

    def __init__(
        self,
        backend: TensorflowBackend,
        net: Net,
        form: str = "pb",
        source: str = "",
        recipe: Recipe | None = None,
        precisions: Mapping[OpKey, str] | None = None,
        signature: Mapping[str, Mapping[str, str]] | None = None,
        probe: Inputs | None = None,
        form_of_call: CallForm | None = None,
        keras: Callable[[], Any] | None = None,
    ) -> None:
        self.backend = backend
        self.net = net
        self.form = form
        self.source = source
        self.recipe = recipe
        self.precisions = precisions or {}  # what each op really became
        # Keys of the SavedModel signature: {"inputs": {key: tensor}, "outputs": {key: tensor}}.
        self.signature = signature or {}
        self.probe = probe  # one batch of inputs, to verify what is saved
        self.drawn: tuple[Prepared, Plan] | None = None  # what it was built from, for exports
        self.form_of_call = form_of_call  # how the user called it, where that is known
        self.keras = keras  # gives the Keras model that it was frozen from
        self.root: Any = None  # a copy of that, which pruning works on; or what is left of one
        self.is_pruned = False  # then recipes of the full model are for this one, too
        self.variants: dict[str, Variant[TensorflowModel]] = {}  # pruned, by word in recipes
        self._prepared: Prepared | None = None

    # -- what eval_func and old scripts see ----------------------------------------------------

    native_hint = (
        ", a tf.Graph: call it as your model, or run its tensors in a tf.compat.v1.Session"
    )

    @cached_property
    def native(self) -> CallableGraph:
        return CallableGraph(self.net, self.form_of_call, self.slim)

    @property
    def graph(self) -> tf.Graph:
        return self.native

    @property
    def graph_def(self) -> GraphDef:
        return self.native.as_graph_def()

    @property
    def sess(self) -> v1.Session:
        return self.native.session

    @property
    def runner(self) -> v1.Session:
        return self.sess

    @property
    def q_config(self) -> dict[str, Any]:
        """How it was quantized, as plain data."""
        return {} if self.recipe is None else self.recipe.to_json()

    @property
    def model_type(self) -> str:
        return self.form

    @property
    def input_names(self) -> tuple[str, ...]:
        return self.net.inputs

    @property
    def output_names(self) -> tuple[str, ...]:
        return self.net.outputs

    @property
    def input_tensor_names(self) -> list[str]:
        return [full_name(name) for name in self.net.inputs]

    @property
    def output_tensor_names(self) -> list[str]:
        return [full_name(name) for name in self.net.outputs]

    @property
    def input_node_names(self) -> list[str]:
        return list(dict.fromkeys(map(node_name, self.net.inputs)))

    @property
    def output_node_names(self) -> list[str]:
        return list(dict.fromkeys(map(node_name, self.net.outputs)))

    @property
    def input_tensor(self) -> list[tf.Tensor]:
        return [self.native.get_tensor_by_name(name) for name in self.input_tensor_names]

    @property
    def output_tensor(self) -> list[tf.Tensor]:
        return [self.native.get_tensor_by_name(name) for name in self.output_tensor_names]

    @cached_property
    def iterator(self) -> str | None:
        """The op that starts an in-graph iterator, when the graph reads its data itself."""
        found = (name for name, node in self.net.nodes.items() if node.op == ITERATOR)
        return next(found, None)

    @property
    def iter_op(self) -> tf.Operation | None:
        return None if self.iterator is None else self.native.get_operation_by_name(self.iterator)

    # -- what the core asks --------------------------------------------------------------------

    @cached_property
    def slim(self) -> SlimSession | None:
        return slim_session(self.net)

    @property
    def engine(self) -> SlimSession | v1.Session:
        """What runs inputs to outputs; nobody should ask it for another tensor."""
        return self.slim or self.sess

    @cached_property
    def inputs(self) -> tuple[InputSpec, ...]:
        return tuple(spec_of(name, self.net.tensor(name)) for name in self.net.inputs)

    @cached_property
    def nbytes(self) -> int:
        return sum(node.ByteSize() for node in self.net.nodes.values())

    def fingerprint(self) -> str:
        return fingerprint(self.net.nodes.values())

    @property
    def prepared(self) -> Prepared:
        """The folded graph and the layers found in it: made once, used by every trial."""
        from lpot.backends.tensorflow.prepare import prepare

        if self._prepared is None:
            self._prepared = prepare(self.net)
        return self._prepared

    def export_onnx(
        self, path: str | Path, inputs: Inputs | None = None, *, opset: int = 17
    ) -> Path:
        """The same model, quantized the same way, as an ONNX file for ONNX Runtime (QDQ).

        `inputs` are not needed: a graph knows its own.
        """
        from lpot.backends.tensorflow.export import export_onnx

        if self.drawn is None and self.recipe is not None and self.recipe.low_ops:
            raise UnsupportedModel(
                "a model read back from disk holds TensorFlow's own INT8 ops, which ONNX does not "
                "have: export the model that quantize() returned, or its workspace (`lpot export`)"
            )
        prepared, plan = self.drawn or (self.prepared, None)
        return export_onnx(prepared, plan, Path(path), opset)

    def export(self, path: str | Path, inputs: Inputs | None = None) -> Path:
        """The model for another runtime: ONNX with Q/DQ pairs."""
        return self.export_onnx(path, inputs)

    def close(self) -> None:
        graph: CallableGraph | None = self.__dict__.get("native")
        slim: SlimSession | None = self.__dict__.get("slim")
        opened = [item for item in (graph, slim) if item is not None and item.is_open]
        for item in opened:
            item.close()
        if opened and self.nbytes > HEAVY:
            # A session holds some seven copies of the weights, and its graph one more.
            self.__dict__.pop("native", None)
            del graph, opened, item
            give_back()
