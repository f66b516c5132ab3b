"""The quantized graph while it is written: new nodes, who holds which tensor how, operands."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from lpot.backends.tensorflow.formats import Format
from lpot.backends.tensorflow.plan import Plan
from lpot.backends.tensorflow.prepare import Prepared
from lpot.backends.tensorflow.runtime import NodeDef, tf
from lpot.backends.tensorflow.structure.graph import Net
from lpot.backends.tensorflow.structure.layers import Step
from lpot.backends.tensorflow.structure.nodes import Namer, make_const, make_node, node_name
from lpot.backends.tensorflow.structure.weights import Weight


class Draft:
    def __init__(self, prepared: Prepared, plan: Plan) -> None:
        self.prepared = prepared
        self.plan = plan
        self.nodes: dict[str, NodeDef] = {}
        self.name_for = Namer(prepared.net.nodes)
        self._ranges: dict[tuple[float, float], tuple[str, str]] = {}
        self._quantized: dict[tuple[str, Format], str] = {}
        for step in plan.steps.values():
            if step.out in plan.held:
                self._quantized[step.out, plan.held[step.out]] = self._own_name(step)
        for item in plan.followers.values():
            form = plan.wanted[item.out]
            self._quantized[item.out, form] = self.name_for(f"{item.key.name}/quantized")

    def _own_name(self, step: Step) -> str:
        """The op's own name, unless that is where readers of floats look."""
        name = step.layer.node
        return name if name != step.out else self.name_for(f"{name}/quantized")

    def add(self, node: NodeDef) -> str:
        self.nodes[node.name] = node
        return str(node.name)

    def const(self, wish: str, value: Any, dtype: tf.DType | None = None) -> str:
        return self.add(make_const(self.name_for(wish), value, dtype))

    def range(self, low: float, high: float) -> list[str]:
        """Two constants, shared by all that need the same range."""
        key = (low, high)
        if key not in self._ranges:
            index = len(self._ranges)
            self._ranges[key] = (
                self.const(f"lpot/range_{index}/min", np.float32(low)),
                self.const(f"lpot/range_{index}/max", np.float32(high)),
            )
        return list(self._ranges[key])

    def quantized(self, tensor: str, form: Format) -> str:
        """The node that gives `tensor` in this form; made from floats where nobody holds it so."""
        key = (tensor, form)
        if key not in self._quantized:
            name = self.name_for(f"{node_name(tensor)}/quantize")
            self._quantized[key] = self.add(
                make_node(
                    "QuantizeV2",
                    name,
                    [tensor, *self.range(form.low, form.high)],
                    T=form.tf_dtype,
                    **_mode(form),
                    round_mode="HALF_AWAY_FROM_ZERO" if form.zero else "HALF_TO_EVEN",
                    ensure_minimum_range=0.0,
                )
            )
        return self._quantized[key]

    def made(self, tensor: str, form: Format) -> str:
        """The name reserved for the INT8 op that makes `tensor`."""
        return self._quantized[tensor, form]

    def dequantize(self, tensor: str, form: Format) -> None:
        """Floats under the tensor's own name; dropped later if nobody reads them."""
        self.add(
            make_node(
                "Dequantize",
                tensor,
                [self._quantized[tensor, form], *self.range(form.low, form.high)],
                T=form.tf_dtype,
                **_mode(form),
            )
        )

    def finish(self) -> Net:
        return self.prepared.net.changed(self.nodes).pruned()


def _mode(form: Format) -> dict[str, Any]:
    # MIN_FIRST is the one mode with a zero point; SCALED is exact and quicker without.
    mode = "MIN_FIRST" if form.zero else "SCALED"
    return {"mode": mode, "narrow_range": form.dtype == "qint8"}


@dataclass(eq=False)
class Operands:
    """What the fused INT8 ops have in common: tensors first, then ranges, and the types of both.

    `tensors` live on the device, `ranges` on the host: TensorFlow wants them in this order.
    """

    tensors: list[str] = field(default_factory=list)
    types: list[tf.DType] = field(default_factory=list)
    ranges: list[str] = field(default_factory=list)
    fused: list[str] = field(default_factory=lambda: ["BiasAdd"])

    def add(self, tensor: str, dtype: tf.DType, *ranges: str) -> None:
        self.tensors.append(tensor)
        self.types.append(dtype)
        self.ranges.extend(ranges)

    @property
    def inputs(self) -> list[str]:
        return [*self.tensors, *self.ranges]

    def attributes(self, out: tf.DType, ranges: int) -> dict[str, Any]:
        """The lists of types, for one output and so many ranges beside it."""
        return {
            "Tdevice_inputs": self.types,
            "Thost_inputs": [tf.float32] * len(self.ranges),
            "Tdevice_outputs": [out],
            "Thost_outputs": [tf.float32] * ranges,
            "fused_ops": self.fused,
        }


def operands_of(
    draft: Draft, step: Step, taken: Format, weight: Weight, bias: np.ndarray
) -> Operands:
    """Input, weight and bias, with the ranges of the first two."""
    layer = step.layer
    made = Operands()
    made.add(draft.quantized(layer.x, taken), taken.tf_dtype, *draft.range(*taken.kernel_range))
    made.add(
        draft.const(f"{layer.node}/weight", weight.integers, tf.qint8),
        tf.qint8,
        draft.const(f"{layer.node}/weight_min", -weight.peak),
        draft.const(f"{layer.node}/weight_max", weight.peak),
    )
    made.add(draft.const(f"{layer.node}/bias", bias), tf.float32)
    return made
