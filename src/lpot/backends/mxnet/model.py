"""The handle of an MXNet model: a network, its executors, and the object the user knows."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any

from lpot.backends.mxnet.equalize import equalize
from lpot.backends.mxnet.fusion import Fusion, fuse
from lpot.backends.mxnet.network import Network, Params
from lpot.backends.mxnet.run import Feeds, Runner
from lpot.backends.mxnet.runtime import CPU, mx
from lpot.core.batch import InputSpec
from lpot.core.model import Model
from lpot.core.recipe import OpKey, Recipe

if TYPE_CHECKING:
    from lpot.backends.mxnet import MxnetBackend


class MxnetModel(Model):
    """`network` is what runs. `block` is the HybridBlock that was given, None for other forms."""

    def __init__(
        self,
        backend: MxnetBackend,
        network: Network,
        block: Any = None,
        recipe: Recipe | None = None,
        precisions: Mapping[OpKey, str] | None = None,
        probe: Feeds | None = None,
    ) -> None:
        self.backend = backend
        self.network = network
        self.block = block
        self.recipe = recipe
        self.precisions = precisions or {}  # what each op really became
        self.probe: Feeds | None = probe
        self._runner: Runner | None = None

    @cached_property
    def native(self) -> Any:
        """A block for a block, else (symbol, arg_params, aux_params)."""
        if self.block is None:
            return self.symbol, dict(self.arg_params), dict(self.aux_params)
        return self.block if not self._is_low else as_block(self.network)

    @property
    def _is_low(self) -> bool:
        return self.recipe is not None and bool(self.recipe.low_ops)

    @property
    def symbol(self) -> mx.sym.Symbol:
        return self.network.symbol

    @property
    def arg_params(self) -> Params:
        return self.network.args

    @property
    def aux_params(self) -> Params:
        return self.network.auxs

    @property
    def run(self) -> Runner:
        if self._runner is None:
            self._runner = Runner(self.network)
        return self._runner

    @cached_property
    def even(self) -> Network:
        """The same function with its channels equalized: what INT8 is made of."""
        return equalize(self.network)

    @cached_property
    def fusion(self) -> Fusion:
        """Made once, used by every trial."""
        return fuse(self.even)

    @property
    def inputs(self) -> tuple[InputSpec, ...]:
        return self.network.inputs

    @property
    def input_names(self) -> tuple[str, ...]:
        return tuple(spec.name for spec in self.network.inputs)

    @property
    def output_names(self) -> tuple[str, ...]:
        return self.network.outputs

    @property
    def nbytes(self) -> int:
        return self.network.nbytes

    def fingerprint(self) -> str:
        return self.network.fingerprint()

    def close(self) -> None:
        self._runner = None
        self.__dict__.pop("native", None)


def as_block(network: Network) -> mx.gluon.SymbolBlock:
    """A network as a block that is called like the one the user gave."""
    inputs = [mx.sym.var(spec.name, dtype=spec.dtype) for spec in network.inputs]
    block = mx.gluon.SymbolBlock(network.symbol, inputs)
    values = {**network.args, **network.auxs}
    for name, parameter in block.collect_params().items():
        parameter._load_init(values[name], CPU, cast_dtype=True, dtype_source="saved")
    return block
