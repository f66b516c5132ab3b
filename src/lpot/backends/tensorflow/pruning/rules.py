"""What each Keras layer does with channels: passes, ties, makes, reads them, or fixes them.

A rule gives the lane of its output (None: channels that nobody may touch), or `UNKNOWN` where it
can't tell; then what the step reads is fixed, too. Wrong rules do no harm: each group that they
lead to is tried before it counts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import prod
from typing import Any, Final

from lpot.backends.tensorflow.pruning.flow import Flow, Lane
from lpot.backends.tensorflow.pruning.walk import Step, flat, kind_of

UNKNOWN: Final = "unknown"
Made = Lane | None | str
Rule = Callable[[Flow, Step], Made]


def _lane(step: Step) -> Lane | None:
    found: Lane | None = step.inputs[0]
    return found


def _is_last(step: Step, axis: Any) -> bool:
    """Is it the axis that channels lie on?"""
    rank = len(step.given[0])
    one = axis[0] if isinstance(axis, list | tuple) and len(axis) == 1 else axis
    return isinstance(one, int) and one % rank == rank - 1


def _channels_last(step: Step) -> bool:
    return getattr(step.op, "data_format", "channels_last") != "channels_first"


def _same(flow: Flow, step: Step) -> Made:
    return _lane(step) if len(step.inputs) == 1 and _channels_last(step) else UNKNOWN


def _activation(flow: Flow, step: Step) -> Made:
    return UNKNOWN if _mixes(step.op) else _same(flow, step)


def _mixes(op: Any) -> bool:
    """Does its activation look at all channels at once?"""
    name = getattr(op.activation, "__name__", "")
    return "softmax" in name or name in ("glu", "sparsemax")


def _prelu(flow: Flow, step: Step) -> Made:
    lane, shape = _lane(step), tuple(step.op.alpha.shape)
    if lane is not None and shape[-1] == lane.size:
        flow.add(lane, f"{step.path}.alpha", len(shape) - 1)
    return lane


def _batch_norm(flow: Flow, step: Step) -> Made:
    lane = _lane(step)
    if lane is None:
        return None
    if not _is_last(step, step.op.axis):
        return UNKNOWN
    for weight in step.op.weights:
        flow.add(lane, f"{step.path}.{weight.name}", 0)
    return lane


def _dense(flow: Flow, step: Step) -> Made:
    return _product(flow, step, "kernel", 0, 1)


def _conv(flow: Flow, step: Step) -> Made:
    if not _channels_last(step) or step.op.groups != 1:
        return UNKNOWN
    rank = len(step.op.kernel.shape)
    return _product(flow, step, "kernel", rank - 2, rank - 1)


def _transposed(flow: Flow, step: Step) -> Made:
    if not _channels_last(step):
        return UNKNOWN
    rank = len(step.op.kernel.shape)
    return _product(flow, step, "kernel", rank - 1, rank - 2)


def _separable(flow: Flow, step: Step) -> Made:
    """A filter of its own for each channel, and a convolution of one position behind it."""
    if not _channels_last(step):
        return UNKNOWN
    lane, between = _lane(step), None
    shape = tuple(step.op.depthwise_kernel.shape)
    if lane is not None:
        flow.add(lane, f"{step.path}.depthwise_kernel", len(shape) - 2, shape, step.given[0])
        between = flow.lane(lane.width, lane.inner * shape[-1], lane.outer)
        flow.part(lane, between)
    rank = len(step.op.pointwise_kernel.shape)
    return _product(flow, step, "pointwise_kernel", rank - 2, rank - 1, between)


def _product(
    flow: Flow, step: Step, weight: str, source: int, to: int, lane: Lane | None = None
) -> Lane:
    """Reads the channels on one axis of a weight, and makes those of another one."""
    shape = tuple(getattr(step.op, weight).shape)
    work, name = (shape, step.made[0]), f"{step.path}.{weight}"
    lane = _lane(step) if lane is None else lane
    if lane is not None:
        flow.read(lane, name, source, *work)
    made = flow.lane(int(shape[to]))
    flow.make(made, name, to, *work)
    if step.op.use_bias:
        flow.add(made, f"{step.path}.bias", 0)
    if _mixes(step.op):
        flow.fix([made])
    return made


def _depthwise(flow: Flow, step: Step) -> Made:
    lane = _lane(step)
    if lane is None:
        return None
    if not _channels_last(step):
        return UNKNOWN
    shape = tuple(step.op.kernel.shape)
    made = flow.lane(lane.width, lane.inner * shape[-1], lane.outer)
    flow.add(lane, f"{step.path}.kernel", len(shape) - 2, shape, step.made[0])
    if step.op.use_bias:
        flow.add(made, f"{step.path}.bias", 0)
    return flow.part(lane, made)


def _embedding(flow: Flow, step: Step) -> Made:
    made = flow.lane(int(step.op.embeddings.shape[1]))
    flow.make(made, f"{step.path}.embeddings", 1, step.made[0])
    return made


def _flatten(flow: Flow, step: Step) -> Made:
    lane = _lane(step)
    if lane is None:
        return None
    places = step.given[0][1:-1]
    if not _channels_last(step) or None in places:
        return UNKNOWN
    return flow.part(lane, flow.lane(lane.width, lane.inner, lane.outer * prod(places)))


def _reshape(flow: Flow, step: Step) -> Made:
    """Where channels stay on an axis of their own, or all of a picture becomes a vector."""
    (before,), (after,) = step.given, step.made
    if before[-1] == after[-1]:
        return _lane(step)
    return _flatten(flow, step) if len(after) == 2 else UNKNOWN


def _together(flow: Flow, step: Step) -> Made:
    """Position by position: a value with one channel serves all of them."""
    if any(len(shape) < 2 for shape in step.given):
        return UNKNOWN
    widest = max(int(shape[-1] or 0) for shape in step.given)
    found: list[Lane | None] = []
    for lane, shape in zip(step.inputs, step.given, strict=True):
        if shape[-1] == 1 < widest:
            flow.fix([lane])
        else:
            found.append(lane)
    first = found[0]
    if first is None or not all(one is not None and one.is_like(first) for one in found):
        return UNKNOWN
    for lane in found[1:]:
        assert lane is not None
        flow.part(lane, first)
    return first


def _concatenate(flow: Flow, step: Step) -> Made:
    if not _is_last(step, step.op.axis):
        return _together(flow, step)
    parts: list[Lane | None] = list(step.inputs)
    first = parts[0]
    alike = first is not None and all(
        one is not None and one.outer == 1 and one.inner == first.inner for one in parts
    )
    if first is None or not alike:
        return UNKNOWN
    known = [one for one in parts if one is not None]
    whole = flow.lane(sum(one.width for one in known), first.inner)
    start = 0
    for one in known:
        flow.part(one, whole, start)
        start += one.width
    return whole


def _operator(flow: Flow, step: Step) -> Made:
    """Of `keras.ops`, element by element; a number beside the value changes nothing."""
    others = [value for value in _constants(step) if value is not None]
    if any(getattr(value, "size", 1) != 1 for value in others):
        return UNKNOWN
    return _lane(step) if len(step.inputs) == 1 else _together(flow, step)


def _reduction(flow: Flow, step: Step) -> Made:
    axes = step.op.axis
    if axes is None:
        return UNKNOWN
    every = axes if isinstance(axes, list | tuple) else [axes]
    return UNKNOWN if any(_is_last(step, axis) for axis in every) else _lane(step)


def _constants(step: Step) -> list[Any]:
    """The arguments that are no values of the graph."""
    own = {id(value) for value in step.inputs}
    return [one for one in flat([step.args, dict(step.kwargs)]) if id(one) not in own]


_NAMED: Mapping[Rule, tuple[str, ...]] = {
    _same: (
        *("ReLU", "LeakyReLU", "ELU", "Dropout", "SpatialDropout1D", "SpatialDropout2D"),
        *("SpatialDropout3D", "GaussianNoise", "GaussianDropout", "AlphaDropout", "Identity"),
        *("ActivityRegularization", "Rescaling"),
        *(f"{kind}Pooling{n}D" for kind in ("Max", "Average") for n in (1, 2, 3)),
        *(f"Global{kind}Pooling{n}D" for kind in ("Max", "Average") for n in (1, 2, 3)),
        *(f"{kind}{n}D" for kind in ("ZeroPadding", "Cropping", "UpSampling") for n in (1, 2, 3)),
    ),
    _activation: ("Activation",),
    _prelu: ("PReLU",),
    _batch_norm: ("BatchNormalization",),
    _dense: ("Dense",),
    _conv: ("Conv1D", "Conv2D", "Conv3D"),
    _transposed: ("Conv1DTranspose", "Conv2DTranspose", "Conv3DTranspose"),
    _separable: ("SeparableConv1D", "SeparableConv2D"),
    _depthwise: ("DepthwiseConv1D", "DepthwiseConv2D"),
    _embedding: ("Embedding",),
    _flatten: ("Flatten",),
    _reshape: ("Reshape",),
    _together: ("Add", "Subtract", "Multiply", "Average", "Maximum", "Minimum"),
    _concatenate: ("Concatenate",),
}
_OF_OPERATORS: Mapping[Rule, tuple[str, ...]] = {
    _operator: (
        *("Add", "Subtract", "Multiply", "Divide", "TrueDivide", "Maximum", "Minimum"),
        *("Relu", "Relu6", "Sigmoid", "HardSigmoid", "Silu", "HardSilu", "Tanh", "Gelu"),
        *("Elu", "Selu", "LeakyRelu", "Softplus", "Absolute", "Negative", "Square", "Sqrt"),
        *("Exp", "Clip", "Identity"),
    ),
    _reduction: ("Mean", "Max", "Sum"),
    _concatenate: ("Concatenate",),
}
RULES: Mapping[str, Rule] = {
    **{name: rule for rule, names in _NAMED.items() for name in names},
    **{f"ops.{name}": rule for rule, names in _OF_OPERATORS.items() for name in names},
}


def rule_of(op: Any) -> Rule | None:
    return RULES.get(kind_of(op))
