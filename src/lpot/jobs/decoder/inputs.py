"""What a decoder is fed: tokens, and whatever else its exporter asks for beside them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np

from lpot.core.batch import InputSpec
from lpot.core.errors import DataError

IDS, MASK, PLACES = "input_ids", "attention_mask", "position_ids"


def feeds(specs: Sequence[InputSpec], ids: np.ndarray, past: int = 0) -> dict[str, np.ndarray]:
    """Everything that the model reads: tokens behind a cache of so many positions, of zeros."""
    rows, count = ids.shape
    tokens = tokens_input(specs)
    found: dict[str, np.ndarray] = {}
    for spec in specs:
        if spec.name == tokens:
            found[spec.name] = ids.astype(spec.dtype)
        elif is_cache(spec):
            found[spec.name] = np.zeros(_cache_shape(spec, rows, past), spec.dtype)
        elif spec.name in ASKED:
            made = ASKED[spec.name](rows, past, count)
            found[spec.name] = made.reshape(made.shape[: _axes(spec)]).astype(spec.dtype)
        else:
            raise DataError(_why_not_fed(spec))
    if not found and len(ids):
        return {IDS: ids.astype(np.int64)}
    return found


def tokens_input(specs: Sequence[InputSpec]) -> str:
    """The input that takes the tokens: some exporters have a name of their own for it."""
    names = [spec.name for spec in specs]
    others = [
        spec.name
        for spec in specs
        if spec.name not in ASKED and _axes(spec) == 2 and spec.dtype in ("int64", "int32")
    ]
    return IDS if IDS in names or len(others) != 1 else others[0]


def fixed_rows(specs: Sequence[InputSpec] | None) -> int | None:
    """How many rows a batch must have, where the model leaves no choice."""
    given = specs or ()
    shapes = [spec.shape for spec in given if spec.name == tokens_input(given) and spec.shape]
    return next((shape[0] for shape in shapes if isinstance(shape[0], int)), None)


def _axes(spec: InputSpec) -> int:
    return 2 if spec.shape is None else len(spec.shape)


def _places(rows: int, past: int, count: int) -> np.ndarray:
    return np.tile(np.arange(past, past + count), (rows, 1))


# What exporters ask for beside tokens and cache, of so many rows, past and new tokens.
ASKED: Mapping[str, Callable[[int, int, int], np.ndarray]] = {
    MASK: lambda rows, past, count: np.ones((rows, past + count)),
    PLACES: _places,
    "cache_position": lambda rows, past, count: _places(1, past, count)[0],
    "token_type_ids": lambda rows, past, count: np.zeros((rows, count)),
    "num_logits_to_keep": lambda rows, past, count: np.zeros(1),  # 0 asks for all of them
}


def _why_not_fed(spec: InputSpec) -> str:
    if spec.name == "use_cache_branch":
        return (
            "the model holds two graphs behind an If (use_cache_branch), with and without a "
            "cache, in which no weights are found: give the one with the cache, such as "
            "decoder_with_past_model.onnx, or export without merging them"
        )
    return (
        f"the model's input {spec.name!r} {list(spec.shape or ())} can't be fed from text alone "
        f"({IDS}, {', '.join(ASKED)}; past… or cache… of four or five axes): give a loader of "
        "whole batches instead"
    )


def is_cache(spec: InputSpec) -> bool:
    """Keys or values, [rows, heads, past, size], or both of a layer: two of them in one."""
    named = "past" in spec.name or "cache" in spec.name
    return named and spec.shape is not None and len(spec.shape) in (4, 5)


def _cache_shape(spec: InputSpec, rows: int, past: int) -> tuple[int, ...]:
    """The one size besides the rows that the model leaves open is that of the past."""
    *both, _, heads, length, size = spec.shape or ()
    sizes = [*both, rows, heads, length, size]
    if sum(not isinstance(each, int) for each in sizes) > 1:
        raise DataError(
            f"the model's input {spec.name!r} has the shape {list(spec.shape or ())}: only the "
            "batch and the past of a KV cache may be dynamic; export it with its other sizes "
            "fixed"
        )
    return tuple(each if isinstance(each, int) else past for each in sizes)
