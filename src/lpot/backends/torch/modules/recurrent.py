"""LSTM and GRU with int8 weights and ranges taken from each batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import nn
from torch.nn.utils.rnn import PackedSequence

from lpot.backends.torch.kernels.cells import Cells
from lpot.backends.torch.modules.base import LowModule
from lpot.backends.torch.weights import Weights


def weight_names(module: Any) -> list[tuple[str, str]]:
    """(input-hidden, hidden-hidden) weight names in the order the kernels want."""
    directions = ("", "_reverse") if module.bidirectional else ("",)
    return [
        (f"weight_ih_l{layer}{end}", f"weight_hh_l{layer}{end}")
        for layer in range(module.num_layers)
        for end in directions
    ]


class LowRecurrent(LowModule):
    """nn.LSTM or nn.GRU with the same inputs and outputs, packed sequences included."""

    def __init__(
        self, original: nn.Module, parts: Mapping[str, Weights], kernel: str, reduced: bool
    ) -> None:
        super().__init__(original, parts)
        self.kernel = kernel
        self.reduced = reduced
        self._is_lstm = isinstance(original, nn.LSTM)
        pairs = [(self.parts[ih], self.parts[hh]) for ih, hh in weight_names(self)]
        self._cells = Cells(pairs, kernel, reduced)

    def flatten_parameters(self) -> None:
        """Part of the original's interface; there is nothing to flatten."""

    def forward(self, input: Any, hx: Any = None) -> tuple[Any, Any]:
        if isinstance(input, PackedSequence):
            return self._packed(input, hx)
        single = input.dim() == 2
        along = 0 if self.batch_first else 1
        x = input.unsqueeze(along) if single else input
        state = self._state(x, x.shape[along], hx, single)
        y, state = self._call(x, state, None)
        if single:
            return y.squeeze(along), _map(state, lambda part: part.squeeze(1))
        return y, state

    def _packed(self, input: PackedSequence, hx: Any) -> tuple[PackedSequence, Any]:
        data, sizes, order, back = input
        state = self._state(data, int(sizes[0]), hx, False)
        if hx is not None and order is not None:
            state = _map(state, lambda part: part.index_select(1, order))
        y, state = self._call(data, state, sizes)
        if back is not None:
            state = _map(state, lambda part: part.index_select(1, back))
        return PackedSequence(y, sizes, order, back), state

    def _state(self, x: torch.Tensor, batch: int, hx: Any, single: bool) -> Any:
        if hx is not None:
            return _map(hx, lambda part: part.unsqueeze(1)) if single else hx
        layers = self.num_layers * (2 if self.bidirectional else 1)
        zeros = torch.zeros(layers, batch, self.hidden_size, dtype=x.dtype)
        return (zeros, zeros) if self._is_lstm else zeros

    def _call(self, x: torch.Tensor, state: Any, sizes: torch.Tensor | None) -> tuple[Any, Any]:
        return self._cells(self, x, state, sizes, self._is_lstm)

    def facts(self) -> dict[str, Any]:
        return {"kernel": self.kernel, **({"reduced": True} if self.reduced else {})}


def _map(state: Any, change: Any) -> Any:
    return tuple(map(change, state)) if isinstance(state, tuple) else change(state)
