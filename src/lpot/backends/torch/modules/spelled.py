"""Low-precision modules spelled out as quantize, dequantize and float ops, for export."""

from __future__ import annotations

import copy
from typing import Any, Protocol

import torch
from torch import nn
from torch.nn import functional

from lpot.backends.torch.kernels import Affine, Geometry
from lpot.backends.torch.modules.attention import LowAttention
from lpot.backends.torch.modules.base import LowModule, StandIn
from lpot.backends.torch.modules.dense import LowConv, LowLinear
from lpot.backends.torch.modules.half import HalfModule
from lpot.backends.torch.modules.recurrent import LowRecurrent

_CONV: dict[tuple[int, bool], Any] = {
    (1, False): functional.conv1d,
    (2, False): functional.conv2d,
    (3, False): functional.conv3d,
    (1, True): functional.conv_transpose1d,
    (2, True): functional.conv_transpose2d,
    (3, True): functional.conv_transpose3d,
}


class Speller(Protocol):
    """How a format writes rounding down."""

    def round(self, x: torch.Tensor, side: Side) -> torch.Tensor:
        """Quantize to uint8 and back."""
        ...

    def round_to(
        self, x: torch.Tensor, scale: torch.Tensor, zero: torch.Tensor, levels: int
    ) -> torch.Tensor:
        """The same with a scale and a zero point that are computed from each batch."""
        ...

    def real(self, values: torch.Tensor, scale: torch.Tensor, axis: int | None) -> torch.Tensor:
        """int8 weights as floats; without an axis there is one scale for all."""
        ...


class Side(nn.Module):  # type: ignore[misc]
    """Scale and zero point of an activation, as numbers and as tensors of the exported file."""

    def __init__(self, affine: Affine) -> None:
        super().__init__()
        self.affine = affine
        self.register_buffer("scale", torch.tensor(affine.scale, dtype=torch.float32))
        self.register_buffer("zero", torch.tensor(affine.zero_point, dtype=torch.uint8))


class Spelled(StandIn):
    """A linear or convolution: rounded input, int8 weight, and for convolutions rounded output."""

    def __init__(self, low: LowModule, speller: Speller) -> None:
        super().__init__()
        self.stand_for(low)
        self.speller = speller
        weights = low.parts["weight"]
        self.axis = weights.axis
        self.register_buffer("values", weights.values)
        self.register_buffer("scale", weights.scale)
        self.register_buffer("bias", weights.bias)
        self.register_buffer("smooth", low.smooth if isinstance(low, LowLinear) else None)
        settings: Any = low.settings
        self.relu: bool = settings.relu
        outlet = settings.outlet if isinstance(low, LowConv) else None
        self.inlet = None if settings.inlet is None else Side(settings.inlet)
        self.levels = 127 if settings.reduced else 255  # of a dynamic input
        self.outlet = None if outlet is None else Side(outlet)
        self.geometry: Geometry | None = low.geometry if isinstance(low, LowConv) else None
        self.pad = low._pad if isinstance(low, LowConv) else None
        self.pad_mode = low._mode if isinstance(low, LowConv) else ""
        self.take_after(low)
        self.training = False

    @property
    def weight(self) -> torch.Tensor:
        """For code that asks for its dtype or shape; what is not used is not written."""
        return self.speller.real(self.values, self.scale, self.axis)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.pad is not None:
            x = functional.pad(x, self.pad, mode=self.pad_mode)
        if self.smooth is not None:
            x = x * self.smooth
        x = self.speller.round(x, self.inlet) if self.inlet is not None else self._measured(x)
        y = self._compute(x, self.weight)
        if self.relu:
            y = torch.relu(y)
        if self.outlet is not None:
            y = self.speller.round(y, self.outlet)
        return y

    def _measured(self, x: torch.Tensor) -> torch.Tensor:
        """A dynamic input, rounded by the range of its batch, as the kernels do."""
        low, high = x.min().clamp(max=0.0), x.max().clamp(min=0.0)
        scale = ((high - low) / self.levels).clamp(min=torch.finfo(torch.float32).tiny)
        zero = torch.round(-low / scale).clamp(0, self.levels)
        return self.speller.round_to(x, scale, zero, self.levels)

    def _compute(self, x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
        shape = self.geometry
        if shape is None:
            return functional.linear(x, weight, self.bias)
        options: dict[str, Any] = {
            "stride": shape.stride,
            "padding": shape.padding,
            "dilation": shape.dilation,
            "groups": shape.groups,
        }
        if shape.transposed:
            options["output_padding"] = shape.output_padding
        y: torch.Tensor = _CONV[shape.dims, shape.transposed](x, weight, self.bias, **options)
        return y


def spell(low: StandIn, speller: Speller) -> nn.Module:
    """The module to export in place of a low-precision one."""
    if isinstance(low, HalfModule):
        return copy.deepcopy(low.inner).float()  # runtimes that open files have no bf16
    if isinstance(low, LowLinear | LowConv):
        return Spelled(low, speller)
    if isinstance(low, LowRecurrent):
        return _recurrent(low)
    if isinstance(low, LowAttention):
        return _attention(low)
    return low  # embeddings are plain torch ops already


def _recurrent(low: Any) -> nn.Module:
    """Formats have no LSTM of our kind: a float one with the weights that int8 stands for."""
    kind = nn.LSTM if low._is_lstm else nn.GRU
    made = kind(
        low.input_size,
        low.hidden_size,
        low.num_layers,
        bias=bool(low.bias),
        batch_first=low.batch_first,
        bidirectional=low.bidirectional,
        dtype=torch.float32,
    ).eval()
    with torch.no_grad():
        for name, part in low.parts.items():
            getattr(made, name).copy_(part.real())
            if part.bias is not None:
                getattr(made, name.replace("weight", "bias")).copy_(part.bias)
    return made


def _attention(low: LowAttention) -> nn.Module:
    made = nn.MultiheadAttention(
        low.embed_dim,
        low.num_heads,
        bias=low.in_proj_bias is not None,
        batch_first=low.batch_first,
        dtype=torch.float32,
    ).eval()
    inner, outer = low.parts["in_proj_weight"], low.parts["out_proj_weight"]
    with torch.no_grad():
        made.in_proj_weight.copy_(inner.real())
        made.out_proj.weight.copy_(outer.real())
        if inner.bias is not None:
            made.in_proj_bias.copy_(inner.bias)
        if outer.bias is not None:
            made.out_proj.bias.copy_(outer.bias)
    return made
