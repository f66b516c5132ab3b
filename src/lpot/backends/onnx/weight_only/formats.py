"""The configs that `approach: weight_only` chooses from, and what they are in numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from lpot.backends.onnx.abilities import bits_for, dynamic_choices, worst_error
from lpot.backends.onnx.by_token import BY_TOKEN
from lpot.core.backend import Target
from lpot.core.recipe import FP32, FP32_TENSOR, OpConfig, TensorConfig
from lpot.core.space import TensorRule
from lpot.core.weight_only.grid import GROUPS, Format

NEAREST, AWQ, GPTQ, LEARNED, SIGNROUND = "rtn", "awq", "gptq", "learned", "signround"
SYM, ASYM = "sym", "asym"
WIDTHS = {"int2": 2, "int3": 3, "int4": 4, "int8": 8}
BY_COST = (NEAREST, AWQ, GPTQ, LEARNED, SIGNROUND)  # of rounding, the cheapest first


@dataclass(frozen=True)
class Wishes:
    """What the user allows, `quantization.weight_only` of the yaml."""

    bits: tuple[int, ...] = (4, 8)
    group_size: tuple[int, ...] = (32, 128)
    scheme: tuple[str, ...] = (SYM, ASYM)
    algorithm: tuple[str, ...] = (LEARNED,)  # each op takes the one that loses least
    prompt: float = 0.3  # what a prompt's time counts against a token's
    prompt_length: int = 512
    calibrated: bool = True  # are there data for GPTQ and AWQ?
    exact: bool = False  # are group sizes to be just these, with the last group of a row filled up?


def asked(wishes: Wishes, rule: TensorRule) -> Wishes:
    """The wishes with what a rule says of formats in their place.

    >>> asked(Wishes(), TensorRule(dtype=("int4", "fp32"), group_size=(32,))).bits
    (4,)
    """
    bits = tuple(WIDTHS[dtype] for dtype in rule.dtype if dtype in WIDTHS)
    ways = tuple(word for word in rule.algorithm if word not in ("minmax", "kl"))
    return replace(
        wishes,
        bits=bits or wishes.bits,
        group_size=rule.group_size or wishes.group_size,
        exact=bool(rule.group_size),
        scheme=tuple(s for s in rule.scheme if s in ("sym", "asym")) or wishes.scheme,
        algorithm=ways or wishes.algorithm,
    )


def product_choices(
    wishes: Wishes, target: Target, columns: int, levelled: bool = False
) -> Iterator[OpConfig]:
    """Of a product with a constant matrix of so many columns: the fewest bits first, FP32 last.

    In 8 bits the largest groups lose next to nothing, and are the fastest; a zero point of their
    own gains them nothing. Where a norm has levelled the tokens of its input, one scale does for
    all when it is rounded; elsewhere a text far from the calibration data may hold a huge one.
    """
    sizes = list(wishes.group_size) if wishes.exact else fitting(wishes.group_size, columns)
    for bits in sorted(wishes.bits):
        for scheme in wishes.scheme[:1] if bits == 8 else wishes.scheme:
            for size in sizes[-1:] if bits == 8 else sizes:
                for algorithm in _algorithms(bits, wishes):
                    yield _config(bits, scheme, size, algorithm)
    dynamic = dynamic_choices(True, bits_for(worst_error("MatMul"), target))[0]
    by_token = replace(dynamic.activation, granularity=BY_TOKEN)
    yield dynamic if levelled else replace(dynamic, activation=by_token)
    yield FP32


def table_choices(wishes: Wishes, columns: int) -> Iterator[OpConfig]:
    """Of a table whose rows are looked up: the runtime wants groups that divide a row."""
    sizes = [size for size in fitting(wishes.group_size, columns) if size and columns % size == 0]
    for bits in sorted({4, 8} & set(wishes.bits)):
        for size in sizes[:1]:
            yield _config(bits, SYM, size, NEAREST)
    yield FP32


def fitting(sizes: Sequence[int], columns: int) -> list[int]:
    """Groups that divide a row, from small to large: others are halved until they do.

    The runtime stores and multiplies whole groups: what fills the last one up costs more than
    finer groups. Where no group divides a row, it is filled up all the same.

    >>> fitting((32, 128), 576), fitting((32, 128), 70), fitting((0,), 70)
    ([32, 64], [32, 128], [0])
    """
    found = set()
    for size in sizes:
        halves = [part for part in (size, size // 2, size // 4, size // 8) if part in GROUPS]
        found.add(next((part for part in halves if columns % part == 0), size))
    return sorted(found, key=lambda size: size or columns)


def _algorithms(bits: int, wishes: Wishes) -> list[str]:
    """Those that the data allow, the dearest first; eight bits need nothing better than rounding.

    >>> _algorithms(4, Wishes(algorithm=("rtn", "learned", "gptq")))
    ['learned', 'gptq', 'rtn']
    """
    if bits == 8 or not wishes.calibrated:
        return [NEAREST]
    return sorted(set(wishes.algorithm) or {NEAREST}, key=BY_COST.index, reverse=True)


def same_format(config: OpConfig) -> OpConfig:
    """The config without the word for how it is rounded: what two ways to one format share."""
    assert config.weight is not None
    return replace(config, weight=replace(config.weight, algorithm=None))


def _config(bits: int, scheme: str, size: int, algorithm: str) -> OpConfig:
    granularity = "per_group" if size else "per_channel"
    weight = TensorConfig(f"int{bits}", scheme, granularity, algorithm, bits, size)
    return OpConfig(FP32_TENSOR, weight, "weight_only")


def format_of(config: OpConfig) -> Format:
    weight = config.weight
    assert weight is not None and weight.bits is not None and weight.group_size is not None
    return Format(weight.bits, weight.group_size, weight.scheme == SYM)


def label(config: OpConfig) -> str:
    """One word for files and tables.

    >>> label(_config(4, "sym", 32, "gptq"))
    'int4-sym-g32-gptq'
    """
    if config.is_float:
        return "fp32"
    weight = config.weight
    assert weight is not None
    if config.mode == "dynamic":
        by_token = config.activation.granularity == BY_TOKEN
        return f"dynamic-{weight.bits}" + ("-token" if by_token else "")
    return f"{weight.dtype}-{weight.scheme}-g{weight.group_size}-{weight.algorithm}"
