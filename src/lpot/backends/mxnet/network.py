"""A symbol with its parameters, checked: what is an input, what is a parameter, do they fit."""

from __future__ import annotations

import ast
import hashlib
import logging
from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from lpot.backends.mxnet.graph import Graph, Node
from lpot.backends.mxnet.protect import protect
from lpot.backends.mxnet.runtime import MXNetError, mx
from lpot.core.backend import ModelSpec
from lpot.core.batch import InputSpec
from lpot.core.errors import UnsupportedModel, did_you_mean

logger = logging.getLogger(__name__)

Params = Mapping[str, mx.nd.NDArray]

# Where an op keeps its parameters: an argument without a value there is a missing parameter.
SLOTS: Mapping[str, tuple[int, ...]] = {
    "Convolution": (1, 2),
    "Deconvolution": (1, 2),
    "FullyConnected": (1, 2),
    "BatchNorm": (1, 2, 3, 4),
    "LayerNorm": (1, 2),
    "InstanceNorm": (1, 2),
    "GroupNorm": (1, 2),
    "Embedding": (1,),
    "LeakyReLU": (1,),
    "RNN": (1,),
}
# Heads of training: their label is no input of inference.
HEADS = (
    *("SoftmaxOutput", "LinearRegressionOutput", "LogisticRegressionOutput"),
    *("MAERegressionOutput", "SVMOutput"),
)
# Inputs read by nothing but these may be of any number type.
CASTING = {"Embedding": 0, "one_hot": 0, "take": 1, "Cast": 0, "cast": 0}


@dataclass(frozen=True, eq=False)
class Network:
    """`labels` are arguments that only training needs; `outputs` keep the given model's names."""

    symbol: mx.sym.Symbol
    args: Params
    auxs: Params
    inputs: tuple[InputSpec, ...]
    outputs: tuple[str, ...]
    labels: tuple[str, ...] = ()
    loose: frozenset[str] = frozenset()

    def around(self, symbol: mx.sym.Symbol, more: Params = MappingProxyType({})) -> Network:
        """Another symbol with those of the parameters that it has, and some more."""
        known, states = set(symbol.list_arguments()), set(symbol.list_auxiliary_states())
        return replace(
            self,
            symbol=symbol,
            args={n: value for n, value in {**self.args, **more}.items() if n in known},
            auxs={name: value for name, value in self.auxs.items() if name in states},
            labels=tuple(name for name in self.labels if name in known),
        )

    def copied(self) -> Network:
        """The same with parameters of its own.

        Executors put weights into oneDNN's layouts where they lie, and quantized ops that have
        read them before take the new layout for new values: two networks must not share them.
        """
        return replace(
            self,
            args={name: value.copy() for name, value in self.args.items()},
            auxs={name: value.copy() for name, value in self.auxs.items()},
        )

    @property
    def nbytes(self) -> int:
        arrays = (*self.args.values(), *self.auxs.values())
        return sum(array.size * array.dtype().itemsize for array in arrays)

    def fingerprint(self) -> str:
        digest = hashlib.sha256(self.symbol.tojson().encode())
        for kind, params in (("arg", self.args), ("aux", self.auxs)):
            for name in sorted(params):
                array = params[name].asnumpy()
                digest.update(f"{kind}:{name}:{array.dtype}:{array.shape}".encode())
                digest.update(array.tobytes())
        return digest.hexdigest()[:32]


def check(symbol: mx.sym.Symbol, args: Params, auxs: Params, spec: ModelSpec, what: str) -> Network:
    """The network, or an error that names the parameter which does not fit."""
    symbol = _cut(symbol, spec.outputs, what)
    outputs = tuple(symbol.list_outputs())
    symbol = protect(symbol)
    graph = Graph.of(symbol)
    _check_names(symbol, what)
    _check_missing(graph, symbol, args, auxs, what)
    _check_shapes(graph, {**args, **auxs}, what)
    labels = _labels(graph, args)
    names = [name for name in symbol.list_arguments() if name not in args and name not in labels]
    ordered = _order(names, spec.inputs, what)
    known = symbol.list_arguments(), symbol.list_auxiliary_states()
    unused = sorted({*args, *auxs} - {*known[0], *known[1]})
    if unused:
        logger.warning(
            "%s: %d parameter(s) are not in the symbol and are ignored: %s",
            what,
            len(unused),
            ", ".join(unused[:3]),
        )
    return Network(
        symbol,
        {name: args[name] for name in known[0] if name in args},
        {name: auxs[name] for name in known[1]},
        tuple(InputSpec(name, "float32", _declared_shape(symbol, name)) for name in ordered),
        outputs,
        labels,
        frozenset(name for name in ordered if _is_loose(graph, name)),
    )


def _cut(symbol: mx.sym.Symbol, outputs: tuple[str, ...], what: str) -> mx.sym.Symbol:
    """The symbol with the outputs that the user named; a layer's name will do, too."""
    if not outputs:
        return symbol
    internals = symbol.get_internals()
    known = internals.list_outputs()
    found = []
    for name in outputs:
        full = name if name in known else f"{name}_output"
        if full not in known:
            near = did_you_mean(name, [*known, *(item.removesuffix("_output") for item in known)])
            raise UnsupportedModel(f"{what}: there is no output {name!r}{near}")
        found.append(internals[full])
    return found[0] if len(found) == 1 else mx.sym.Group(found)


def _check_names(symbol: mx.sym.Symbol, what: str) -> None:
    names = symbol.list_arguments()
    twice = sorted({name for name in names if names.count(name) > 1})
    if twice:
        raise UnsupportedModel(
            f"{what}: {twice[0]!r} is the name of two different variables, so its value can't be "
            "given by name; share one variable, or give them different names"
        )


def _check_missing(
    graph: Graph, symbol: mx.sym.Symbol, args: Params, auxs: Params, what: str
) -> None:
    missing = [name for name in symbol.list_auxiliary_states() if name not in auxs]
    for node in graph.ops:
        for place in SLOTS.get(node.kind, ()):
            if place < len(node.inputs):
                source = graph.producer(node.inputs[place])
                known = source.name in args or source.name in auxs or source.name in missing
                if source.is_variable and not known:
                    missing.append(source.name)
    if missing:
        given = [*args, *auxs]
        near = did_you_mean(missing[0], given) or (
            f"; they have {', '.join(given[:3])}, …" if given else "; no parameters were given"
        )
        raise UnsupportedModel(
            f"{what}: the parameters do not fit the symbol: {len(missing)} of those it needs are "
            f"missing, such as {missing[0]!r}{near}"
        )


def _check_shapes(graph: Graph, params: Params, what: str) -> None:
    """What an op's attributes say of its parameters, before any data is seen."""
    for node in graph.ops:
        for name, shape, wanted in _claims(graph, node, params):
            pairs = zip(wanted, shape, strict=False)
            clash = any(want is not None and want != got for want, got in pairs)
            if clash or len(wanted) != len(shape):
                sizes = ", ".join("?" if want is None else str(want) for want in wanted)
                raise UnsupportedModel(
                    f"{what}: the parameters do not fit the symbol: {name!r} is "
                    f"{list(shape)}, but {node.kind} {node.name!r} needs [{sizes}]"
                )


Claim = tuple[str, tuple[int, ...], tuple[int | None, ...]]


def _claims(graph: Graph, node: Node, params: Params) -> list[Claim]:
    if node.kind not in ("Convolution", "FullyConnected"):
        return []
    width = int(node.attrs["num_filter" if node.kind == "Convolution" else "num_hidden"])
    weight: tuple[int | None, ...] = (width, None)
    if node.kind == "Convolution":
        kernel = tuple(int(size) for size in ast.literal_eval(node.attrs["kernel"]))
        last = node.attrs.get("layout") in ("NWC", "NHWC", "NDHWC")
        weight = (width, *kernel, None) if last else (width, None, *kernel)
    wanted = (None, weight, (width,))
    found: list[Claim] = []
    for place, entry in enumerate(node.inputs[:3]):
        name, claim = graph.producer(entry).name, wanted[place]
        if claim is not None and name in params:
            found.append((name, params[name].shape, claim))
    return found


def _labels(graph: Graph, args: Params) -> tuple[str, ...]:
    found = []
    for node in graph.nodes:
        if node.is_variable and node.name not in args:
            readers = graph.readers.get(node.name, ())
            if readers and all(r.kind in HEADS and place == 1 for r, place in readers):
                found.append(node.name)
    return tuple(found)


def _order(names: list[str], wanted: tuple[str, ...], what: str) -> list[str]:
    """The model's inputs in the user's order, where the configuration tells it."""
    if not wanted:
        return names
    for name in wanted:
        if name not in names:
            raise UnsupportedModel(
                f"{what}: there is no input {name!r}{did_you_mean(name, names)} "
                f"(the inputs are {', '.join(names)})"
            )
    left = [name for name in names if name not in wanted]
    if left:
        raise UnsupportedModel(
            f"{what}: `model.inputs` leaves out {', '.join(map(repr, left))}, for which the "
            "parameters have no value either"
        )
    return list(wanted)


def _declared_shape(symbol: mx.sym.Symbol, name: str) -> tuple[int | None, ...] | None:
    """From the variable's own attribute, where the symbol was made with one."""
    text = symbol.attr_dict().get(name, {}).get("__shape__")
    try:
        shape = tuple(int(size) for size in ast.literal_eval(text)) if text else ()
    except (ValueError, SyntaxError, TypeError):
        return None
    return tuple(size if size > 0 else None for size in shape) or None


def _is_loose(graph: Graph, name: str) -> bool:
    readers = graph.readers.get(name, ())
    return bool(readers) and all(CASTING.get(node.kind) == place for node, place in readers)


def infer(network: Network, shapes: Mapping[str, tuple[int, ...]]) -> dict[str, tuple[int, ...]]:
    """Argument and auxiliary shapes for inputs of these shapes; raises MXNetError."""
    symbol = network.symbol
    found, _, aux = symbol.infer_shape(**shapes)
    if found is None:
        raise MXNetError("the inputs' shapes do not determine those of all parameters")
    return {
        **dict(zip(symbol.list_arguments(), found, strict=True)),
        **dict(zip(symbol.list_auxiliary_states(), aux, strict=True)),
    }
