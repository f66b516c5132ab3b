"""What a module gives, with what its last layer got: that says more than the few scores made of it.

Romero et al., "FitNets: Hints for Thin Deep Nets" (2015), call such values hints.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from lpot.backends.torch.data import tensors

Call = tuple[Sequence[Any], Mapping[str, Any]]  # arguments of a module, by place and by name


@dataclass(frozen=True, eq=False)
class Answer:
    outputs: Sequence[torch.Tensor]
    last: torch.Tensor | None = None  # the input of the last layer


class Answers:
    """A module to be asked; it may be told which layer is its last."""

    def __init__(self, module: nn.Module) -> None:
        self.module = module
        self._last: list[torch.Tensor] = []
        self._hooks: list[Any] = []

    def watch(self, name: str) -> None:
        def keep(part: nn.Module, args: Any) -> None:
            self._last[:] = args[:1]

        self._hooks.append(self.module.get_submodule(name).register_forward_pre_hook(keep))

    def close(self) -> None:
        for hook in self._hooks:
            hook.remove()
        self._last.clear()

    def __call__(self, call: Call) -> Answer:
        found = list(tensors(self.module(*call[0], **call[1])))
        last = self._last.pop().float() if self._last else None
        return Answer([_wide(item) for item in found], last)


def last_layer(module: nn.Module, call: Call) -> str | None:
    """The linear layer whose outputs are the module's own: scores by class."""
    ran: list[tuple[str, torch.Tensor]] = []

    def noting(name: str) -> Any:
        return lambda part, args, output: ran.append((name, output))

    parts = [(name, part) for name, part in module.named_modules() if type(part) is nn.Linear]
    hooks = [part.register_forward_hook(noting(name)) for name, part in parts]
    try:
        with torch.no_grad():
            found = list(tensors(module(*call[0], **call[1])))
    finally:
        for hook in hooks:
            hook.remove()
    if len(found) != 1 or found[0].dim() != 2 or not ran:
        return None
    name, made = ran[-1]
    return name if made is found[0] else None


def same_last_layer(student: nn.Module, teacher: nn.Module, call: Call) -> str | None:
    """The last layer, where it gets as much in both: else there is nothing to compare."""
    name = last_layer(teacher, call)
    if name is None or name not in dict(student.named_modules()):
        return None
    ends = [root.get_submodule(name) for root in (student, teacher)]
    if type(ends[0]) is not nn.Linear or ends[0].weight.shape != ends[1].weight.shape:
        return None
    return name


def _wide(value: torch.Tensor) -> torch.Tensor:
    return value.float() if value.is_floating_point() else value
