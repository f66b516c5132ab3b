"""A training loop made from the yaml: `quantization.train`."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn

from lpot.backends.torch.data import arguments, tensors, to_tensor
from lpot.core.batch import split
from lpot.core.errors import DataError
from lpot.core.progress import tracked

LOSSES = {"CrossEntropyLoss": nn.CrossEntropyLoss}


def training_loop(section: Mapping[str, Any], loader: Iterable[Any]) -> Callable[[nn.Module], None]:
    """`section` has optimizer, criterion, start_epoch, end_epoch and iteration."""
    ((_, sgd),) = section["optimizer"].items()
    ((name, given),) = section["criterion"].items()
    criterion = LOSSES[name](**(given or {}))
    epochs: Sequence[int] = range(section.get("start_epoch", 0), section["end_epoch"])

    def train(module: nn.Module) -> None:
        options = dict(sgd or {})
        optimizer = torch.optim.SGD(
            module.parameters(), lr=options.pop("learning_rate", 1e-3), **options
        )
        module.train()
        for _ in tracked(epochs):
            for raw in itertools.islice(loader, section.get("iteration")):
                optimizer.zero_grad()
                _loss(module, criterion, raw).backward()
                optimizer.step()

    return train


def _loss(module: nn.Module, criterion: nn.Module, raw: Any) -> torch.Tensor:
    batch = split(raw, None)
    if batch.labels is None:
        raise DataError(
            "the training dataset gives no labels: quantization.train needs (inputs, labels)"
        )
    positional, named = arguments(module, batch.inputs)
    output = next(tensors(module(*positional, **named)))
    labels = to_tensor(batch.labels).long().reshape(-1)
    loss: torch.Tensor = criterion(output, labels)
    return loss.mean()  # reduction: none leaves one for each sample
