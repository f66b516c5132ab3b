"""Linear layers and convolutions in int8."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any

import torch
from torch import nn
from torch.nn import functional

from lpot.backends.torch.kernels import KERNELS, Affine, Geometry, Run
from lpot.backends.torch.kernels.agree import Call, agrees
from lpot.backends.torch.kernels.codes import decode
from lpot.backends.torch.kernels.geometry import geometry_of
from lpot.backends.torch.kernels.interface import plain
from lpot.backends.torch.kernels.latest import Latest
from lpot.backends.torch.kinds import is_hf_conv1d
from lpot.backends.torch.modules.base import LowModule, as_inlet
from lpot.backends.torch.modules.by_hand import WeightByHand
from lpot.backends.torch.weights import Weights


@dataclass(frozen=True)
class Settings:
    """How a dense op runs. `inlet` None means dynamic: ranges are taken from each batch."""

    kernel: str
    inlet: Affine | None = None
    outlet: Affine | None = None
    relu: bool = False
    reduced: bool = False  # dynamic with 7 bits
    divided: bool = False  # a layer norm does the smoothing of the input
    plain: bool = False  # the output lies in memory as FP32's does

    def to_json(self) -> dict[str, Any]:
        return {key: value for key, value in asdict(self).items() if value not in (None, False)}

    @classmethod
    def from_json(cls, raw: dict[str, Any]) -> Settings:
        sides = {
            side: Affine(float(raw[side]["scale"]), int(raw[side]["zero_point"]))
            for side in ("inlet", "outlet")
            if side in raw
        }
        return cls(
            kernel=raw["kernel"],
            relu=bool(raw.get("relu", False)),
            reduced=bool(raw.get("reduced", False)),
            divided=bool(raw.get("divided", False)),
            plain=bool(raw.get("plain", False)),
            **sides,
        )


class LowLinear(LowModule):
    """nn.Linear or GPT-2's Conv1D; the weight is kept output channels first in both cases."""

    def __init__(self, original: nn.Module, weights: Weights, settings: Settings) -> None:
        super().__init__(original, {"weight": weights})
        self.settings = settings
        self._transposed = is_hf_conv1d(original)
        self._hand: WeightByHand | None = None
        self._run: Run | None = None

    def runner(self, outlet: Affine | None = None) -> Run:
        """The function that computes it; with an outlet given the output stays codes."""
        run, smooth = self._kernel(outlet), self.smooth
        return run if smooth is None else lambda x: run(_smoothed(x, smooth, run))

    def _kernel(self, outlet: Affine | None) -> Run:
        kernel, settings = KERNELS[self.settings.kernel], self.settings
        weights = self.parts["weight"]
        if settings.inlet is None:
            return kernel.linear_dynamic(weights, settings.relu, settings.reduced)
        emit = outlet is not None
        return kernel.linear(
            weights, settings.inlet, outlet or settings.outlet, settings.relu, emit
        )

    @property
    def smooth(self) -> torch.Tensor | None:
        """What it multiplies its input with, which it wants as floats for that."""
        return None if self.settings.divided else self.parts["weight"].smooth

    def ready(self) -> Run:
        """Packed for calls from float neighbours; inside a captured part nobody may need that."""
        if self._run is None:
            self._run = self.runner()
        return self._run

    def forward(self, input: torch.Tensor) -> torch.Tensor:
        x = as_inlet(input)
        if x.dim() == 1:  # the kernels know batched inputs only
            return (self._run or self.ready())(x.unsqueeze(0)).squeeze(0)
        return (self._run or self.ready())(x)

    @property
    def weight(self) -> torch.Tensor:
        if self._transposed:
            return self.real("weight").t()
        if self._hand is None:
            self._hand = WeightByHand.of(self)
        return self._hand

    def by_hand(self, x: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        """The product with its weight and a bias that may be another than its own."""
        y, own = self(x), self.parts["weight"].bias
        if bias is own or (bias is not None and bias is self._buffers.get("bias")):
            return y
        y = y if own is None else y - own
        return y if bias is None else y + bias

    def facts(self) -> dict[str, Any]:
        return self.settings.to_json()


_products = Latest()


def _smoothed(x: torch.Tensor, smooth: torch.Tensor, reader: object) -> torch.Tensor:
    """Linears that read one tensor share their factors, and what is made by them."""

    def make() -> torch.Tensor:
        return plain(decode(x)) * smooth

    return _products.get(x, id(smooth), make, smooth, reader)


class LowConv(LowModule):
    """A convolution of one to three dimensions, transposed or not."""

    def __init__(self, original: nn.Module, weights: Weights, settings: Settings) -> None:
        super().__init__(original, {"weight": weights})
        self.settings = settings
        self.geometry, self._pad = geometry_of(original)
        self._mode = original.padding_mode if original.padding_mode != "zeros" else "constant"
        self._run: Run | None = None

    def ready(self) -> Run:
        """Packed for calls from float neighbours; inside a captured part nobody may need that."""
        if self._run is None:
            self._run = self.runner()
        return self._run

    def runner(self, outlet: Affine | None = None) -> Run:
        """The function that computes it; with an outlet given the output stays codes."""
        run = self._kernel(self.geometry, outlet)
        if self._pad is None:
            return run
        pad, mode = self._pad, self._mode
        return lambda x: run(functional.pad(decode(x), pad, mode=mode))

    @property
    def pads_itself(self) -> bool:
        """Is there padding that the kernel can't do?"""
        return self._pad is not None

    def _kernel(
        self, geometry: Geometry, outlet: Affine | None = None, kernel: str | None = None
    ) -> Run:
        settings = self.settings
        assert settings.inlet is not None and settings.outlet is not None
        emit = outlet is not None
        return KERNELS[kernel or settings.kernel].conv(
            self.parts["weight"],
            geometry,
            settings.inlet,
            outlet or settings.outlet,
            settings.relu,
            emit,
        )

    def forward(self, input: torch.Tensor, output_size: list[int] | None = None) -> torch.Tensor:
        # The kernels know batched inputs only; float modules also take a single sample.
        x = as_inlet(input)
        single = x.dim() == self.geometry.dims + 1
        if single:
            x = x.unsqueeze(0)
        run = self.ready() if output_size is None else self._sized(x, output_size)
        y = run(x)
        y = y.contiguous() if self.settings.plain else y
        return y.squeeze(0) if single else y

    def _sized(self, x: torch.Tensor, output_size: list[int]) -> Run:
        """A transposed convolution asked for one of its possible output sizes."""
        geometry = self.geometry
        padding = nn.ConvTranspose2d._output_padding(
            self,  # reads nothing of it
            x,
            output_size,
            list(geometry.stride),
            list(geometry.padding),
            list(self.parts["weight"].values.shape[2:]),
            geometry.dims,
            list(geometry.dilation),
        )
        sized = replace(geometry, output_padding=tuple(padding))
        weights = self.parts["weight"]
        call = Call(tuple(weights.values.shape), tuple(x.shape), sized, axis=weights.axis)
        right = agrees(self.settings.kernel, call)
        return self._kernel(sized, kernel=self.settings.kernel if right else "reference")

    def facts(self) -> dict[str, Any]:
        return self.settings.to_json()
