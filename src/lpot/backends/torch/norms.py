"""Which layer norms are read by linears alone, so that they may scale channels for them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

import torch
from torch import nn
from torch.func import functional_call
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils.weak import WeakIdKeyDictionary

from lpot.backends.torch.data import tensors
from lpot.backends.torch.passes.smooth_channels import scaled_norm
from lpot.backends.torch.prepare import Prepared
from lpot.backends.torch.run import call
from lpot.core.batch import Inputs

# Give back the tensor itself where there is nothing to do: that is no reading.
_PASSING = (functional.dropout, torch.dropout, torch.Tensor.to, torch.Tensor.contiguous)


def find_norms(modules: Mapping[str, nn.Module]) -> dict[str, nn.Module]:
    """Modules that may be layer norms with a weight of their own; use will tell."""
    tied = Counter(id(tensor) for part in modules.values() for tensor in part._parameters.values())
    return {name: module for name, module in modules.items() if _is_norm(module, tied)}


def _is_norm(module: nn.Module, tied: Mapping[int, int]) -> bool:
    own = {name: tensor for name, tensor in module._parameters.items() if tensor is not None}
    return (
        type(module).__name__.endswith("Norm")
        and not module._modules
        and "weight" in own
        and set(own) <= {"weight", "bias"}
        and all(tensor.dim() == 1 and tied[id(tensor)] == 1 for tensor in own.values())
    )


def confirmed(prepared: Prepared, readers: Mapping[str, str], inputs: Inputs) -> dict[str, str]:
    """The same if it proves right: the norms scaled, and their readers' inputs scaled back, must
    change no bit of the outputs. Compiled code may read a norm unseen."""
    if not readers:
        return {}
    norms = {name: prepared.names[name] for name in set(readers.values())}
    twins = {id(norm): scaled_norm(norm, _factors(norm)) for norm in norms.values()}
    root = prepared.fresh(twins)
    for op, name in readers.items():
        hook = _dividing(_factors(norms[name]))
        root.get_submodule(op).register_forward_pre_hook(hook, with_kwargs=True)
    truth, found = (list(tensors(call(module, inputs))) for module in (prepared.fresh(), root))
    same = len(truth) == len(found) and all(map(torch.equal, truth, found))
    return dict(readers) if same else {}


def _factors(norm: nn.Module) -> torch.Tensor:
    """Powers of two, to try what scaling does."""
    return 2.0 ** (torch.arange(len(norm.weight), dtype=torch.float32) % 3)


def _dividing(factors: torch.Tensor) -> Callable[..., Any]:
    def hook(module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            return (args[0] / factors, *args[1:]), kwargs
        return args, {name: value / factors for name, value in kwargs.items()}

    return hook


class NormObserver(TorchFunctionMode):  # type: ignore[misc]
    """Sees who reads the norms' outputs: linears call `enter` and `leave`, all else is noticed."""

    def __init__(self, norms: Mapping[str, nn.Module]) -> None:
        super().__init__()
        self.paused = False
        self.has_norms = bool(norms)
        self._made = WeakIdKeyDictionary()  # tensor → the norm that made it
        self._checked: set[str] = set()
        self._refused: set[str] = set()
        self._sources: dict[str, set[str]] = {}  # linear → the norms it reads, "" for anything else
        self._inside = ""
        for name, module in norms.items():
            module.register_forward_hook(self._hook(name))

    def begin(self) -> None:
        self._inside = ""
        self._made.clear()

    def end(self, output: Any) -> None:
        """What the model gives back is read by its user."""
        self._refuse(tensors(output))
        self._made.clear()

    def enter(self, op: str, value: Any) -> None:
        if not self.paused:
            self._inside = op
            known = isinstance(value, torch.Tensor) and value in self._made
            self._sources.setdefault(op, set()).add(self._made[value] if known else "")

    def leave(self) -> None:
        self._inside = ""

    def readers(self) -> dict[str, str]:
        """Linear → the norm that makes all it reads, for norms that only such linears read."""
        mixed = {name for names in self._sources.values() if len(names) > 1 for name in names}
        refused = self._refused | mixed | {""}
        found = {op: next(iter(names)) for op, names in self._sources.items()}
        return {op: name for op, name in found.items() if name not in refused}

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if self._made and not self.paused and not self._inside:
            given = [value for value in _inner((args, kwargs)) if value in self._made]
            if given and not _is_passing(func, given[0], result):
                self._refuse(given)
        return result

    def _refuse(self, values: Iterable[torch.Tensor]) -> None:
        self._refused.update(self._made[value] for value in values if value in self._made)

    def _hook(self, name: str) -> Any:
        def hook(module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
            if self.paused:
                return
            if not isinstance(output, torch.Tensor) or not args:
                self._refused.add(name)
                return
            if name not in self._checked:
                self._check(name, module, args, output)
            self._made[output] = name

        return hook

    def _check(self, name: str, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        """Do factors of the weights scale the output's channels, bit for bit?"""
        self._checked.add(name)
        factors = _factors(module)
        scaled = {key: tensor * factors for key, tensor in module.named_parameters()}
        self.paused = True
        try:
            fits = output.shape[-1:] == factors.shape and torch.equal(
                functional_call(module, scaled, args), output * factors
            )
        finally:
            self.paused = False
        if not fits:
            self._refused.add(name)


def _is_passing(func: Any, value: torch.Tensor, result: Any) -> bool:
    if not any(True for _ in _inner(result)):
        return True  # asked for a shape or the like
    return func in _PASSING and result is value


def _inner(value: Any) -> Iterator[torch.Tensor]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, tuple | list):
        for item in value:
            yield from _inner(item)
    elif isinstance(value, dict):
        for item in value.values():
            yield from _inner(item)
