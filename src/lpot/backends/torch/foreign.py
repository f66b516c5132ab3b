"""A module that computes in another runtime: what `evaluate` gets of a model tuned as a file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.utils import _pytree as pytree

from lpot.backends.torch.data import arguments, owned
from lpot.backends.torch.run import to_numpy
from lpot.core.batch import Inputs, InputSpec
from lpot.core.errors import DataError, UnsupportedModel

if TYPE_CHECKING:
    from lpot.backends.torch.model import TorchModel


class TorchPresenter:
    """The way from a module's arguments to a file's inputs, and from its outputs back."""

    def __init__(self, model: TorchModel, inputs: Inputs, path: Path) -> None:
        self.model, self.module, self.specs = model, model.native, inputs_of(path)
        positional, named = arguments(self.module, inputs)
        with torch.no_grad():
            made = self.module(*owned(positional), **owned(named))
        self._outputs, self._form = pytree.tree_flatten(made)
        self._order = {name: place for place, name in enumerate(spec.name for spec in self.specs)}
        given = len(list(_tensors(positional, named)))
        if given != len(self.specs):
            raise UnsupportedModel(
                f"the module takes {given} tensors, and its ONNX file {len(self.specs)} "
                f"({', '.join(self._order)})"
            )

    def feeds(self, inputs: Inputs) -> dict[str, np.ndarray]:
        return self._named(*arguments(self.module, inputs))

    def _named(
        self, positional: tuple[Any, ...], named: Mapping[str, Any]
    ) -> dict[str, np.ndarray]:
        """By name where an argument is an input; all others by their place."""
        own = {name: value for name, value in named.items() if name in self._order}
        rest = {name: value for name, value in named.items() if name not in self._order}
        left = [spec.name for spec in self.specs if spec.name not in own]
        values = list(_tensors(positional, rest))
        if len(values) > len(left):
            raise DataError(
                f"given {len(own) + len(values)} tensors, but the exported model takes "
                f"{', '.join(self._order)}"
            )
        found = {**dict(zip(left, values, strict=False)), **own}
        return {
            spec.name: to_numpy(found[spec.name]).astype(spec.dtype, copy=False)
            for spec in self.specs
            if spec.name in found
        }

    def __call__(self, model: Any) -> ForeignModule:
        return ForeignModule(self, model)

    def rebuilt(self, outputs: list[np.ndarray]) -> Any:
        """The outputs in the form that the module gives them."""
        values = iter(torch.from_numpy(value) for value in outputs)
        leaves = [
            next(values) if isinstance(leaf, torch.Tensor) else leaf for leaf in self._outputs
        ]
        return pytree.tree_unflatten(leaves, self._form)


class ForeignModule(nn.Module):  # type: ignore[misc]  # torch comes without types
    """Called as the module given; tensors in, tensors out. Attributes are those of the module."""

    def __init__(self, presenter: TorchPresenter, model: Any) -> None:
        super().__init__()
        object.__setattr__(self, "_lpot", (presenter, model))
        self.training = False

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        presenter, model = self._lpot
        feeds = presenter._named(args, kwargs)
        return presenter.rebuilt(model.backend.run(model, feeds))

    def train(self, mode: bool = True) -> ForeignModule:
        """It can't be trained, and is always ready to be evaluated."""
        return self

    def parameters(self, recurse: bool = True) -> Iterator[nn.Parameter]:
        """The FP32 module's: code asks them for device and dtype."""
        return iter(self._lpot[0].module.parameters(recurse))

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(self.__dict__["_lpot"][0].module, name)


def inputs_of(path: Path) -> tuple[InputSpec, ...]:
    """Those of an ONNX file, in its order."""
    import onnx

    graph = onnx.load(str(path), load_external_data=False).graph
    types = (value.type.tensor_type.elem_type for value in graph.input)
    dtypes = (np.dtype(onnx.helper.tensor_dtype_to_np_dtype(one)).name for one in types)
    return tuple(
        InputSpec(value.name, dtype, None) for value, dtype in zip(graph.input, dtypes, strict=True)
    )


def _tensors(positional: tuple[Any, ...], named: Mapping[str, Any]) -> Iterator[torch.Tensor]:
    for value in pytree.tree_leaves((tuple(positional), dict(named))):
        if isinstance(value, torch.Tensor):
            yield value
