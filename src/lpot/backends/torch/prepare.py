"""What is found out once about an FP32 model, and kept for all its trials."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import torch
from torch import nn

from lpot.backends.torch.calls.find import find_calls
from lpot.backends.torch.calls.serve import release, route, routes_of
from lpot.backends.torch.clone import Cloner
from lpot.backends.torch.data import drawn, sketch
from lpot.backends.torch.dtypes import speak
from lpot.backends.torch.findings import Findings
from lpot.backends.torch.kinds import Layer, find
from lpot.backends.torch.modules import LowModule
from lpot.backends.torch.modules.recurrent import weight_names
from lpot.backends.torch.modules.rounded import Rounding
from lpot.backends.torch.passes.capture_graph import Capture, capture
from lpot.backends.torch.passes.equalize_layers import (
    Factors,
    apply_factors,
)
from lpot.backends.torch.passes.find_chains import Chain, find_chains, gap_for
from lpot.backends.torch.passes.release_fastpath import find_encoders
from lpot.backends.torch.passes.smooth_channels import Smooth, scaled_norm
from lpot.backends.torch.prune.cut import Skip
from lpot.backends.torch.prune.merge import Merged
from lpot.backends.torch.streams import find_streams
from lpot.backends.torch.weights import Weights, quantize_layer, quantize_tensor
from lpot.core.batch import Inputs
from lpot.core.numerics.observations import Observations
from lpot.core.ptq.streams import Stream
from lpot.core.recipe import Recipe, TensorConfig

logger = logging.getLogger(__name__)


class Prepared:
    """Holds a private FP32 copy of the user's module; trials are copies that share its tensors.

    `given` holds the user's own parameters by name: weights that an eval_func changed in place
    are put back from there. `rounding` tells how weights were rounded in training: they stay as
    they are, for equalizing their channels would undo what they learnt, and their activations
    are watched with that rounding in, for only then they are what INT8 will see.
    """

    def __init__(
        self,
        pristine: nn.Module,
        given: Mapping[str, torch.Tensor] | None = None,
        rounding: Mapping[str, Rounding] | None = None,
    ) -> None:
        self.root = pristine
        self.rounding = rounding
        self.layers, self.others = find(pristine)
        self.modules: dict[tuple[object, ...], LowModule] = {}  # what `build` made, by settings
        self.halves: dict[int, nn.Parameter] = {}  # with float16's values, by the original's id
        self._given = given
        self._gaps: dict[str, nn.Module] = {}
        self._scaled: dict[tuple[str, bytes], nn.Module] = {}
        self._equalized: dict[tuple[object, ...], Prepared] = {}
        self._cloner = Cloner(pristine)
        self._weights: dict[tuple[object, ...], dict[str, Weights]] = {}
        self._tied: dict[tuple[object, ...], Weights] = {}
        self._versions: dict[str, int] = {}
        self.accept_changes()

    @cached_property
    def names(self) -> Mapping[str, nn.Module]:
        """Every module of the pristine model by name."""
        return dict(self.root.named_modules())

    @property
    def equalizes(self) -> bool:
        """May channels be equalized?"""
        return self.rounding is None

    def weighted(self, op: str) -> str:
        """The name of the module that holds an op's weight: it may be fused by hand."""
        return op if self.layers[op].module is self.names[op] else f"{op}.0"

    def is_gone(self, op: str) -> bool:
        """Was the op removed by pruning, with the block of layers around it?"""
        return op not in self.names and op.startswith(self._cut)

    @cached_property
    def _cut(self) -> tuple[str, ...]:
        kinds = (Skip, Merged)
        return tuple(f"{name}." for name, part in self.names.items() if isinstance(part, kinds))

    @cached_property
    def encoders(self) -> tuple[str, ...]:
        return find_encoders(self.names)

    @cached_property
    def captures(self) -> tuple[Capture, ...]:
        # Reading runs the user's code, which may count its calls: a copy takes that.
        copy = self._cloner()
        twins = dict(copy.named_modules())
        layers = {
            name: Layer(layer.key, layer.spec, twins[name], layer.norm, layer.relu)
            for name, layer in self.layers.items()
        }
        return capture(copy, layers)

    @cached_property
    def _chains(self) -> dict[str, dict[str, Chain]]:
        return {
            captured.name: find_chains(captured, self.layers, self.names)
            for captured in self.captures
        }

    def chains_of(self, captured: Capture) -> dict[str, Chain]:
        return self._chains[captured.name]

    @cached_property
    def home(self) -> dict[str, str]:
        """Op → the captured part that it is called in."""
        return {
            op: captured.name
            for captured in self.captures
            for op in captured.targets.values()
            if op in self.layers
        }

    @cached_property
    def streams(self) -> list[Stream]:
        """Channels between layers that can share out their ranges."""
        return [
            stream
            for captured in (self.captures if self.equalizes else ())
            for stream in find_streams(captured, self.chains_of(captured), self.layers, self.names)
        ]

    @cached_property
    def norms(self) -> dict[str, str | None]:
        """Op → the batch norm that is folded into it."""
        return {op: chain.norm for chains in self._chains.values() for op, chain in chains.items()}

    def equalized(self, factors: Factors) -> Prepared:
        """The same function with channel ranges equalized; itself when there are no factors."""
        if not factors:
            return self
        key = tuple((name, factors[name].tobytes()) for name in sorted(factors))
        if key not in self._equalized:
            root = self._cloner()
            changed = apply_factors(dict(root.named_modules()), self.streams, self.norms, factors)
            given = {**self._shared(), **{name: item.clone() for name, item in changed.items()}}
            self._equalized[key] = Prepared(root, given)
        self._guard()
        return self._equalized[key]

    def fresh(self, substitutes: Mapping[int, nn.Module] | None = None) -> nn.Module:
        """A new copy of the FP32 model, some of its modules replaced."""
        self._guard()
        root = self._cloner(substitutes)
        route(root)
        speak(root)
        return root

    def plain(self) -> nn.Module:
        """A new copy that computes as the user wrote it, no function made a layer."""
        root = self.fresh()
        release(root, lambda layer: False)
        return root

    def acquainted(self, inputs: Inputs) -> Prepared:
        """The same model, in which the functions that a batch comes through are layers."""
        root = self._cloner()
        return Prepared(root, self._given, self.rounding) if find_calls(root, inputs) else self

    def shown(self, probe: tuple[Inputs, ...]) -> dict[str, str]:
        """What a batch looks like that shows which functions are layers, if any are."""
        has_calls = any(routes_of(module) for module in self.names.values())
        return {"batch": json.dumps(sketch(probe[0]))} if has_calls and probe else {}

    def completed(self, recipe: Recipe, observations: Observations) -> Prepared:
        """With the ops of a recipe that a batch showed where the model was tuned: whoever loads it
        elsewhere may have no data."""
        if all(key.name in self.layers or self.is_gone(key.name) for key in recipe.ops):
            return self
        shown = Findings.of(observations).shown.get("batch", "null")
        inputs = observations.probe[0] if observations.probe else drawn(json.loads(shown))
        return self if inputs is None else self.acquainted(inputs)

    def gap(self, norm: str) -> nn.Module:
        """What stands where a batch norm was; one object per place serves all trials."""
        if norm not in self._gaps:
            self._gaps[norm] = gap_for(self.names[norm])
        return self._gaps[norm]

    def scaled(self, norm: str, smooth: Smooth) -> nn.Module:
        """A layer norm that smooths for the linears behind it."""
        key = (norm, smooth.key)
        if key not in self._scaled:
            self._scaled[key] = scaled_norm(self.names[norm], smooth.product)
        return self._scaled[key]

    def weights(
        self, layer: Layer, config: TensorConfig, norm: str | None, smooth: Smooth | None = None
    ) -> dict[str, Weights]:
        """The op's int8 weights by name, quantized on first use."""
        key = (layer.name, config, norm, b"" if smooth is None else smooth.key)
        if key not in self._weights:
            self._weights[key] = self._quantize(layer, config, norm, smooth)
        return self._weights[key]

    def give_weights(
        self, layer: Layer, config: TensorConfig, norm: str | None, parts: dict[str, Weights]
    ) -> None:
        """Use these, read from a file, instead of quantizing."""
        self._weights[layer.name, config, norm, b""] = parts

    def _quantize(
        self, layer: Layer, config: TensorConfig, norm: str | None, smooth: Smooth | None
    ) -> dict[str, Weights]:
        module = layer.module
        if smooth is not None:
            made = quantize_layer(layer, config, layer.norm, smooth.factors)
            return {"weight": replace(made, smooth=smooth.product)}
        if layer.spec.family == "recurrent":
            names = [name for pair in weight_names(module) for name in pair]
        elif layer.spec.family == "attention":
            names = ["in_proj_weight"]
        else:
            return {"weight": self._one(layer, config, norm)}
        parts = {
            name: quantize_tensor(
                layer.name,
                getattr(module, name),
                config,
                0,
                getattr(module, name.replace("weight", "bias"), None),
            )
            for name in names
        }
        if layer.spec.family == "attention":
            outer = module.out_proj
            parts["out_proj_weight"] = quantize_tensor(
                layer.name, outer.weight, config, 0, outer.bias
            )
        return parts

    def _one(self, layer: Layer, config: TensorConfig, norm: str | None) -> Weights:
        """A tied weight (an embedding that is the last linear, too) is quantized once."""
        folded = self.names[norm] if norm is not None else layer.norm
        weight, bias = layer.module.weight, getattr(layer.module, "bias", None)
        if folded is not None or bias is not None:
            return quantize_layer(layer, config, folded)
        key = (weight.data_ptr(), weight.shape, weight.stride(), layer.spec.axis, config)
        if key not in self._tied:
            self._tied[key] = quantize_layer(layer, config, None)
        return self._tied[key]

    def accept_changes(self) -> None:
        """The weights were changed on purpose: they count as the original's from now on."""
        self._versions = {name: _changes(tensor) for name, tensor in self._shared().items()}

    def _shared(self) -> dict[str, torch.Tensor]:
        return dict(self.root.named_parameters())

    def _guard(self) -> None:
        """Put back what an eval_func changed in place in a model that it was lent."""
        shared = self._shared()
        changed = [
            name for name, tensor in shared.items() if _changes(tensor) != self._versions[name]
        ]
        if not changed:
            return
        logger.warning(
            "%d weight(s) were changed in place while a model was being evaluated, first %r: "
            "they were restored. eval_func must not change the model",
            len(changed),
            changed[0],
        )
        with torch.no_grad():
            for name in changed:
                given = None if self._given is None else self._given.get(name)
                if given is not None and given is not shared[name]:
                    shared[name].copy_(given)
        self.accept_changes()


def _changes(tensor: torch.Tensor) -> int:
    """How often it was changed in place; tensors made in inference mode do not count that."""
    return 0 if tensor.is_inference() else tensor._version
