"""From a recipe to a network: MXNet's own passes, steered op by op, on ranges from statistics."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np

from lpot.backends.mxnet.abilities import follower_choices
from lpot.backends.mxnet.fusion import Fusion, Layer
from lpot.backends.mxnet.graph import Draft, Entry, Graph
from lpot.backends.mxnet.network import Network
from lpot.backends.mxnet.protect import OWN
from lpot.backends.mxnet.runtime import (
    BACKEND,
    CPU,
    MXNetError,
    first_line,
    hushed,
    mx,
    quantization,
)
from lpot.core.errors import CalibrationError, UnsupportedModel
from lpot.core.numerics.rounding import TensorStats, quantize_weight
from lpot.core.recipe import FP32, OpConfig, OpKey, Recipe

Ranges = Mapping[str, tuple[float, float]]

FULLY_CONNECTED = "_sg_mkldnn_fully_connected"
LOWEST, HIGHEST = "min_calib_range", "max_calib_range"
TINY = 1e-30  # a narrower range than this is a tensor of zeros


def build_network(
    network: Network, fusion: Fusion, recipe: Recipe, stats: Mapping[str, TensorStats]
) -> tuple[Network, dict[OpKey, str]]:
    """The INT8 network, and what each op of the recipe really became."""
    configs = {
        name: config
        for name, unit in fusion.units.items()
        if not (config := _config(unit, recipe)).is_float
    }
    positive = {name for name, item in stats.items() if item.minimum >= 0}
    try:
        drawn, graph, wanted, signs = _draw(fusion, configs, network, positive)
        changed, args = _per_tensor(drawn, fusion, configs, network)
        ranges = _ranges(wanted, fusion, configs, stats, signs)
        calibrated = quantization._calibrate_quantized_sym(changed, ranges)
        symbol = _exact_ranges(calibrated.get_backend_symbol(BACKEND), ranges)
    except MXNetError as error:
        raise UnsupportedModel(f"MXNet can't quantize this graph: {first_line(error)}") from error
    names = {node.name for node in graph.ops}
    low = {unit.key for name, unit in fusion.units.items() if PREFIX + name in names}
    precisions = {key: "int8" if key in low else "fp32" for key in recipe.ops}
    return network.around(symbol, args).copied(), precisions


def _config(unit: Layer, recipe: Recipe) -> OpConfig:
    if unit.key.name.startswith(OWN):  # passes INT8 on wherever it arrives
        return follower_choices()[0]
    return recipe.ops.get(unit.key, FP32)


def _is_per_tensor(config: OpConfig) -> bool:
    return config.weight is not None and config.weight.granularity == "per_tensor"


def _draw(
    fusion: Fusion, configs: Mapping[str, OpConfig], network: Network, positive: Collection[str]
) -> tuple[mx.sym.Symbol, Graph, list[str], Signs]:
    """The graph with INT8 ops, the tensors that need ranges, and what their signs ask for."""
    left = set(configs)
    while True:
        drawn, wanted = _quantize(fusion, left, list(network.args))
        narrow = {
            tensor
            for name in left
            if (configs[name].activation.bits or 8) < 8
            for tensor in fusion.units[name].reads
        }
        graph = Graph.of(drawn)
        signs = settle_signs(fusion, graph, sorted(left), positive, narrow)
        if not signs.clashing:
            return drawn, graph, wanted, signs
        left -= signs.clashing


def _quantize(
    fusion: Fusion, low: Collection[str], params: list[str]
) -> tuple[mx.sym.Symbol, list[str]]:
    """MXNet's pass with everything excluded that is not to be low."""
    excluded = [node.name for node in fusion.graph.ops if node.name not in low]
    with hushed():
        drawn, wanted = quantization._quantize_symbol(
            fusion.symbol,
            CPU,
            excluded_symbols=excluded,
            offline_params=params,
            quantized_dtype="auto",
            quantize_mode="smart",
            quantize_granularity="channel-wise",
        )
    return drawn, wanted


def _per_tensor(
    drawn: mx.sym.Symbol, fusion: Fusion, configs: Mapping[str, OpConfig], network: Network
) -> tuple[mx.sym.Symbol, dict[str, mx.nd.NDArray]]:
    """Give these ops one scale for all their weights.

    MXNet's pass knows one granularity for a whole graph: what is drawn per channel is changed here,
    op by op, to the form in which weights come as integers with their range.
    """
    args: dict[str, mx.nd.NDArray] = {}
    whole = {name for name, config in configs.items() if _is_per_tensor(config)}
    if not whole:
        return drawn, args
    draft = Draft(drawn)
    for number, node in enumerate(list(draft.nodes)):
        name = node["name"].removeprefix(PREFIX)
        if node["op"] != FULLY_CONNECTED or name not in whole or name == node["name"]:
            continue
        unit, config = fusion.units[name], configs[name]
        bits = (config.weight.bits if config.weight is not None else None) or 8
        made = _integers(unit, network, bits)
        args.update(made)
        node["attrs"] = {k: v for k, v in node["attrs"].items() if k != "channel_wise_quantize"}
        entries = [(entry[0], entry[1]) for entry in node["inputs"]]
        params = [draft.variable(param) for param in made]
        count = len(params) // 3
        integers, bounds = params[:count], params[count:]
        draft.set_inputs(
            number,
            [
                entries[0],
                *((param, 0) for param in integers),
                *entries[-2:],
                *((param, 0) for param in bounds),
            ],
        )
    return draft.symbol(), args


def _integers(unit: Layer, network: Network, bits: int) -> dict[str, mx.nd.NDArray]:
    """Weight and bias as MXNet names and orders them: integers first, then their ranges."""
    integers: dict[str, mx.nd.NDArray] = {}
    bounds: dict[str, mx.nd.NDArray] = {}
    for name, width in ((unit.weight, bits), (unit.bias, 8)):
        if name:
            values, params = quantize_weight(network.args[name].asnumpy(), None, "sym", width)
            integers[f"{name}_quantize"] = mx.nd.array(values, ctx=CPU, dtype=np.int8)
            # The range of all of int8, whatever part of it the integers use.
            end = np.float32(params.scale) * np.float32(127)
            bounds[f"{name}_quantize_min"] = mx.nd.array([-end], ctx=CPU)
            bounds[f"{name}_quantize_max"] = mx.nd.array([end], ctx=CPU)
    return {**integers, **bounds}


def _ranges(
    wanted: list[str],
    fusion: Fusion,
    configs: Mapping[str, OpConfig],
    stats: Mapping[str, TensorStats],
    signs: Signs,
) -> dict[str, tuple[float, float]]:
    """A range for each tensor, by the algorithm of the first INT8 op that reads it."""
    readers: dict[str, list[OpConfig]] = {}
    makers: dict[str, OpConfig] = {}
    for name, config in configs.items():
        unit = fusion.units[name]
        makers[unit.gives] = config
        for tensor in unit.reads:
            readers.setdefault(tensor, []).append(config)
    found = {}
    for tensor in dict.fromkeys(wanted):
        if tensor not in stats:
            raise CalibrationError(f"tensor {tensor!r} was not observed during calibration")
        concerned = readers.get(tensor) or [makers[tensor]]
        algorithm = concerned[0].activation.algorithm or "minmax"
        bits = min((config.activation.bits or 8 for config in readers.get(tensor, ())), default=8)
        found[tensor] = tensor_range(
            stats[tensor],
            algorithm,
            7 if tensor in signs.halved else bits,
            tensor in signs.signed,
        )
    return found


def tensor_range(
    stats: TensorStats, algorithm: str, bits: int, signed: bool = False
) -> tuple[float, float]:
    """Unsigned for tensors without negatives, else symmetric.

    With 7 bits an unsigned range is stretched, so that the values fill its lower half; signed
    ones have no need of it.
    """
    if stats.minimum < 0 or signed:
        low, high = stats.range(algorithm, symmetric=True)
        peak = max(-low, high)
        return (-peak, peak) if peak > TINY else (-1.0, 1.0)
    _, high = stats.range(algorithm, bits=bits)
    if bits < 8:
        high *= 255.0 / (2**bits - 1)
    return (0.0, high) if high > TINY else (0.0, 1.0)


def _exact_ranges(symbol: mx.sym.Symbol, ranges: Ranges) -> mx.sym.Symbol:
    """MXNet writes ranges with six decimals, which turns small ones into zero: write them out."""
    draft = Draft(symbol)
    graph = draft.graph
    for node, raw in zip(graph.nodes, draft.nodes, strict=True):
        if LOWEST not in node.attrs:
            continue
        if node.kind == QUANTIZE:
            tensor = graph.tensor(node.inputs[0])
        else:
            name = node.name.removeprefix(PREFIX).removeprefix("requantize_")
            tensor = f"{name}_output"
        low, high = ranges[tensor]
        raw["attrs"] = {**raw["attrs"], LOWEST: repr(low), HIGHEST: repr(high)}
    return draft.symbol()


# -- Where MXNet's fused INT8 kernels would go wrong, and what ranges have to make up for.
#
# A fused convolution adds another tensor in place, and its result takes that tensor's integer
# type, whatever it should have been. A fused clip is left to the end of the range, wherever that
# is.


QUANTIZE = "_contrib_quantize_v2"
PREFIX = "quantized_"
# INT8 ops whose result has the type of their first input.
PASSING = (
    "_contrib_requantize",
    "_contrib_quantized_pooling",
    "_contrib_quantized_flatten",
    "_contrib_quantized_act",
)


@dataclass(frozen=True)
class Signs:
    """`signed` tensors need a range of both signs, `halved` ones fit into the lower half of theirs.

    `clashing` units (names of fused nodes) can't be right in INT8.
    """

    signed: frozenset[str] = frozenset()
    halved: frozenset[str] = frozenset()
    clashing: frozenset[str] = frozenset()


def settle_signs(
    fusion: Fusion,
    drawn: Graph,
    low: Collection[str],
    positive: Collection[str],
    narrow: Collection[str] = (),
) -> Signs:
    """What to do about every fused addition and clip.

    `positive` tensors have no negatives; `narrow` ones are stretched to 7 bits for their readers.
    """
    additions = list(_additions(fusion, drawn, low))
    signed, clashing = set(), set()
    for unit, entry in additions:
        if not unit.ends_in_relu and _is_unsigned(fusion, drawn, entry, positive):
            if drawn.producer(entry).kind == QUANTIZE:
                signed.add(unit.summand)
            else:
                clashing.add(unit.node.name)
    left = {tensor for tensor in positive if tensor not in signed}
    halved = {
        unit.gives
        for unit, entry in additions
        if unit.ends_in_relu and not _is_unsigned(fusion, drawn, entry, left)
    }
    for name in low:
        unit = fusion.units[name]
        if unit.ends_in_clip and (unit.gives in halved or unit.gives in narrow):
            clashing.add(name)
    return Signs(frozenset(signed), frozenset(halved), frozenset(clashing))


def _additions(fusion: Fusion, drawn: Graph, low: Collection[str]) -> Iterator[tuple[Layer, Entry]]:
    """Every INT8 unit that adds, and what it adds."""
    numbers = {node.name: number for number, node in enumerate(drawn.nodes)}
    for name in low:
        unit = fusion.units[name]
        number = numbers.get(PREFIX + name)
        if unit.summand and number is not None:
            yield unit, drawn.nodes[number].inputs[len(unit.node.inputs) - 1]


def _is_unsigned(fusion: Fusion, drawn: Graph, entry: Entry, positive: Collection[str]) -> bool:
    node = drawn.producer(entry)
    if node.kind == QUANTIZE:
        return drawn.tensor(node.inputs[0]) in positive
    if node.kind in PASSING:
        return _is_unsigned(fusion, drawn, node.inputs[0], positive)
    unit = fusion.units.get(node.name.removeprefix(PREFIX))
    if unit is None:
        return False
    if unit.node.members:
        return unit.ends_in_relu
    # Sums and concatenations: MXNet goes by the range.
    return unit.gives in positive
