"""One trial: the FP32 model with some modules replaced, put together from what is already known."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import nn

from lpot.backends.torch import halves
from lpot.backends.torch.calls.serve import release
from lpot.backends.torch.kernels import Affine, candidates
from lpot.backends.torch.kernels.choose import choose_dynamic
from lpot.backends.torch.kinds import Layer
from lpot.backends.torch.lower import Lowering
from lpot.backends.torch.modules import (
    LowAttention,
    LowConv,
    LowEmbedding,
    LowEmbeddingBag,
    LowLinear,
    LowModule,
    LowRecurrent,
)
from lpot.backends.torch.modules.dense import Settings
from lpot.backends.torch.modules.half import HalfModule
from lpot.backends.torch.passes.find_chains import Chain
from lpot.backends.torch.passes.release_fastpath import release_fastpath
from lpot.backends.torch.prepare import Prepared
from lpot.backends.torch.ranges import NO_KERNEL, Noted, Ranges, span_affine
from lpot.core.errors import CalibrationError, UnsupportedOp, did_you_mean
from lpot.core.recipe import OpConfig, OpKey, Recipe, TensorConfig

logger = logging.getLogger(__name__)


@dataclass(frozen=True, eq=False)
class Built:
    """`skipped` are the ops that could not be what the recipe asks; `captured` maps the parts that
    keep int8 inside to what has to be known to write them again."""

    module: nn.Module
    skipped: dict[OpKey, str]
    captured: dict[str, dict[str, Any]]
    folded: tuple[str, ...]  # batch norms that went into their convolutions


def build(prepared: Prepared, recipe: Recipe, ranges: Ranges | None) -> Built:
    """Costs about a millisecond once the ops' weights are quantized."""
    return _Builder(prepared, recipe, ranges).build()


class _Builder:
    def __init__(self, prepared: Prepared, recipe: Recipe, ranges: Ranges | None) -> None:
        self.prepared = prepared
        self.recipe = recipe
        self.ranges = ranges
        trusted = ranges.trusted if ranges is not None else frozenset()
        self.captures = (
            [item for item in prepared.captures if item.name in trusted] if trusted else []
        )
        self.chains: dict[str, Chain] = {}
        for captured in self.captures:
            self.chains.update(prepared.chains_of(captured))
        self.skipped: dict[OpKey, str] = {}
        self.smooth = ranges.smooth(prepared, recipe) if ranges is not None else {}
        # A norm may smooth where all that read it are smoothed.
        self.norms = {
            item.norm: item
            for item in self.smooth.values()
            if item.norm is not None and all(op in self.smooth for op in item.ops)
        }
        self.divided = {op for item in self.norms.values() for op in item.ops}
        self.divided |= ranges.divided if ranges is not None else frozenset()

    def build(self) -> Built:
        changed: dict[str, nn.Module] = {}
        substitutes: dict[int, nn.Module] = {}
        folded: list[str] = []
        for key, config in self.recipe.ops.items():
            if self.prepared.is_gone(key.name):
                continue
            layer = self._layer(key)
            config = self._served(layer, config)
            module = self._module(layer, config)
            if module is None:
                continue
            changed[key.name] = module
            substitutes[id(self.prepared.names[key.name])] = module
            norm = self._norm(layer, config)
            if norm is not None:
                folded.append(norm)
                substitutes[id(self.prepared.names[norm])] = self.prepared.gap(norm)
        for name, smooth in self.norms.items():
            substitutes[id(self.prepared.names[name])] = self.prepared.scaled(name, smooth)
        root = self.prepared.fresh(substitutes)
        release_fastpath(root, self.prepared.encoders, changed)
        made = set(map(id, changed.values()))
        release(root, lambda layer: id(layer) in made)
        return Built(root, self.skipped, self._programs(root, changed), tuple(folded))

    def _layer(self, key: OpKey) -> Layer:
        layer = self.prepared.layers.get(key.name)
        if layer is None:
            raise UnsupportedOp(
                key.name,
                "the recipe names it, but the model has no such op"
                + did_you_mean(key.name, self.prepared.layers),
            )
        return layer

    def _served(self, layer: Layer, config: OpConfig) -> OpConfig:
        """A linear whose calls differ too much for one range takes each call's own."""
        static = config.mode == "static" and not config.is_float
        unlike = static and self.ranges is not None and self.ranges.is_unlike(layer.name)
        return replace(config, mode="dynamic") if unlike and layer.spec.dynamic else config

    def _norm(self, layer: Layer, config: OpConfig) -> str | None:
        """The batch norm that goes into the op."""
        chain = self.chains.get(layer.name)
        return chain.norm if chain is not None and config.mode == "static" else None

    def _module(self, layer: Layer, config: OpConfig) -> nn.Module | None:
        if config.is_float:
            return self._narrow(layer, config.precision)
        if config.weight is None:
            raise UnsupportedOp(
                layer.name, f"a {config.mode} config without a weight can't be built"
            )
        settings = self._settings(layer, config)
        if settings is None:
            return None
        norm = self._norm(layer, config)
        smooth = self.smooth.get(layer.name)
        key = (layer.name, config.weight, norm, settings, b"" if smooth is None else smooth.key)
        known = self.prepared.modules
        if key not in known:
            known[key] = self._make(layer, config.weight, norm, settings)
        return known[key]

    def _narrow(self, layer: Layer, precision: str) -> nn.Module | None:
        """In floats of 16 bits: computed with, or only stored."""
        original = self.prepared.names[layer.name]
        if precision == "bf16":
            return HalfModule(original, torch.bfloat16)
        made = None
        if precision == halves.WORD:
            made = halves.rounded(original, self.prepared.halves)
            if made is None:
                self.skipped[layer.key] = halves.BEYOND
        return made

    def _settings(self, layer: Layer, config: OpConfig) -> Settings | None:
        reason = self.ranges.why_never(layer.name) if self.ranges is not None else ""
        if reason:
            self.skipped[layer.key] = reason
            return None
        family = layer.spec.family
        if family == "embedding":
            return Settings("plain")
        reduced = config.activation.bits == 7
        if family == "recurrent":
            return Settings(self._kernel(layer), reduced=reduced)
        if family == "attention":
            kernel = self._dynamic_kernel(layer)
            return None if kernel is None else Settings(kernel, reduced=reduced)
        chain = self.chains.get(layer.name)
        relu = layer.relu or (chain is not None and chain.relu)
        divided = layer.name in self.divided
        if config.mode == "dynamic":
            if family == "conv":
                raise UnsupportedOp(layer.name, "convolutions have no dynamic kernel: use static")
            kernel = self._dynamic_kernel(layer)
            if kernel is None:
                return None
            return Settings(kernel, None, None, layer.relu, reduced, divided)
        if self.ranges is None:
            raise CalibrationError(
                f"op {layer.name!r} is static in the recipe, which needs calibration data; "
                "a dynamic recipe needs none"
            )
        reason = self.ranges.why_not(layer.name)
        if reason:
            self.skipped[layer.key] = reason
            return None
        return Settings(
            self._kernel(layer),
            self._inlet(layer, config.activation),
            self.ranges.outlet(layer.name, config.activation),
            relu,
            divided=divided,
            plain=layer.name in self.ranges.viewed,
        )

    def _inlet(self, layer: Layer, config: TensorConfig) -> Affine:
        smooth = self.smooth.get(layer.name)
        if smooth is not None:
            return span_affine(smooth.span, config)
        assert self.ranges is not None
        return self.ranges.inlet(layer.name, config)

    def _kernel(self, layer: Layer) -> str:
        """The one asked for where it exists here, else the one wanted most."""
        family: str = layer.spec.family
        if isinstance(layer.module, nn.modules.conv._ConvTransposeNd):
            family = "transposed"
        here = candidates(family)
        asked = self.ranges.kernel(layer.name) if self.ranges is not None else None
        if asked is not None and asked not in here:
            logger.warning(
                "op %r: kernel %s is not available here, using %s", layer.name, asked, here[0]
            )
        return asked if asked in here else here[0]

    def _dynamic_kernel(self, layer: Layer) -> str | None:
        asked = self.ranges.dynamic_kernel(layer) if self.ranges is not None else None
        found = asked or choose_dynamic(layer)
        if found is None:
            self.skipped[layer.key] = NO_KERNEL
        return found

    def _make(
        self, layer: Layer, weight: TensorConfig, norm: str | None, settings: Settings
    ) -> LowModule:
        parts = self.prepared.weights(layer, weight, norm, self.smooth.get(layer.name))
        module: Any = layer.module
        try:
            if isinstance(module, nn.EmbeddingBag):
                return LowEmbeddingBag(module, parts["weight"])
            match layer.spec.family:
                case "embedding":
                    return LowEmbedding(module, parts["weight"])
                case "recurrent":
                    return LowRecurrent(module, parts, settings.kernel, settings.reduced)
                case "attention":
                    inner, outer = parts["in_proj_weight"], parts["out_proj_weight"]
                    return LowAttention(module, inner, outer, settings.kernel, settings.reduced)
                case family:
                    kind = LowConv if family == "conv" else LowLinear
                    made: LowConv | LowLinear = kind(module, parts["weight"], settings)
                    if layer.name not in self.chains:
                        made.ready()
                    return made
        except RuntimeError as error:
            raise UnsupportedOp(
                layer.name, f"{settings.kernel} can't pack its weights: {error}"
            ) from error

    def _programs(
        self, root: nn.Module, changed: dict[str, nn.Module]
    ) -> dict[str, dict[str, Any]]:
        """Captured parts with an int8 op inside run step by step from now on."""
        used: dict[str, dict[str, Any]] = {}
        modules: dict[str, nn.Module] = {}
        for captured in self.captures:
            if not any(isinstance(changed.get(op), LowModule) for op in captured.targets.values()):
                continue
            assert self.ranges is not None
            modules = modules or dict(root.named_modules())
            scales = Noted(self.ranges.inside(captured, self.recipe))
            chains = self.prepared.chains_of(captured)
            lowering = Lowering(captured, chains, modules, scales)
            if lowering.pays:
                modules[captured.name].forward = lowering.program()
                used[captured.name] = {"digest": captured.digest, **scales.to_json()}
        return used
