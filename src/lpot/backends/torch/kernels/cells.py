"""torch's LSTM and GRU on int8 weights, with ranges taken from each batch."""

from __future__ import annotations

from typing import Any

import torch

from lpot.backends.torch.kernels.engine import EngineKernel
from lpot.backends.torch.kernels.interface import plain
from lpot.backends.torch.weights import Weights


class Cells:
    """The packed layers of one module. Copies share it: copying would pack them anew, for another
    engine."""

    def __init__(self, pairs: list[tuple[Weights, Weights]], kernel: str, reduced: bool) -> None:
        self._packed = [_pack(ih, hh, EngineKernel(kernel), reduced) for ih, hh in pairs]

    def __deepcopy__(self, memo: dict[int, Any]) -> Cells:
        return self

    def __call__(
        self, module: Any, x: torch.Tensor, state: Any, sizes: torch.Tensor | None, is_lstm: bool
    ) -> tuple[Any, Any]:
        """`module` tells how its layers stand; `sizes` are those of a packed sequence."""
        op = torch.quantized_lstm if is_lstm else torch.quantized_gru
        first = (plain(x),) if sizes is None else (plain(x), sizes)
        last: tuple[Any, ...] = (False, module.bidirectional)
        if sizes is None:
            last += (module.batch_first,)
        options = {"dtype": torch.qint8, "use_dynamic": True} if is_lstm else {}
        found = op(*first, state, self._packed, True, module.num_layers, 0.0, *last, **options)
        return (found[0], tuple(found[1:])) if is_lstm else (found[0], found[1])


def _pack(ih: Weights, hh: Weights, engine: EngineKernel, reduced: bool) -> Any:
    whole = [Weights(w.values, w.scale, w.axis, _bias(w)) for w in (ih, hh)]
    packs = [engine.pack_linear(weights, "dynamic") for weights in whole]
    biases = [weights.bias for weights in whole]
    return torch.ops.quantized.make_quantized_cell_params_dynamic(*packs, *biases, reduced)


def _bias(weights: Weights) -> torch.Tensor:
    return (
        torch.zeros(weights.values.shape[0], dtype=torch.float32)
        if weights.bias is None
        else weights.bias
    )
