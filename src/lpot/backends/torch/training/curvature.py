"""Sensitivity from gradients: how much of each op's rounding error reaches the outputs.

For outputs y and a random sign vector v, the gradient of v·y has the squared Jacobian as its mean
square, which is the curvature of the squared output distance. A few backward passes tell it for all
ops at once, where `rank` needs a forward pass for each.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from lpot.backends.torch.data import arguments, tensors
from lpot.backends.torch.kinds import Layer, is_hf_conv1d
from lpot.backends.torch.passes.smooth_channels import Smooth
from lpot.backends.torch.prepare import Prepared
from lpot.backends.torch.ranges import Observed, inlet_name, span_affine
from lpot.backends.torch.weights import quantize_layer
from lpot.core.backend import Observations
from lpot.core.errors import CalibrationError
from lpot.core.progress import tracked
from lpot.core.recipe import OpConfig, OpKey, Recipe

DRAWS = 4
_DENSE = ("linear", "conv", "embedding")


def curvature(prepared: Prepared, recipe: Recipe, observations: Observations) -> dict[OpKey, float]:
    """Expected squared output error of each op, from its weights and its input."""
    if not observations.probe:
        return {}
    ranges = Observed(observations)
    prepared = prepared.equalized(ranges.factors)
    smooth = ranges.smooth(prepared, recipe)
    keys = [key for key in recipe.low_ops if prepared.layers[key.name].spec.family in _DENSE]
    root = prepared.fresh()
    modules = {key: root.get_submodule(_weighty(prepared, key)) for key in keys}
    inputs: dict[OpKey, list[torch.Tensor]] = {key: [] for key in keys}
    hooks = [
        module.register_forward_pre_hook(_keeper(inputs[key])) for key, module in modules.items()
    ]
    positional, named = arguments(root, observations.probe[0])
    with torch.enable_grad():
        outputs = [y for y in tensors(root(*positional, **named)) if y.requires_grad]
    for hook in hooks:
        hook.remove()
    if not outputs:
        raise CalibrationError("no output has a gradient, so the curvature can't be computed")
    factors = {key: smooth[key.name].factors if key.name in smooth else None for key in keys}
    errors = {
        key: _weight_error(prepared.layers[key.name], recipe.ops[key], factors[key]) for key in keys
    }
    noises = {
        key: _input_noise(key, recipe.ops[key], observations, smooth.get(key.name)) for key in keys
    }
    found = dict.fromkeys(keys, 0.0)
    generator = torch.Generator().manual_seed(0)
    for _ in tracked(range(DRAWS)):
        grads = _gradients(outputs, modules, inputs, generator)
        for key in keys:
            weight, values = grads[key]
            if weight is not None:
                found[key] += float((weight.double().square() * errors[key]).sum())
            spread = 1.0 if factors[key] is None else factors[key]
            reach = sum(float((value.double() * spread).square().sum()) for value in values)
            found[key] += noises[key] * reach
    return {key: value / DRAWS for key, value in found.items()}


def _weighty(prepared: Prepared, key: OpKey) -> str:
    """The path of the module with the weight: inside of a module fused by hand it is the first."""
    layer = prepared.layers[key.name]
    return key.name if layer.module is prepared.names[key.name] else f"{key.name}.0"


def _keeper(found: list[torch.Tensor]) -> Callable[..., Any]:
    def hook(module: nn.Module, args: tuple[Any, ...]) -> Any:
        x = args[0] if args else None
        if not isinstance(x, torch.Tensor) or not x.is_floating_point():
            return None
        if not x.requires_grad:  # the model's own input
            x = x.detach().requires_grad_()
        found.append(x)
        return (x, *args[1:])

    return hook


def _gradients(
    outputs: list[torch.Tensor],
    modules: dict[OpKey, nn.Module],
    inputs: dict[OpKey, list[torch.Tensor]],
    generator: torch.Generator,
) -> dict[OpKey, tuple[torch.Tensor | None, list[torch.Tensor]]]:
    """Of one random sum of the outputs, by every weight and every input."""
    signs = [torch.randint(0, 2, y.shape, generator=generator) * 2.0 - 1.0 for y in outputs]
    total = sum((sign * y).sum() for sign, y in zip(signs, outputs, strict=True))
    asked: list[torch.Tensor] = []
    for key, module in modules.items():
        asked += [module.weight, *inputs[key]]
    found = list(torch.autograd.grad(total, asked, retain_graph=True, allow_unused=True))
    grads = {}
    for key in modules:
        weight = found.pop(0)
        values = [found.pop(0) for _ in inputs[key]]
        grads[key] = (weight, [value for value in values if value is not None])
    return grads


def _input_noise(
    key: OpKey, config: OpConfig, observations: Observations, smooth: Smooth | None
) -> float:
    """Mean squared rounding error of an op's input, of the smoothed one where it is."""
    if smooth is not None:
        return float(span_affine(smooth.span, config.activation).scale ** 2 / 12.0)
    stats = observations.tensors.get(inlet_name(key.name))
    if stats is None or config.activation.is_float:
        return 0.0
    bits = config.activation.bits or 8
    low, high = stats.range(config.activation.algorithm or "minmax", bits=bits)
    return stats.error(low, high, 1 << bits)


def _weight_error(layer: Layer, config: OpConfig, factors: torch.Tensor | None) -> torch.Tensor:
    """Squared rounding error of each weight, in the module's own layout."""
    assert config.weight is not None
    real = quantize_layer(layer, config.weight, None, factors).real()
    if factors is not None:
        real = real / factors
    if is_hf_conv1d(layer.module):
        real = real.t()
    return (layer.module.weight.detach().double() - real.double()).square()
