"""One float graph in which any single op can be made to round as its INT8 kernel would.

Which one is fed as a number: ranking all ops then costs one session instead of one an op.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lpot.backends.tensorflow.formats import Format
from lpot.backends.tensorflow.plan import Plan
from lpot.backends.tensorflow.prepare import Prepared
from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.affine import is_transposed
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import Layer, Step
from lpot.backends.tensorflow.structure.nodes import (
    Namer,
    data_inputs,
    make_const,
    make_node,
    with_inputs,
)
from lpot.backends.tensorflow.structure.weights import weight_of

NOBODY = -1  # a number no op has


def simulate_ops(prepared: Prepared, plans: Mapping[int, Plan]) -> tuple[Net, str, dict[str, str]]:
    """(graph, the input that takes the number, tensor → where it is read now).

    `plans` are those of single ops, by the number that stands for each.
    """
    sketch = _Sketch(prepared)
    for number, plan in plans.items():
        (step,) = plan.steps.values()
        sketch.add(number, step, plan)
    return sketch.finish(), sketch.which, sketch.moved


def simulate_plan(prepared: Prepared, plan: Plan) -> tuple[Net, str, dict[str, str]]:
    """The same with every op of one plan at a time: all of them go by the number 0."""
    sketch = _Sketch(prepared)
    for step in plan.steps.values():
        sketch.add(0, step, plan)
    return sketch.finish(), sketch.which, sketch.moved


def rounded_weight(prepared: Prepared, step: Step, taken: Format) -> np.ndarray:
    """The weight as its INT8 values stand for it, laid out as in the graph."""
    layer = step.layer
    assert step.config.weight is not None
    weight = weight_of(prepared, layer, step.config.weight, taken)
    scale = np.asarray(weight.peak / 127.0, np.float32)
    if weight.integers.ndim == 4 and scale.ndim and weight.integers.shape[-1] != scale.size:
        scale = scale.reshape(weight.integers.shape[2:])  # depthwise
    real = weight.integers * scale
    flipped = layer.is_matmul and is_transposed(prepared.net.nodes[layer.node])
    return np.ascontiguousarray(real.T if flipped else real, np.float32)


class _Sketch:
    def __init__(self, prepared: Prepared) -> None:
        self.prepared = prepared
        self.name_for = Namer(prepared.net.nodes)
        self.nodes: dict[str, NodeDef] = {}
        self.moved: dict[str, str] = {}  # tensor → its stand-in, for those who read it
        self.forks: list[str] = []  # where layers read: from the stand-in, if there is one
        self.which = self._put(
            make_node("Placeholder", self.name_for("lpot_which"), [], dtype=tf.int32)
        )

    def _put(self, node: NodeDef) -> str:
        self.nodes[node.name] = node
        return str(node.name)

    def add(self, number: int, step: Step, plan: Plan) -> None:
        layer = step.layer
        node = self.prepared.net.nodes[layer.node]
        stem = self.name_for(f"lpot_simulated/{number}")
        wanted = self._put(make_const(f"{stem}/number", np.int32(number)))
        chosen = self._put(make_node("Equal", f"{stem}/chosen", [self.which, wanted], T=tf.int32))
        taken = plan.taken(layer)
        x, weight = data_inputs(node)[:2]
        source = self._rounded(f"{stem}/in", x, chosen, taken)
        self.forks.append(f"{stem}/in/fork")
        rounded = self._put(
            make_const(f"{stem}/weight", rounded_weight(self.prepared, step, taken))
        )
        blend = self._put(
            make_node("SelectV2", f"{stem}/blend", [chosen, rounded, weight], T=tf.float32)
        )
        self._put(with_inputs(node, [source, blend]))
        if layer.key.name in plan.shifts and layer.bias is not None:
            self._correct_bias(stem, layer, chosen, plan.shifts[layer.key.name])
        if step.out in plan.held:
            self.moved[step.out] = self._rounded(
                f"{stem}/out", step.out, chosen, plan.held[step.out]
            )

    def _correct_bias(self, stem: str, layer: Layer, chosen: str, shift: np.ndarray) -> None:
        assert layer.bias is not None
        add = self.prepared.net.only_user(layer.node)
        value = self.prepared.net.constant(layer.bias)
        assert add is not None and value is not None
        corrected = self._put(make_const(f"{stem}/bias", (value - shift).astype(np.float32)))
        inputs = [chosen, corrected, layer.bias]
        blend = self._put(make_node("SelectV2", f"{stem}/bias_blend", inputs, T=tf.float32))
        self._put(with_inputs(add, [layer.node, blend]))

    def finish(self) -> Net:
        for name in self.forks:
            tensor, chosen = self.nodes[name].input
            self._put(with_inputs(self.nodes[name], [self.moved.get(tensor, tensor), chosen]))
        return self.prepared.net.rewired(self.moved).changed(self.nodes)

    def _rounded(self, stem: str, tensor: str, chosen: str, form: Format) -> str:
        """The tensor, through 8 bits when chosen; the branch not taken costs nothing."""
        mode = "MIN_FIRST" if form.zero else "SCALED"
        narrow = form.dtype == "qint8"
        low = self._put(make_const(f"{stem}/low", np.float32(form.low)))
        high = self._put(make_const(f"{stem}/high", np.float32(form.high)))
        fork = self._put(make_node("Switch", f"{stem}/fork", [tensor, chosen], T=tf.float32))
        codes = self._put(
            make_node(
                "QuantizeV2",
                f"{stem}/codes",
                [f"{fork}:1", low, high],
                T=form.tf_dtype,
                mode=mode,
                narrow_range=narrow,
                round_mode="HALF_AWAY_FROM_ZERO" if form.zero else "HALF_TO_EVEN",
                ensure_minimum_range=0.0,
            )
        )
        back = self._put(
            make_node(
                "Dequantize",
                f"{stem}/back",
                [codes, low, high],
                T=form.tf_dtype,
                mode=mode,
                narrow_range=narrow,
            )
        )
        return self._put(make_node("Merge", f"{stem}/join", [fork, back], T=tf.float32, N=2))
