"""What each aten op does with channels: passes, ties, makes, reads them, or fixes them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from lpot.backends.torch.prune.flow import Flow, Lane, reshaped

aten = torch.ops.aten


Rule = Callable[[Flow, Any, Any, Any], bool]


def _argument(args: Any, kwargs: Any, place: int, name: str, usual: Any = None) -> Any:
    return args[place] if len(args) > place else kwargs.get(name, usual)


def _same(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    made = out[0] if isinstance(out, tuple | list) else out
    lane = flow.lane(args[0])
    if id(args[0]) in flow.weights or id(args[0]) in flow.names:
        return made is args[0]
    return lane is None or flow.know(made, lane, (args[0], 0))


def _picture(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    """Pools, resizing: over the places of a picture, channel by channel."""
    lane = flow.lane(args[0])
    return lane is None or (lane.axis == 1 and args[0].dim() > 2 and _same(flow, args, kwargs, out))


def _pad(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    """Of a picture's edges, not of its channels."""
    lane = flow.lane(args[0])
    return lane is None or (
        lane.axis < args[0].dim() - len(args[1]) // 2 and _same(flow, args, kwargs, out)
    )


def _masked_fill(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    """Attention's masks, which are the same for all heads."""
    lane = flow.lane(args[0])
    plain = lane is None or _broadcasts(args[1], lane.axis, out.dim())
    return plain and flow.lane(args[1]) is None and _same(flow, args, kwargs, out)


def _where(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    """The condition may be anything that is the same for all channels."""
    lanes = [_lane_in(flow, side, out.dim()) for side in args]
    if not any(lanes):
        return True
    axis = next(lane.axis for lane in lanes if lane is not None)
    plain = lanes[0] is None and _broadcasts(args[0], axis, out.dim())
    return plain and len(args) == 3 and _binary(flow, args[1:], kwargs, out)


def _convolution(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    value, weight, bias = args[0], args[1], args[2]
    transposed, groups = args[6], args[8]
    known = flow.param(weight)
    if known is None or (transposed and groups > 1):
        return False
    name, lane = known[0], flow.lane(value)
    if lane is not None and (lane.axis != 1 or lane.step > 1 or lane.inner > 1):
        return False
    if groups > 1:
        return _grouped(flow, args, out, name)
    to, source = (1, 0) if transposed else (0, 1)
    made = weight.shape[to]
    if lane is not None:
        flow.place("reader", name, source, weight.shape[source], value)
    flow.know(out, Lane(1, made))
    flow.place("maker", name, to, made, out)
    _add(flow, bias, out, made)
    return True


def _grouped(flow: Flow, args: Any, out: Any, name: str) -> bool:
    """As many outputs as inputs: what goes in and out of a group of filters goes together."""
    value, weight, bias, groups = args[0], args[1], args[2], args[8]
    made, each = weight.shape[0], weight.shape[1]
    lane = flow.lane(value)
    if lane is None or made != each * groups:
        return False
    flow.know(out, lane, (value, 0))
    flow.group_by(out, each)
    flow.place("bias", name, 0, made, out)
    _add(flow, bias, out, made)
    return True


def _add(flow: Flow, tensor: Any, at: torch.Tensor, width: int) -> None:
    """A bias, or what else has an entry for each channel."""
    known = flow.param(tensor) if tensor is not None else None
    if known is not None:
        flow.place("bias", known[0], 0, width, at)
    elif tensor is not None:
        flow.ties.fix([id(at)])


def _batch_norm(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    lane = flow.lane(args[0])
    if lane is None:
        return True
    if lane.axis != 1 or lane.step > 1 or lane.inner > 1:
        return False
    flow.know(out[0], lane, (args[0], 0))
    for tensor in args[1:5]:
        _add(flow, tensor, out[0], lane.width)
    return True


def _dense(flow: Flow, value: Any, weight: Any, bias: Any, out: Any, turned: bool) -> bool:
    """value @ weight.T + bias; `turned` where the weight given is the transposed one."""
    known = flow.param(weight)
    if known is None or known[1] is not turned:
        return False
    name, lane = known[0], flow.lane(value)
    inputs, outputs = (weight.shape[0], weight.shape[1]) if turned else weight.shape[::-1]
    if lane is not None:
        if lane.axis != value.dim() - 1 or lane.step > 1:
            return False
        flow.place("reader", name, 1, inputs, value, lane.inner)
    flow.know(out, Lane(out.dim() - 1, outputs))
    flow.place("maker", name, 0, outputs, out)
    _add(flow, bias, out, outputs)
    return True


def _addmm(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    return _dense(flow, args[1], args[2], args[0], out, True)


def _mm(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    return _dense(flow, args[0], args[1], None, out, True)


def _linear(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    return _dense(flow, args[0], args[1], _argument(args, kwargs, 2, "bias"), out, False)


def _turn(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    """Transposes: of a weight before a product, or of the axes of a tensor."""
    value = args[0]
    known = flow.param(value)
    if known is not None:
        if value.dim() == 2:
            flow.weights[id(out)] = (known[0], not known[1])
        return True
    lane = flow.lane(value)
    if lane is None:
        return True
    rank = value.dim()
    order = list(range(rank))
    if len(args) == 3:
        one, two = args[1] % rank, args[2] % rank
        order[one], order[two] = order[two], order[one]
    elif len(args) == 2:
        order = [axis % rank for axis in args[1]]
    else:
        order = order[::-1]
    moved = Lane(order.index(lane.axis), lane.width, lane.step, lane.inner)
    return flow.know(out, moved, (value, 0))


def _view(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    lane = flow.lane(args[0])
    if lane is None:
        return flow.param(args[0]) is None
    moved = reshaped(lane, tuple(args[0].shape), tuple(out.shape))
    return moved is not None and flow.know(out, moved, (args[0], 0))


def _binary(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    """Sums and products: channels of both sides go together; a broadcast side is left alone."""
    one, two = args[0], args[1]
    lanes = [_lane_in(flow, side, out.dim()) for side in (one, two)]
    if lanes[0] is None and lanes[1] is None:
        return True
    if lanes[0] is not None and lanes[1] is not None:
        same = lanes[0] == lanes[1]
        return same and flow.know(out, lanes[0], (one, 0), (two, 0))
    carried, lane = (one, lanes[0]) if lanes[0] is not None else (two, lanes[1])
    other = two if carried is one else one
    assert lane is not None
    if isinstance(other, torch.Tensor) and not _broadcasts(other, lane.axis, out.dim()):
        known = flow.param(other)
        if known is None or other.dim() != 1 or lane.axis != out.dim() - 1 or lane.step > 1:
            return False
        flow.know(out, lane, (carried, 0))
        flow.place("bias", known[0], 0, other.shape[0], out, lane.inner)
        return True
    return flow.know(out, lane, (carried, 0))


def _lane_in(flow: Flow, side: Any, rank: int) -> Lane | None:
    """A side's lane with its axis counted in the result."""
    lane = flow.lane(side) if isinstance(side, torch.Tensor) else None
    if lane is None:
        return None
    return Lane(lane.axis + rank - side.dim(), lane.width, lane.step, lane.inner)


def _broadcasts(side: torch.Tensor, axis: int, rank: int) -> bool:
    here = axis - (rank - side.dim())
    return here < 0 or bool(side.shape[here] == 1)


def _cat(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    parts = list(args[0])
    axis = _argument(args, kwargs, 1, "dim", 0) % out.dim()
    lanes = [flow.lane(part) for part in parts]
    if all(lane is None for lane in lanes):
        return True
    plain = [lane for lane in lanes if lane is not None and lane.step == lane.inner == 1]
    if len(plain) != len(parts) or any(lane.axis != axis for lane in plain):
        return False
    starts = [sum(lane.width for lane in plain[:index]) for index in range(len(plain))]
    whole = Lane(axis, sum(lane.width for lane in plain))
    return flow.know(out, whole, *zip(parts, starts, strict=True))


def _mean(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    value, lane = args[0], flow.lane(args[0])
    if lane is None:
        return True
    axes = _argument(args, kwargs, 1, "dim")
    if not axes:
        return False
    gone = {axis % value.dim() for axis in ([axes] if isinstance(axes, int) else axes)}
    if lane.axis in gone:
        return False
    kept = _argument(args, kwargs, 2, "keepdim", False)
    shift = 0 if kept else sum(axis < lane.axis for axis in gone)
    return flow.know(out, Lane(lane.axis - shift, lane.width, lane.step, lane.inner), (value, 0))


def _slice(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    lane = flow.lane(args[0])
    if lane is None:
        return True
    axis = _argument(args, kwargs, 1, "dim", 0) % args[0].dim()
    whole = out.shape == args[0].shape
    return (whole or axis != lane.axis) and flow.know(out, lane, (args[0], 0))


def _select(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    lane = flow.lane(args[0])
    if lane is None:
        return True
    axis = args[1] % args[0].dim()
    moved = Lane(lane.axis - (axis < lane.axis), lane.width, lane.step, lane.inner)
    return axis != lane.axis and flow.know(out, moved, (args[0], 0))


def _unsqueeze(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    lane = flow.lane(args[0])
    if lane is None:
        return True
    axis = args[1] % out.dim()
    moved = Lane(lane.axis + (axis <= lane.axis), lane.width, lane.step, lane.inner)
    return flow.know(out, moved, (args[0], 0))


def _attention(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    """Queries, keys and values: the same heads of all three."""
    sides, made = args[:3], out[0] if isinstance(out, tuple | list) else out
    lanes = [flow.lane(side) for side in sides]
    lane = lanes[0]
    if lane is None or any(other != lane for other in lanes) or lane.axis != sides[0].dim() - 3:
        return all(other is None for other in lanes)
    return flow.know(made, lane, *((side, 0) for side in sides))


def _bmm(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    """Products head by head."""
    lanes = [flow.lane(side) for side in args[:2]]
    if lanes == [None, None]:
        return True
    lane = lanes[0]
    if lane is None or lanes[1] is None or lane.axis != 0 or lanes[1].axis != 0:
        return False
    if lane.width != lanes[1].width or lane.step != lanes[1].step:
        return False
    return flow.know(out, lane, (args[0], 0), (args[1], 0))


def _softmax(flow: Flow, args: Any, kwargs: Any, out: Any) -> bool:
    lane = flow.lane(args[0])
    return lane is None or (args[1] % out.dim() != lane.axis and _same(flow, args, kwargs, out))


# Names of aten's ops by what they do.
_NAMES: dict[Rule, str] = {
    _same: """relu relu_ relu6 hardtanh hardtanh_ hardswish hardswish_ silu silu_ gelu sigmoid
        sigmoid_ tanh tanh_ leaky_relu leaky_relu_ elu elu_ hardsigmoid hardsigmoid_ mish mish_
        softplus threshold clamp clamp_ clamp_min abs neg exp sqrt rsqrt erf pow clone detach alias
        _to_copy contiguous dropout dropout_ native_dropout lift_fresh expand""",
    _picture: """max_pool2d_with_indices max_pool2d avg_pool2d _adaptive_avg_pool2d
        adaptive_avg_pool2d adaptive_max_pool2d max_pool1d avg_pool1d upsample_nearest2d
        upsample_bilinear2d upsample_bicubic2d mkldnn_max_pool2d max_pool3d_with_indices avg_pool3d
        _adaptive_avg_pool3d upsample_nearest1d upsample_linear1d upsample_nearest3d
        upsample_trilinear3d""",
    _pad: """constant_pad_nd reflection_pad1d reflection_pad2d replication_pad1d
        replication_pad2d""",
    _masked_fill: "masked_fill masked_fill_",
    _where: "where",
    _binary: "add add_ sub sub_ mul mul_ div div_ maximum minimum",
    _view: "view _unsafe_view reshape _reshape_alias squeeze flatten",
    _turn: "t transpose permute numpy_T",
    _batch_norm: """_native_batch_norm_legit_no_training native_batch_norm _batch_norm_with_update
        _batch_norm_no_update _native_batch_norm_legit cudnn_batch_norm""",
    _attention: """_scaled_dot_product_flash_attention_for_cpu scaled_dot_product_attention
        _scaled_dot_product_attention_math""",
    _convolution: "convolution",
    _addmm: "addmm",
    _mm: "mm",
    _linear: "linear",
    _cat: "cat",
    _mean: "mean sum amax",
    _slice: "slice",
    _select: "select",
    _unsqueeze: "unsqueeze",
    _bmm: "bmm",
    _softmax: "_softmax _safe_softmax",
}
RULES: dict[Any, Rule] = {
    getattr(aten, name): rule
    for rule, names in _NAMES.items()
    for name in names.split()
    if hasattr(aten, name)  # not every version of torch has them all
}
