"""Every form an MXNet model comes in: HybridBlock, (symbol, arg_params, aux_params), files."""

from __future__ import annotations

import inspect
import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lpot.backends.mxnet.network import Network, Params, check
from lpot.backends.mxnet.runtime import CPU, MXNetError, first_line, hushed, mx
from lpot.core.backend import ModelSpec
from lpot.core.errors import UnsupportedModel

SYMBOL = "-symbol.json"
ACCEPTED = (
    "a HybridBlock, a tuple (symbol, arg_params, aux_params), or the path of a saved model "
    "(prefix, prefix-symbol.json, prefix-0000.params, or the folder they are in)"
)
_EPOCH = re.compile(r"-\d{4}\.params$")


@dataclass(frozen=True, eq=False)
class Loaded:
    """`block` is the HybridBlock given, None for the other forms."""

    network: Network
    block: Any = None


def load(source: Any, spec: ModelSpec) -> Loaded:
    if isinstance(source, str | os.PathLike):
        symbol_path, params_path = find_files(Path(source))
        symbol, args, auxs = read_files(symbol_path, params_path)
        return Loaded(check(symbol, args, auxs, spec, str(symbol_path)))
    if isinstance(source, mx.gluon.HybridBlock):
        symbol, args, auxs = trace(source)
        return Loaded(check(symbol, args, auxs, spec, f"the block {source.name!r}"), source)
    if isinstance(source, tuple | list) and len(source) == 3:
        symbol, args, auxs = _checked_tuple(source)
        return Loaded(check(symbol, args, auxs, spec, "the tuple given"))
    name = f"{type(source).__module__}.{type(source).__qualname__}"
    if isinstance(source, mx.gluon.Block):
        raise UnsupportedModel(
            f"{name} is a Block, which can't be converted to a graph: make it a HybridBlock"
        )
    if isinstance(source, mx.sym.Symbol):
        raise UnsupportedModel(
            "a Symbol was given without its parameters: give (symbol, arg_params, aux_params)"
        )
    raise UnsupportedModel(f"the MXNet backend was given a {name}: it takes {ACCEPTED}")


def _checked_tuple(source: Any) -> tuple[mx.sym.Symbol, Params, Params]:
    symbol, args, auxs = source
    is_symbol = isinstance(symbol, mx.sym.Symbol)
    if not is_symbol or not isinstance(args, Mapping) or not isinstance(auxs, Mapping):
        kinds = ", ".join(type(item).__name__ for item in source)
        raise UnsupportedModel(f"given a tuple of ({kinds}): expected {ACCEPTED}")
    return symbol, _owned(args), _owned(auxs)


def _owned(params: Mapping[str, Any]) -> dict[str, mx.nd.NDArray]:
    """Copies: MXNet lays weights out anew in place when it runs them."""
    owned = {}
    for name, value in params.items():
        try:
            array = value if isinstance(value, mx.nd.NDArray) else mx.nd.array(value)
        except (TypeError, ValueError) as error:
            raise UnsupportedModel(f"parameter {name!r} is not an array: {error}") from error
        owned[name] = array.as_in_context(CPU).copy()
    return owned


def trace(block: mx.gluon.HybridBlock) -> tuple[mx.sym.Symbol, Params, Params]:
    """The block as a symbol: the graph of its last run, or one made by calling it with symbols."""
    cached = getattr(block, "_cached_graph", ())
    try:
        symbol = cached[1] if cached else block(*(_variables(block)))
        symbol = mx.sym.Group(list(_flat(symbol))) if isinstance(symbol, list | tuple) else symbol
    except (MXNetError, TypeError, ValueError, AttributeError, AssertionError) as error:
        raise UnsupportedModel(
            f"the block {block.name!r} can't be traced ({first_line(error)}): call .hybridize() "
            "and run it once on a batch first"
        ) from error
    params = {}
    for name, parameter in block.collect_params().items():
        try:
            params[name] = parameter.data()
        except (RuntimeError, mx.gluon.parameter.DeferredInitializationError) as error:
            raise UnsupportedModel(
                f"parameter {name!r} of the block has no value yet: call .initialize() or load "
                "its parameters, and run it once on a batch so that its shapes are known"
            ) from error
    states = set(symbol.list_auxiliary_states())
    owned = _owned(params)
    return (
        symbol,
        {name: value for name, value in owned.items() if name not in states},
        {name: value for name, value in owned.items() if name in states},
    )


def _variables(block: mx.gluon.HybridBlock) -> list[mx.sym.Symbol]:
    """One variable for each input, named as MXNet's own export names them."""
    taken = list(inspect.signature(block.hybrid_forward).parameters.values())[1:]
    names = [
        item.name
        for item in taken
        if item.default is item.empty
        and item.kind is item.POSITIONAL_OR_KEYWORD
        and item.name not in block._reg_params
    ]
    count = max(1, len(names))
    return [mx.sym.var("data" if count == 1 else f"data{number}") for number in range(count)]


def _flat(outputs: Any) -> list[mx.sym.Symbol]:
    if isinstance(outputs, list | tuple):
        return [symbol for item in outputs for symbol in _flat(item)]
    return [outputs]


def find_files(path: Path) -> tuple[Path, Path]:
    """The symbol's file and its parameters', from a prefix, either file, or their folder."""
    if path.is_dir():
        found = sorted(path.glob(f"*{SYMBOL}"))
        if len(found) != 1:
            names = ", ".join(item.name for item in found) or "none"
            raise UnsupportedModel(f"{path}: expected one file *{SYMBOL}, there are: {names}")
        return found[0], _params_of(prefix_of(found[0]))
    prefix = prefix_of(path)
    symbol = prefix.with_name(prefix.name + SYMBOL)
    if not symbol.is_file():
        folder = path.parent
        near = sorted(item.name for item in folder.glob(f"*{SYMBOL}")) if folder.is_dir() else []
        hint = f"; its folder has {', '.join(near[:3])}" if near else ""
        raise UnsupportedModel(f"{symbol}: no such file{hint} (expected {ACCEPTED})")
    return symbol, path if _EPOCH.search(path.name) else _params_of(prefix)


def prefix_of(path: Path) -> Path:
    """What MXNet calls the prefix: the path without the endings of its two files."""
    name = path.name
    if name.endswith(SYMBOL):
        return path.with_name(name.removesuffix(SYMBOL))
    return path.with_name(_EPOCH.sub("", name))


def _params_of(prefix: Path) -> Path:
    found = [
        item
        for item in sorted(prefix.parent.glob(f"{_escaped(prefix.name)}-*.params"))
        if _EPOCH.sub("", item.name) == prefix.name
    ]
    if not found:
        raise UnsupportedModel(
            f"{prefix}-0000.params: no such file; the parameters belong beside the symbol"
        )
    if len(found) > 1:
        names = ", ".join(item.name for item in found[:4])
        raise UnsupportedModel(
            f"{prefix}: parameters of {len(found)} epochs are there ({names}): "
            "give the path of the one you mean"
        )
    return found[0]


def _escaped(name: str) -> str:
    return re.sub(r"([\[\]*?])", r"[\1]", name)


def read_files(symbol_path: Path, params_path: Path) -> tuple[mx.sym.Symbol, Params, Params]:
    try:
        with hushed():  # it remarks on symbols of older versions
            symbol = mx.sym.load_json(symbol_path.read_text("utf-8"))
    except (MXNetError, UnicodeDecodeError) as error:
        raise UnsupportedModel(
            f"{symbol_path}: not a symbol that MXNet {mx.__version__} can read "
            f"({first_line(error)})"
        ) from error
    if not params_path.is_file():
        raise UnsupportedModel(f"{params_path}: no such file")
    try:
        stored = mx.nd.load(str(params_path))
    except (MXNetError, UnicodeDecodeError) as error:
        raise UnsupportedModel(
            f"{params_path}: not a file of MXNet parameters, or a damaged one ({first_line(error)})"
        ) from error
    if not isinstance(stored, dict):
        raise UnsupportedModel(f"{params_path}: its arrays have no names")
    states = set(symbol.list_auxiliary_states())
    args: dict[str, mx.nd.NDArray] = {}
    auxs: dict[str, mx.nd.NDArray] = {}
    for key, value in stored.items():
        kind, _, name = key.rpartition(":")  # Gluon's save_parameters writes no kind
        (auxs if kind == "aux" or name in states else args)[name] = value
    return symbol, args, auxs
