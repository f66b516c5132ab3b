"""A training loop made from the yaml: the `train` of quantization, pruning and distillation."""

from __future__ import annotations

import copy
import itertools
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from lpot.backends.torch.data import arguments, tensors, to_tensor
from lpot.backends.torch.training.precision import TrainingPrecision
from lpot.backends.torch.training.resume import TorchTraining
from lpot.core.batch import Inputs, split
from lpot.core.compress.labels import fitted
from lpot.core.compress.resume import TrainingFile
from lpot.core.compress.schedule import learning_rate_factor
from lpot.core.compress.trainers import (
    CRITERIONS,
    OPTIMIZERS,
    Named,
    Trainers,
    check_alike,
    check_learns,
    check_loss,
)
from lpot.core.errors import ConfigError, DataError, TrainingError
from lpot.core.progress import tracked

Loss = Callable[[nn.Module, Any], torch.Tensor]  # of a module on a raw batch
LEARNS = "model.requires_grad_(True)"


def training_loop(
    section: Mapping[str, Any],
    loader: Iterable[Any],
    hooks: Any = None,
    loss: Loss | None = None,
    file: TrainingFile | None = None,
) -> Callable[[nn.Module], None]:
    """`section` has optimizer, criterion, start_epoch, end_epoch and iteration.

    `hooks` are those of the original's components: on_epoch_begin(epoch) … on_epoch_end().
    `file` keeps the training from epoch to epoch.
    """
    wanted = loss or label_loss(section)
    factor = learning_rate_factor(section, loader)

    def train(module: nn.Module) -> None:
        _check_trainable(module)
        optimizer = _made(
            OPTIMIZERS, section["optimizer"], torch.optim.Optimizer, module.parameters()
        )
        rates = [group.get("lr", 0.0) for group in optimizer.param_groups]
        mode = module.training
        training = TorchTraining(module, optimizer)
        first = section.get("start_epoch", 0)
        first = first if file is None else file.begin(first, training)
        _tell(hooks, "pre_epoch_begin")
        for epoch in tracked(range(first, section["end_epoch"])):
            module.train()
            _tell(hooks, "on_epoch_begin", epoch)
            for number, raw in enumerate(itertools.islice(loader, section.get("iteration"))):
                _tell(hooks, "on_batch_begin", number)
                if factor is not None:
                    _set_rates(optimizer, rates, factor(epoch, number))
                optimizer.zero_grad()
                found = wanted(module, raw)
                check_loss(found.item(), epoch, number)
                found.backward()
                _tell(hooks, "on_post_grad")
                optimizer.step()
                _tell(hooks, "on_batch_end")
            _tell(hooks, "on_epoch_end")
            if file is not None:
                file.ended(epoch, training, last=epoch + 1 == section["end_epoch"])
        _tell(hooks, "post_epoch_end")
        module.train(mode)

    return train


def fed(module: nn.Module, inputs: Inputs) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Arguments for a call, floats in the type of the module's weights, where they have one."""
    given = arguments(module, inputs)
    kinds = {each.dtype for each in module.parameters() if each.is_floating_point()}
    if len(kinds) != 1 or kinds == {torch.float32}:
        return given
    (kind,) = kinds
    cast: tuple[tuple[Any, ...], dict[str, Any]] = pytree.tree_map_only(
        torch.Tensor, lambda value: value.to(kind) if value.is_floating_point() else value, given
    )
    return cast


def _check_trainable(module: nn.Module) -> None:
    check_learns(any(each.requires_grad for each in module.parameters()), LEARNS)
    if any(each.dtype == torch.float16 for each in module.parameters()):
        raise TrainingError(
            "the model is in float16, in which small steps are lost: call model.float() before it "
            "is trained, and model.half() after"
        )


def _set_rates(optimizer: torch.optim.Optimizer, rates: Sequence[float], factor: float) -> None:
    for group, rate in zip(optimizer.param_groups, rates, strict=True):
        group["lr"] = factor * rate


def _made(known: Trainers, named: Mapping[str, Any], base: type, *first: Any) -> Any:
    """What a section names, with its options."""
    ((name, options),) = named.items()
    kind, given = known.make("pytorch", name, options, base)
    try:
        return kind(*first, **given)
    except (TypeError, ValueError) as error:
        raise ConfigError(f"{name} does not accept its options: {error}", known.what) from error


def _tell(hooks: Any, name: str, *args: Any) -> None:
    if hooks is not None:
        getattr(hooks, name)(*args)


def label_loss(section: Mapping[str, Any]) -> Loss:
    """The criterion that the section names, between outputs and labels."""
    criterion = _made(CRITERIONS, section["criterion"], nn.Module)

    def loss(module: nn.Module, raw: Any) -> torch.Tensor:
        batch = split(raw, None)
        if batch.labels is None:
            raise DataError("the training data has no labels: it must yield (inputs, labels)")
        positional, named = fed(module, batch.inputs)
        output = next(tensors(module(*positional, **named)))
        return _against_labels(criterion, output.float(), batch.labels)

    return loss


def _against_labels(criterion: nn.Module, output: torch.Tensor, labels: Any) -> torch.Tensor:
    values = to_tensor(labels)
    values = values.numpy() if isinstance(values, torch.Tensor) else values
    target = torch.from_numpy(fitted(values, output.shape, 1 if output.dim() > 1 else 0))
    found: torch.Tensor = criterion(output, target)
    return found.mean()  # reduction: none leaves one for each sample


class KnowledgeDistillationLoss(nn.Module):  # type: ignore[misc]
    """Labels and the teacher's softened outputs, weighed: Hinton, Vinyals and Dean (2015).

    Set `teacher_model`, and call `teacher_model_forward` with the batch's inputs before the loss.
    """

    def __init__(
        self,
        temperature: float = 1.0,
        loss_types: Sequence[str] = ("CE", "KL"),
        loss_weights: Sequence[float] = (0.5, 0.5),
    ) -> None:
        super().__init__()
        self.temperature = temperature
        self.by_label, self.by_teacher = loss_weights
        self.labels = nn.CrossEntropyLoss()
        self.teacher_model: Any = None
        self.teacher_outputs: torch.Tensor | None = None

    def teacher_model_forward(self, *inputs: Any, **named: Any) -> torch.Tensor:
        if self.teacher_model is None:
            raise ConfigError("set `teacher_model` first", "criterion.KnowledgeDistillationLoss")
        with torch.no_grad():
            self.teacher_outputs = next(tensors(self.teacher_model(*inputs, **named))).float()
        return self.teacher_outputs

    def teach(self, inputs: Any, output: Any = None) -> None:
        """What the teacher gives for a batch; its output where that is known already."""
        if output is not None:
            self.teacher_outputs = next(tensors(output)).detach().float()
        elif isinstance(inputs, Mapping):
            positional, named = arguments(self.teacher_model, inputs)
            self.teacher_model_forward(*positional, **named)
        else:
            self.teacher_model_forward(*(inputs if isinstance(inputs, list | tuple) else [inputs]))

    def blended(self, output: Any, loss: Any) -> torch.Tensor:
        """The student's own loss, and its distance from the teacher."""
        weighed: torch.Tensor = self.by_label * loss + self.by_teacher * self._apart(
            next(tensors(output))
        )
        return weighed

    def forward(self, output: torch.Tensor, labels: Any = None) -> torch.Tensor:
        found = self.by_teacher * self._apart(output)
        if self.by_label and labels is not None:
            found = found + self.by_label * _against_labels(self.labels, output, labels)
        return found

    def _apart(self, output: torch.Tensor) -> torch.Tensor:
        from lpot.backends.torch.prune.distill import soft_loss

        if self.teacher_outputs is None:
            raise ConfigError(
                "call `teacher_model_forward(inputs)` before the loss: it computes the outputs "
                "that the student is compared with",
                "criterion.KnowledgeDistillationLoss",
            )
        check_alike(output.shape, self.teacher_outputs.shape)
        return soft_loss(output, self.teacher_outputs, self.temperature)


def teaching_loss(
    teacher: nn.Module | None, options: Mapping[str, Any]
) -> KnowledgeDistillationLoss:
    """With a teacher that stays as it is."""
    criterion = KnowledgeDistillationLoss(**options)
    criterion.teacher_model = None if teacher is None else copy.deepcopy(teacher).eval()
    return criterion


def taught_loss(teacher: nn.Module, options: Mapping[str, Any]) -> Loss:
    """Knowledge distillation: labels and the teacher's softened outputs, weighed."""
    criterion = teaching_loss(teacher, options)
    precision: TrainingPrecision | None = None

    def loss(module: nn.Module, raw: Any) -> torch.Tensor:
        nonlocal precision
        precision = precision or TrainingPrecision(module, criterion.teacher_model)
        batch = split(raw, None)
        positional, named = fed(module, batch.inputs)
        with precision(batch.inputs):
            output = next(tensors(module(*positional, **named)))
            positional, named = fed(criterion.teacher_model, batch.inputs)
            criterion.teacher_model_forward(*positional, **named)
        found: torch.Tensor = criterion(output.float(), batch.labels)
        return found

    return loss


_RATE = {"learning_rate": "lr"}
OPTIMIZERS.provide(
    "pytorch",
    {
        "SGD": Named(torch.optim.SGD, _RATE),
        "Adam": Named(torch.optim.Adam, _RATE),
        "AdamW": Named(torch.optim.AdamW, _RATE),
    },
)
CRITERIONS.provide(
    "pytorch",
    {
        "CrossEntropyLoss": Named(nn.CrossEntropyLoss),
        "KnowledgeDistillationLoss": Named(KnowledgeDistillationLoss),
    },
)
