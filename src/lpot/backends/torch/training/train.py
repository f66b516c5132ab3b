"""Quantization-aware training: a model to train, and the float model that came out of it."""

from __future__ import annotations

import copy
import inspect as python_inspect
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn

from lpot.backends.torch.data import owned
from lpot.backends.torch.kinds import Layer, is_hf_conv1d
from lpot.backends.torch.model import state
from lpot.backends.torch.modules.rounded import Rounded, Rounding, make_plain, make_rounded
from lpot.backends.torch.prepare import Prepared
from lpot.backends.torch.ranges import inlet_name
from lpot.core.backend import Observations
from lpot.core.batch import Batch, Inputs
from lpot.core.errors import TrainingError
from lpot.core.recipe import OpConfig, Recipe

MOST_BYTES = 256 << 20  # of batches kept for the calibration that follows


@dataclass(eq=False)
class Trainee:
    """`native` is handed to the training loop; `seen` are the first batches it was given there."""

    native: nn.Module
    samples: int
    rounding: Mapping[str, Rounding] = field(default_factory=dict)  # of each op that rounds
    seen: list[Inputs] = field(default_factory=list)
    runs: int = 0
    _kept: int = 0
    _bytes: int = 0

    def __deepcopy__(self, memo: dict[int, Any]) -> Trainee:
        """The loop may copy the model, and this hangs on it as a hook."""
        return self

    def watch(self, module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> None:
        """A hook before each forward."""
        self.runs += 1
        if self._kept >= self.samples or self._bytes >= MOST_BYTES:
            return
        inputs = owned(_inputs(self.native, args, named))
        self.seen.append(inputs)
        self._kept += Batch(inputs).size
        self._bytes += Batch(inputs).nbytes


def _inputs(module: nn.Module, args: tuple[Any, ...], named: dict[str, Any]) -> Inputs:
    if not named:
        return args
    bound = python_inspect.signature(module.forward).bind_partial(*args)
    return {**bound.arguments, **named}


def prepare_training(
    prepared: Prepared, recipe: Recipe, observations: Observations | None, samples: int
) -> Trainee:
    """A copy in train mode whose low-precision linears and convolutions round as int8 would.

    Batch norms stay apart: scaling a channel scales its weights' steps, so folding them later gives
    the same integers.
    """
    root = copy.deepcopy(prepared.root)
    rounding: dict[str, Rounding] = {}
    for key, config in recipe.ops.items():
        layer = prepared.layers.get(key.name)
        if layer is None or config.is_float or layer.spec.family not in ("linear", "conv"):
            continue
        path = prepared.weighted(key.name)
        inner = root.get_submodule(path)
        if isinstance(inner, Rounded):  # reached by two names
            continue
        rounding[path] = _rounding(layer, config)
        make_rounded(inner, rounding[path], _span(key.name, config, observations))
    trainee = Trainee(root.train(), samples, rounding)
    root.register_forward_pre_hook(trainee.watch, with_kwargs=True)
    return trainee


def _rounding(layer: Layer, config: OpConfig) -> Rounding:
    weight = config.weight
    axis = layer.spec.axis if not is_hf_conv1d(layer.module) else 1
    per_channel = weight is not None and weight.granularity != "per_tensor"
    weight_bits = weight.bits if weight is not None else None
    return Rounding(axis if per_channel else None, config.activation.bits or 8, weight_bits or 8)


def _span(
    op: str, config: OpConfig, observations: Observations | None
) -> tuple[float, float] | None:
    stats = observations.tensors.get(inlet_name(op)) if observations is not None else None
    if stats is None:
        return None
    bits = config.activation.bits or 8
    return stats.range(config.activation.algorithm or "minmax", bits=bits)


def finish_training(prepared: Prepared, trainee: Trainee, returned: Any) -> Prepared:
    """The trained weights in the original's modules, to be calibrated and built as ever."""
    trained = _unwrapped(returned) if isinstance(returned, nn.Module) else trainee.native
    _check(prepared, trained, trainee)
    root = copy.deepcopy(trained)
    _unhook(root)
    for module in root.modules():
        if isinstance(module, Rounded):
            make_plain(module)
    return Prepared(root.cpu().float().eval(), rounding=trainee.rounding)


def _unhook(root: nn.Module) -> None:
    for number, hook in list(root._forward_pre_hooks.items()):
        if isinstance(getattr(hook, "__self__", None), Trainee):
            del root._forward_pre_hooks[number]
            root._forward_pre_hooks_with_kwargs.pop(number, None)


def _unwrapped(module: nn.Module) -> nn.Module:
    """What DataParallel and torch.compile wrap."""
    for name in ("module", "_orig_mod"):
        inner = getattr(module, name, None)
        if isinstance(inner, nn.Module) and len(list(module.children())) == 1:
            return _unwrapped(inner)
    return module


def _check(prepared: Prepared, trained: nn.Module, trainee: Trainee) -> None:
    if [name for name, _ in trained.named_modules()] != list(prepared.names):
        raise TrainingError(
            "q_func returned a model with different modules from the one it was given: train the "
            "model in place, or return the same one"
        )
    for name, tensor in state(trained).items():
        if tensor.is_floating_point() and not bool(torch.isfinite(tensor).all()):
            raise TrainingError(
                f"after training {name!r} holds NaN or infinite values: lower the learning rate, "
                "or clip gradients"
            )
    # Averages of batch norms move by running alone: weights tell whether something was learnt.
    after = dict(trained.named_parameters())
    cut = {
        f"{name}.weight" if name else "weight"
        for name, module in trained.named_modules()
        if isinstance(module, Rounded) and module.is_untrained
    }
    if all(
        name in cut or torch.equal(tensor, after[name].cpu().float())
        for name, tensor in prepared.root.named_parameters()
    ):
        raise TrainingError(_untouched(trainee))


def _untouched(trainee: Trainee) -> str:
    if not trainee.runs:
        return (
            "q_func ended without running the model that it was given: it must train its own "
            "argument, not another object"
        )
    return (
        f"q_func ran the model {trainee.runs} time(s), but none of its weights has changed: "
        "create the optimizer inside q_func from the parameters of its argument (one created "
        "earlier holds those of another model), and call backward() and step()"
    )


def resumed(prepared: Prepared, module: nn.Module, rounding: Mapping[str, Any]) -> Prepared:
    """A prepared for weights trained in an earlier run, which rounded so."""
    if list(dict(module.named_modules())) != list(prepared.names):
        raise TrainingError("the weights kept from an earlier training belong to another model")
    return Prepared(module, rounding={op: Rounding(*item) for op, item in rounding.items()})
