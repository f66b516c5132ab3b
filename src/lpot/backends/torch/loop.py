"""A training loop made from the yaml: the `train` of quantization, pruning and distillation."""

from __future__ import annotations

import copy
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
Loss = Callable[[nn.Module, Any], torch.Tensor]  # of a module on a raw batch


def training_loop(
    section: Mapping[str, Any], loader: Iterable[Any], hooks: Any = None, loss: Loss | None = None
) -> Callable[[nn.Module], None]:
    """`section` has optimizer, criterion, start_epoch, end_epoch and iteration.

    `hooks` are those of the original's components: on_epoch_begin(epoch) … on_epoch_end().
    """
    ((_, sgd),) = section["optimizer"].items()
    wanted = loss or label_loss(section)
    epochs: Sequence[int] = range(section.get("start_epoch", 0), section["end_epoch"])

    def train(module: nn.Module) -> None:
        options = dict(sgd or {})
        optimizer = torch.optim.SGD(
            module.parameters(), lr=options.pop("learning_rate", 1e-3), **options
        )
        for epoch in tracked(epochs):
            module.train()
            _tell(hooks, "on_epoch_begin", epoch)
            for number, raw in enumerate(itertools.islice(loader, section.get("iteration"))):
                _tell(hooks, "on_batch_begin", number)
                optimizer.zero_grad()
                wanted(module, raw).backward()
                _tell(hooks, "on_post_grad")
                optimizer.step()
                _tell(hooks, "on_batch_end")
            _tell(hooks, "on_epoch_end")

    return train


def _tell(hooks: Any, name: str, *args: Any) -> None:
    if hooks is not None:
        getattr(hooks, name)(*args)


def label_loss(section: Mapping[str, Any]) -> Loss:
    """The criterion that the section names, between outputs and labels."""
    ((name, given),) = section["criterion"].items()
    criterion = LOSSES[name](**(given or {}))

    def loss(module: nn.Module, raw: Any) -> torch.Tensor:
        batch = split(raw, None)
        if batch.labels is None:
            raise DataError("the training data give no labels: they must give (inputs, labels)")
        positional, named = arguments(module, batch.inputs)
        output = next(tensors(module(*positional, **named)))
        return _against_labels(criterion, output, batch.labels)

    return loss


def _against_labels(criterion: nn.Module, output: torch.Tensor, labels: Any) -> torch.Tensor:
    found: torch.Tensor = criterion(output, to_tensor(labels).long().reshape(-1))
    return found.mean()  # reduction: none leaves one for each sample


def taught_loss(teacher: nn.Module, options: Mapping[str, Any]) -> Loss:
    """Knowledge distillation: labels and the teacher's softened outputs, weighed."""
    from lpot.backends.torch.prune.distill import soft_loss

    tutor = copy.deepcopy(teacher).eval()
    temperature = float(options.get("temperature", 1.0))
    by_label, by_teacher = options.get("loss_weights", (0.5, 0.5))

    def loss(module: nn.Module, raw: Any) -> torch.Tensor:
        batch = split(raw, None)
        positional, named = arguments(module, batch.inputs)
        output = next(tensors(module(*positional, **named)))
        with torch.no_grad():
            wanted = next(tensors(tutor(*positional, **named)))
        found = by_teacher * soft_loss(output, wanted, temperature)
        if by_label and batch.labels is not None:
            found = found + by_label * _against_labels(nn.CrossEntropyLoss(), output, batch.labels)
        return found

    return loss
