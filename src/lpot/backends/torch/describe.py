"""A built model as tensors and facts (JSON), and back: the one form behind every file layout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import fx, nn

from lpot.backends.torch.build import build
from lpot.backends.torch.calls.serve import give_routes, hidden_names, saved_routes
from lpot.backends.torch.dtypes import FLOAT32, NARROW, copied, dtype_of, private
from lpot.backends.torch.halves import names_stored
from lpot.backends.torch.kernels import Affine
from lpot.backends.torch.kernels.codes import has_codes
from lpot.backends.torch.kinds import Layer
from lpot.backends.torch.lower import Scales
from lpot.backends.torch.model import TorchModel, state
from lpot.backends.torch.modules import LowModule
from lpot.backends.torch.modules.base import bias_name
from lpot.backends.torch.modules.half import HalfModule
from lpot.backends.torch.passes.capture_graph import Capture
from lpot.backends.torch.passes.smooth_channels import Smooth
from lpot.backends.torch.prepare import Prepared
from lpot.backends.torch.prune.cut import Shape, reshape
from lpot.backends.torch.weights import Weights
from lpot.core.errors import UnsupportedModel
from lpot.core.recipe import Recipe, TensorConfig

if TYPE_CHECKING:
    from lpot.backends.torch import TorchBackend

FORMAT = 1


@dataclass(frozen=True, eq=False)
class Described:
    """`tensors` has no two that share memory; `facts["aliases"]` names the ones left out."""

    tensors: dict[str, torch.Tensor]
    facts: dict[str, Any]


def describe(model: TorchModel) -> Described:
    tensors: dict[str, torch.Tensor] = {}
    aliases: dict[str, str] = {}
    known: dict[tuple[Any, ...], str] = {}
    halves = names_stored(model.native, model.recipe, model.skipped)
    for name, tensor in sorted(saved_state(model.native).items()):
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if tensor.numel() and key in known:
            aliases[name] = known[key]
            continue
        known[key] = name
        # A copy: views of one memory (tied or sliced weights) can't lie in a file as they are.
        kept = tensor.detach().half() if name in halves else tensor.detach().clone()
        tensors[name] = kept.contiguous()
    kind = type(model.native)
    facts: dict[str, Any] = {
        "format": FORMAT,
        "class": f"{kind.__module__}.{kind.__qualname__}",
        "recipe": None if model.recipe is None else model.recipe.to_json(),
        "ops": {
            name: {"kind": module.kind, **module.facts()}
            for name, module in model.native.named_modules()
            if isinstance(module, LowModule)
        },
        "skipped": {key.name: reason for key, reason in model.skipped.items()},
        "parts": model.captured,
        "folded": sorted(model.folded),
        "aliases": aliases,
        "rounding": model.rounding,
        "dtype": dtype_of(model.native),
        "example": model.example,
    }
    functions = {} if model.origin is None else saved_routes(model.origin.root)
    if functions:
        facts["functions"] = functions
    if model.shape is not None:
        facts["pruned"] = model.shape.to_json()
    return Described(tensors, facts)


def saved_state(native: nn.Module) -> dict[str, torch.Tensor]:
    """The state dict, with bf16 modules under their own names."""
    inner = [name for name, module in native.named_modules() if isinstance(module, HalfModule)]
    found = state(native)
    for name in inner:
        for key in [key for key in found if key.startswith(f"{name}.inner.")]:
            found[f"{name}.{key.removeprefix(f'{name}.inner.')}"] = found.pop(key)
    return found


def rebuild(
    backend: TorchBackend, described: Described, module: nn.Module, where: str
) -> TorchModel:
    """The model described, on the architecture of `module`."""
    facts = described.facts
    if facts.get("format") != FORMAT:
        raise UnsupportedModel(
            f"{where}: format {facts.get('format')!r} is not supported (this version of lpot "
            f"writes {FORMAT})"
        )
    tensors = dict(described.tensors)
    for name, original in facts.get("aliases", {}).items():
        tensors[name] = tensors[original]
    shape = _shape(facts, where)
    architecture = copied(module)
    if shape is not None:
        reshape(architecture, shape)
    root = private(architecture, str(facts.get("dtype", FLOAT32)))
    give_routes(root, facts.get("functions", {}))
    prepared = Prepared(root)
    try:
        recipe = Recipe.from_json(facts["recipe"]) if facts["recipe"] is not None else None
        ranges = Stored(prepared, facts)
        if recipe is not None:
            _give_weights(prepared, recipe, ranges, tensors)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise UnsupportedModel(f"{where}: the description is damaged ({error!r})") from error
    _fill(prepared.root, tensors, facts, where)
    prepared.accept_changes()
    if recipe is None:
        rounding = facts.get("rounding")
        model = TorchModel(backend, prepared.fresh(), origin=prepared, rounding=rounding)
        model.shape = shape
        return model
    trial = build(prepared, recipe, ranges)
    _give_narrow(trial.module, tensors)
    model = TorchModel(
        backend,
        trial.module,
        recipe=recipe,
        skipped=trial.skipped,
        captured=trial.captured,
        folded=trial.folded,
        origin=prepared,
        example=facts.get("example"),
    )
    model.shape = shape
    return model


def _shape(facts: Mapping[str, Any], where: str) -> Shape | None:
    """What pruning made of the architecture."""
    raw = facts.get("pruned")
    try:
        return None if raw is None else Shape.from_json(raw)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise UnsupportedModel(f"{where}: the description is damaged ({error!r})") from error


def _fill(
    root: nn.Module, tensors: Mapping[str, torch.Tensor], facts: Mapping[str, Any], where: str
) -> None:
    """Float tensors into the architecture; int8 ops and folded batch norms have none."""
    inside = tuple(f"{name}." if name else "" for name in _all_names(root, facts))
    hidden = hidden_names(facts.get("functions", {}), facts["ops"])
    wide = {name for name, tensor in tensors.items() if tensor.dtype not in NARROW}
    with torch.no_grad():
        # Of a weight that is shared, the copy that was not rounded counts.
        for name, target in sorted(state(root).items(), key=lambda item: item[0] in wide):
            given = tensors.get(name)
            if given is None:
                if (inside and name.startswith(inside)) or name in hidden:
                    continue
                raise UnsupportedModel(
                    f"{where}: holds no tensor {name!r}, which {type(root).__name__} needs: "
                    "it was saved from another architecture"
                )
            if given.shape != target.shape:
                raise UnsupportedModel(
                    f"{where}: {name!r} is {list(given.shape)}, but {type(root).__name__} "
                    f"has {list(target.shape)}: it was saved from another architecture"
                )
            target.copy_(given)


def _give_narrow(native: nn.Module, tensors: Mapping[str, torch.Tensor]) -> None:
    """What was rounded to 16 bits, where rounding the architecture's copy gives something else: a
    weight that is shared may have been rounded in two ways."""
    with torch.no_grad():
        for name, target in saved_state(native).items():
            given = tensors.get(name)
            if given is None or given.dtype not in NARROW:
                continue
            if not torch.equal(given.to(target.dtype), target):
                target.copy_(given)


def _all_names(root: nn.Module, facts: Mapping[str, Any]) -> list[str]:
    """Int8 ops and folded batch norms, under every name that a module has in the tree."""
    known = dict(root.named_modules(remove_duplicate=False))
    places = (*facts["ops"], *facts["folded"])
    replaced = {id(known[name]) for name in places if name in known}
    return [*places, *(name for name, module in known.items() if id(module) in replaced)]


def _give_weights(
    prepared: Prepared, recipe: Recipe, ranges: Stored, tensors: Mapping[str, torch.Tensor]
) -> None:
    chains = {
        op: chain
        for captured in prepared.captures
        if captured.name in ranges.trusted
        for op, chain in prepared.chains_of(captured).items()
    }
    for key, config in recipe.ops.items():
        layer = prepared.layers.get(key.name)
        if config.is_float or config.weight is None or layer is None or key.name not in ranges.ops:
            continue
        chain = chains.get(key.name)
        static = config.mode == "static" and not ranges.is_unlike(key.name)
        norm = chain.norm if chain is not None and static else None
        parts = _parts(layer, config.weight, key.name, tensors)
        prepared.give_weights(layer, config.weight, norm, parts)


def _parts(
    layer: Layer, config: TensorConfig, name: str, tensors: Mapping[str, torch.Tensor]
) -> dict[str, Weights]:
    prefix = f"{name}." if name else ""
    ending = "_int8"
    found = {}
    for key in tensors:
        if not (key.startswith(prefix) and key.endswith(ending)):
            continue
        part = key[len(prefix) : -len(ending)]
        axis = layer.spec.axis if config.granularity != "per_tensor" else None
        bias = tensors.get(prefix + bias_name(part))
        scale, smooth = tensors[f"{prefix}{part}_scale"], tensors.get(f"{prefix}{part}_smooth")
        found[part] = Weights(tensors[key], scale, axis, bias, smooth)
    return found


class Stored:
    """Ranges as they were written down."""

    def __init__(self, prepared: Prepared, facts: Mapping[str, Any]) -> None:
        self.ops: dict[str, dict[str, Any]] = facts["ops"]
        self._parts: dict[str, dict[str, Any]] = facts["parts"]
        self.trusted = frozenset(self._parts)
        self._skipped: Mapping[str, str] = facts["skipped"]
        self.divided = frozenset(op for op, item in self.ops.items() if item.get("divided"))
        self.viewed = frozenset(op for op, item in self.ops.items() if item.get("plain"))
        known = {captured.name: captured for captured in prepared.captures}
        for name, part in self._parts.items():
            if name not in known or not known[name].is_known_as(part["digest"]):
                raise UnsupportedModel(
                    f"the forward of {name or 'the model'!r} is not the one that was saved: "
                    "restore it with the code it was tuned with"
                )

    def why_never(self, op: str) -> str:
        return self._skipped.get(op, "")

    def why_not(self, op: str) -> str:
        return self.why_never(op)

    def is_unlike(self, op: str) -> bool:
        return "inlet" not in self.ops.get(op, ("inlet",))

    def inlet(self, op: str, config: TensorConfig) -> Affine:
        raw = self.ops[op]["inlet"]
        return Affine(float(raw["scale"]), int(raw["zero_point"]))

    def outlet(self, op: str, config: TensorConfig) -> Affine | None:
        raw = self.ops[op].get("outlet")
        return None if raw is None else Affine(float(raw["scale"]), int(raw["zero_point"]))

    def inside(self, captured: Capture, recipe: Recipe) -> Scales:
        return _StoredInside(self._parts.get(captured.name, {"values": {}, "even": []}))

    def kernel(self, op: str) -> str | None:
        return self.ops[op].get("kernel")

    def dynamic_kernel(self, layer: Layer) -> str | None:
        return self.kernel(layer.name)

    def smooth(self, prepared: Prepared, recipe: Recipe) -> Mapping[str, Smooth]:
        """None to be found: the weights and norms in the file are smoothed already."""
        return {}


class _StoredInside:
    def __init__(self, part: Mapping[str, Any]) -> None:
        self._part = part
        # A model that was made where torch has no codes says nothing of them.
        self.coded = has_codes() and bool(part["values"])

    def value(self, op: str | None, node: fx.Node, reader: str) -> Affine:
        scale, zero_point = self._part["values"][node.name]
        return Affine(float(scale), int(zero_point))

    def is_even(self, node: fx.Node) -> bool:
        return node.name in self._part["even"]
