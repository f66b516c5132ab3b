"""The same model for ONNX Runtime: converted by tf2onnx, quantized as the plan says (QDQ)."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lpot.backends.tensorflow.formats import Format
from lpot.backends.tensorflow.passes.feed_iterators import feed_iterators
from lpot.backends.tensorflow.passes.spell_hard_swish import spell_erfc
from lpot.backends.tensorflow.plan import Plan
from lpot.backends.tensorflow.prepare import Prepared
from lpot.backends.tensorflow.runtime import GraphDef, NodeDef, tf
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import Step
from lpot.backends.tensorflow.structure.nodes import Namer, full_name, make_const, with_inputs
from lpot.backends.tensorflow.structure.weights import corrected_bias, weight_of
from lpot.core.cpu import give_back
from lpot.core.errors import BackendUnavailable, UnsupportedModel, first_line

logger = logging.getLogger(__name__)

OPSET = 17
SMALL = 1000  # bytes of a constant that may say a shape
PRODUCTS = ("Conv", "MatMul", "Gemm")
BEHIND = ("Add", "Relu", "Clip")  # bias and activation
# What tf2onnx raises on a graph that it does not know.
FAILURES = (ValueError, RuntimeError, AssertionError, LookupError, TypeError, AttributeError)


def export_onnx(prepared: Prepared, plan: Plan | None, path: Path, opset: int = OPSET) -> Path:
    """Write an ONNX file: the folded graph, with quantization nodes where the plan has 8 bits.

    A graph that reads its data itself gets inputs in their place.
    """
    if path.suffix != ".onnx":
        path = path.with_name(f"{path.name}.onnx")
    net = prepared.net if plan is None else _corrected(prepared, plan)
    model = _convert(spell_erfc(feed_iterators(net)[0]), opset)
    if plan is not None:
        _Qdq(model, prepared, plan).write()
    import onnx

    written = model.SerializeToString(deterministic=True)
    del model  # a big one is there often enough
    try:
        onnx.checker.check_model(written)
    except onnx.checker.ValidationError as error:
        told = first_line(error)
        raise UnsupportedModel(f"tf2onnx can't convert the graph: {told}") from error
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(written)
    return path


def _corrected(prepared: Prepared, plan: Plan) -> Net:
    """The graph with the biases that its INT8 ops have."""
    changes: dict[str, NodeDef] = {}
    name_for = Namer(prepared.net.nodes)
    for name in plan.shifts:
        layer = plan.steps[name].layer
        add = prepared.net.only_user(layer.node) if layer.bias is not None else None
        if add is not None:
            value = corrected_bias(prepared, layer, plan.shifts).astype(np.float32)
            const = make_const(name_for(f"{layer.node}/corrected"), value)
            changes |= {const.name: const, add.name: with_inputs(add, [layer.node, const.name])}
    return prepared.net.changed(changes)


def _convert(net: Net, opset: int) -> Any:
    try:
        import tf2onnx.tfonnx  # noqa: F401 - is it there?
    except ImportError as error:
        raise BackendUnavailable("export to ONNX", "tf2onnx", str(error)) from error
    try:
        return _converted(net, opset, careful=False)
    except FAILURES as error:
        logger.info("tf2onnx failed (%s): retrying without the passes that fail", first_line(error))
    try:
        return _converted(net, opset, careful=True)
    except FAILURES as error:
        raise UnsupportedModel(f"tf2onnx can't convert the graph: {error}") from error


def _converted(net: Net, opset: int, careful: bool) -> Any:
    """What tf2onnx makes of it; `careful` leaves out passes that fail, and copies the weights
    before and after each.
    """
    from tf2onnx.optimizer import optimize_graph
    from tf2onnx.tfonnx import process_tf_graph

    weights = _Contents(net)
    with tf.Graph().as_default() as graph:
        nodes = [_emptied(node) if name in weights else node for name, node in net.nodes.items()]
        light = GraphDef(node=nodes, library=net.header.library, versions=net.header.versions)
        tf.graph_util.import_graph_def(light, name="")
        found = process_tf_graph(
            graph,
            opset=opset,
            const_node_values=weights,
            input_names=[full_name(name) for name in net.inputs],
            output_names=[full_name(name) for name in net.outputs],
        )
        if careful:
            return optimize_graph(found, True).make_model("lpot")
        # Each pass would write all weights into the nodes anew, where protobuf never frees them.
        found.update_proto = lambda *_: None
        found = optimize_graph(found, False)
        return _model_of(found)


def _model_of(found: Any) -> Any:
    """The model proto of tf2onnx's graph, made without a second copy of the weights."""
    found.update_proto = lambda *given: [
        node.update_proto(*given) for node in found.get_nodes() if not node.is_const()
    ]
    graph = found.make_graph("lpot")
    found.make_graph = lambda *_: type(graph)(name=graph.name)
    model = found.make_model("lpot")
    vars(found).clear()  # its caller holds it, too
    give_back()
    model.graph.CopyFrom(graph)
    return model


class _Contents(Mapping[str, bytes]):
    """Constant → its bytes, for tf2onnx, which would copy them all at once."""

    def __init__(self, net: Net) -> None:
        self._nodes = {
            name: node
            for name, node in net.nodes.items()
            if node.op == "Const" and len(node.attr["value"].tensor.tensor_content) > SMALL
        }

    def __getitem__(self, name: str) -> bytes:
        return bytes(self._nodes[name].attr["value"].tensor.tensor_content)

    def __iter__(self) -> Iterator[str]:
        return iter(self._nodes)

    def __len__(self) -> int:
        return len(self._nodes)


def _emptied(node: NodeDef) -> NodeDef:
    """A constant of the same type and shape, without its bytes."""
    fresh = NodeDef(name=node.name, op=node.op, input=node.input)
    fresh.attr["dtype"].CopyFrom(node.attr["dtype"])
    tensor, given = fresh.attr["value"].tensor, node.attr["value"].tensor
    tensor.dtype = given.dtype
    tensor.tensor_shape.CopyFrom(given.tensor_shape)
    return fresh


class _Qdq:
    """Quantize and dequantize nodes put into an ONNX graph; tf2onnx keeps the tensors' names."""

    def __init__(self, model: Any, prepared: Prepared, plan: Plan) -> None:
        self.graph = model.graph
        self.prepared, self.plan = prepared, plan
        self.weights = {item.name: item for item in self.graph.initializer}
        self.makers = {name: node for node in self.graph.node for name in node.output}
        self.held: dict[tuple[str, Format], str] = {}
        self.made: list[Any] = []

    def write(self) -> None:
        missing = [name for name, step in self.plan.steps.items() if not self._write_layer(step)]
        for item in self.plan.followers.values():
            self._hold_output(item.out, self.plan.wanted[item.out])
        if missing:
            logger.warning("%d op(s) stay FP32 in ONNX: %s, …", len(missing), missing[0])
        nodes = _sorted([*self.graph.node, *self.made], self.weights, self.graph.input)
        del self.graph.node[:]
        self.graph.node.extend(nodes)
        used = {name for node in nodes for name in node.input}
        kept = [item for item in self.graph.initializer if item.name in used]
        del self.graph.initializer[:]
        self.graph.initializer.extend(kept)

    def _write_layer(self, step: Step) -> bool:
        layer = step.layer
        node = self._product(step)
        if node is None or node.input[1] not in self.weights:
            return False
        taken = self.plan.taken(layer)
        node.input[0] = self._hold(node.input[0], taken)
        node.input[1], scale = self._hold_weight(node, step, taken)
        if node.op_type == "MatMul":
            self._hold_bias(node, scale * np.float32(taken.scale))
        if step.sums:
            self._hold_output(layer.out, self.plan.wanted[layer.out])
        if step.out in self.plan.held:
            self._hold_output(step.out, self.plan.held[step.out])
        return True

    def _product(self, step: Step) -> Any:
        """The node that multiplies: known by its own name, or by what stands behind it."""
        layer = step.layer
        users = self.prepared.net.users.get(layer.node, [])
        for name in (layer.node, *(user.name for user in users), layer.out):
            node = self.makers.get(full_name(name))
            while node is not None and node.op_type in BEHIND:
                node = next((self.makers[n] for n in node.input if n in self.makers), None)
            if node is not None and node.op_type in PRODUCTS:
                return node
        return None

    def _hold_output(self, tensor: str, form: Format) -> None:
        """Everyone who reads the tensor reads it through 8 bits."""
        name = full_name(tensor)
        if name not in self.makers or any(item.name == name for item in self.graph.output):
            return
        readers = [node for node in self.graph.node if name in node.input]
        if readers:
            held = self._hold(name, form)
            for node in readers:
                node.input[:] = [held if source == name else source for source in node.input]

    def _hold(self, name: str, form: Format) -> str:
        from onnx import helper

        if name in self.held.values():
            return name  # it comes out of 8 bits already
        key = (name, form)
        if key not in self.held:
            stem = f"{name}/q{len(self.held)}"
            integer = np.uint8 if form.dtype == "quint8" else np.int8
            scale = self._constant(f"{stem}/scale", np.float32(form.scale))
            zero = self._constant(f"{stem}/zero", integer(form.zero))
            codes, back = f"{stem}/codes", f"{stem}/back"
            self.made += [
                helper.make_node("QuantizeLinear", [name, scale, zero], [codes], codes),
                helper.make_node("DequantizeLinear", [codes, scale, zero], [back], back),
            ]
            self.held[key] = back
        return self.held[key]

    def _hold_bias(self, node: Any, scale: np.ndarray) -> None:
        """A bias in 32 bits: a float one makes ONNX Runtime join MatMul and Add to a float Gemm."""
        from onnx import helper, numpy_helper

        readers = [one for one in self.graph.node if node.output[0] in one.input]
        if len(readers) != 1 or readers[0].op_type != "Add":
            return
        add = readers[0]
        at = 1 - list(add.input).index(node.output[0])
        item = self.weights.get(add.input[at])
        real = None if item is None else numpy_helper.to_array(item).reshape(-1)
        if real is None or (scale.ndim and real.size != scale.size):
            return
        codes = np.rint(real.astype(np.float64) / scale)
        if np.abs(codes).max() >= 2**31:
            return
        stem = f"{add.input[at]}/{len(self.made)}"
        spread = np.broadcast_to(np.asarray(scale, np.float32), real.shape)
        parts = [
            self._constant(f"{stem}/codes", codes.astype(np.int32)),
            self._constant(f"{stem}/scale", np.ascontiguousarray(spread)),
            self._constant(f"{stem}/zero", np.zeros(real.shape, np.int32)),
        ]
        name = f"{stem}/real"
        self.made.append(helper.make_node("DequantizeLinear", parts, [name], name, axis=0))
        add.input[at] = name

    def _hold_weight(self, node: Any, step: Step, taken: Format) -> tuple[str, np.ndarray]:
        from onnx import helper, numpy_helper

        assert step.config.weight is not None
        name = node.input[1]
        real = numpy_helper.to_array(self.weights[name])
        weight = weight_of(self.prepared, step.layer, step.config.weight, taken)
        scale = np.asarray(weight.peak / 127.0, np.float32)
        axis = 0 if node.op_type == "Conv" or _flag(node, "transB") else 1
        shape = [-1 if index == axis else 1 for index in range(real.ndim)]
        spread = scale.reshape(shape) if scale.ndim else scale
        # tf2onnx may have laid the weight out anew: its own values are rounded again.
        codes = np.clip(np.rint(real / spread), -127, 127).astype(np.int8)
        stem = f"{name}/{len(self.made)}"
        parts = [
            self._constant(f"{stem}/codes", codes),
            self._constant(f"{stem}/scale", scale),
            self._constant(f"{stem}/zero", np.zeros(scale.shape, np.int8)),
        ]
        more = {"axis": axis} if scale.ndim else {}
        self.made.append(
            helper.make_node("DequantizeLinear", parts, [f"{stem}/real"], f"{stem}/real", **more)
        )
        return f"{stem}/real", scale

    def _constant(self, name: str, value: Any) -> str:
        from onnx import numpy_helper

        item = numpy_helper.from_array(np.asarray(value), name)
        self.graph.initializer.append(item)
        self.weights[name] = item
        return name


def _flag(node: Any, name: str) -> bool:
    return any(item.name == name and item.i for item in node.attribute)


def _sorted(nodes: list[Any], weights: Any, inputs: Any) -> list[Any]:
    """Each node after what it reads."""
    ready = {"", *weights, *(item.name for item in inputs)}
    waiting, done = list(nodes), []
    while waiting:
        able = [node for node in waiting if all(name in ready for name in node.input)]
        if not able:
            raise UnsupportedModel("the converted graph reads a tensor that nothing produces")
        done += able
        ready.update(name for node in able for name in node.output)
        chosen = set(map(id, able))
        waiting = [node for node in waiting if id(node) not in chosen]
    return done
