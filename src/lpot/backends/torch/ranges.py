"""From statistics to scales: how each value of a trial is laid out in uint8."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Protocol

from torch import fx

from lpot.backends.torch.channels import seen_channels
from lpot.backends.torch.findings import NO_KERNEL_HERE, Findings
from lpot.backends.torch.kernels import Affine
from lpot.backends.torch.kernels.choose import choose_dynamic
from lpot.backends.torch.kernels.codes import has_codes
from lpot.backends.torch.kinds import Layer
from lpot.backends.torch.lower import Scales
from lpot.backends.torch.passes.capture_graph import Capture
from lpot.backends.torch.passes.smooth_channels import Smooth, find_smooth
from lpot.core.backend import Observations
from lpot.core.numerics.rounding import SCALE_FLOOR, TensorStats, affine
from lpot.core.recipe import Recipe, TensorConfig

if TYPE_CHECKING:
    from lpot.backends.torch.prepare import Prepared

NEVER_RAN = "it never ran during calibration: it stays in FP32"
NO_KERNEL = (
    "no INT8 kernel of this torch version computes it correctly at its shape: it stays in FP32"
)
ESTRANGED = (
    "it runs under vmap, on nested tensors or with parameters passed by the caller, for which "
    "there is no INT8 kernel: it stays in FP32"
)
UNLIKE = (
    "it is called several times with inputs of very different ranges, which one scale does not "
    "suit: it stays in FP32"
)
TOO_SMALL = "its input is too small for INT8 (below 1e-16 everywhere): it stays in FP32"


def inlet_name(op: str) -> str:
    return f"{op}:in"


def outlet_name(op: str) -> str:
    return f"{op}:out"


def point_name(captured: Capture, node: fx.Node) -> str:
    return f"{captured.name}#{node.name}"


class Ranges(Protocol):
    """All that `build` asks about values.

    `trusted` names the captured parts that may be used, `divided` the ops whose input is smoothed
    already by the weights of the layer norm before them, `viewed` those whose output must lie in
    memory as FP32's does.
    """

    trusted: frozenset[str]
    divided: frozenset[str]
    viewed: frozenset[str]

    def why_never(self, op: str) -> str:
        """Why an op can't be INT8 in any way; empty where it can."""
        ...

    def why_not(self, op: str) -> str:
        """Why an op can't be static INT8; empty where it can."""
        ...

    def is_unlike(self, op: str) -> bool:
        """Do an op's calls have inputs of very different ranges, so that each needs its own?"""
        ...

    def inlet(self, op: str, config: TensorConfig) -> Affine: ...

    def outlet(self, op: str, config: TensorConfig) -> Affine | None:
        """None where no statistics were kept, because the op gives floats."""
        ...

    def inside(self, captured: Capture, recipe: Recipe) -> Scales: ...

    def kernel(self, op: str) -> str | None:
        """The executor this op must have, None for the one wanted most."""
        ...

    def dynamic_kernel(self, layer: Layer) -> str | None:
        """The same for an op that takes its range from each batch."""
        ...

    def smooth(self, prepared: Prepared, recipe: Recipe) -> Mapping[str, Smooth]:
        """Op → how its input is smoothed, for the ops that the recipe wants smoothed."""
        ...


class Observed:
    """Ranges from a calibration pass."""

    def __init__(self, observations: Observations) -> None:
        self._stats = observations.tensors
        self._known: dict[tuple[str, TensorConfig, int | None], Affine] = {}
        findings = Findings.of(observations)
        self._uneven, self._kernels = findings.uneven, findings.kernels
        self._ran, self._unlike = findings.ran, findings.unlike
        self._estranged, self.viewed = findings.estranged, findings.viewed
        self.trusted, self.factors = findings.trusted, observations.factors
        self._channels = seen_channels(observations)
        self._smooth: dict[str, Smooth] | None = None
        self.divided: frozenset[str] = frozenset()
        self.shapes = observations.shapes  # of an op's input, in the first calibration batch

    def why_never(self, op: str) -> str:
        if op in self._estranged:
            return ESTRANGED
        return "" if op in self._ran else NEVER_RAN

    def is_unlike(self, op: str) -> bool:
        return op in self._unlike

    def why_not(self, op: str) -> str:
        if op in self._unlike:
            return UNLIKE
        if inlet_name(op) not in self._stats:
            return NEVER_RAN
        stats = self._stats[inlet_name(op)]
        if 0 < max(-stats.minimum, stats.maximum) < 255 * SCALE_FLOOR:
            return TOO_SMALL
        return NO_KERNEL if self._kernels.get(op) == NO_KERNEL_HERE else ""

    def inlet(self, op: str, config: TensorConfig) -> Affine:
        return self.affine(inlet_name(op), config)

    def outlet(self, op: str, config: TensorConfig) -> Affine | None:
        """At once made float again, so all 8 bits can be used."""
        name = outlet_name(op)
        return self.affine(name, config, bits=8) if name in self._stats else None

    def affine(self, name: str, config: TensorConfig, bits: int | None = None) -> Affine:
        """Scale and zero point of a tensor under a config."""
        key = (name, config, bits)
        if key not in self._known:
            self._known[key] = to_affine(self._stats[name], config, bits)
        return self._known[key]

    def inside(self, captured: Capture, recipe: Recipe) -> Scales:
        return _Inside(self, captured, recipe)

    def kernel(self, op: str) -> str | None:
        return self._kernels.get(op)

    def dynamic_kernel(self, layer: Layer) -> str | None:
        return choose_dynamic(layer, self.shapes.get(layer.name))

    def smooth(self, prepared: Prepared, recipe: Recipe) -> Mapping[str, Smooth]:
        if not recipe.repairs.tensor_smoothing:
            return {}
        if self._smooth is None:
            self._smooth = find_smooth(self._channels, prepared.layers)
        # Smoothing goes by extremes: an op whose range is chosen in another way is left to that.
        plain = {key.name for key in recipe.low_ops if _is_plain(recipe.ops[key].activation)}
        return {op: item for op, item in self._smooth.items() if op in plain}


def _is_plain(config: TensorConfig) -> bool:
    return config.algorithm in (None, "minmax")


class _Inside:
    """Values between the ops of one captured part: scaled as their reader's config asks."""

    def __init__(self, ranges: Observed, captured: Capture, recipe: Recipe) -> None:
        self._ranges = ranges
        self._captured = captured
        self._configs = {key.name: config.activation for key, config in recipe.ops.items()}
        self.coded = has_codes()

    def value(self, op: str | None, node: fx.Node, reader: str) -> Affine:
        name = outlet_name(op) if op is not None else point_name(self._captured, node)
        return self._ranges.affine(name, self._configs[reader])

    def is_even(self, node: fx.Node) -> bool:
        return point_name(self._captured, node) not in self._ranges._uneven


class Noted:
    """Passes questions on and notes the answers, to be written down with the model."""

    def __init__(self, inner: Scales) -> None:
        self._inner = inner
        self.coded = inner.coded
        self.values: dict[str, Affine] = {}
        self.even: set[str] = set()

    def value(self, op: str | None, node: fx.Node, reader: str) -> Affine:
        found = self._inner.value(op, node, reader)
        self.values[node.name] = found
        return found

    def is_even(self, node: fx.Node) -> bool:
        found = self._inner.is_even(node)
        if found:
            self.even.add(node.name)
        return found

    def to_json(self) -> dict[str, Any]:
        return {
            "values": {name: [item.scale, item.zero_point] for name, item in self.values.items()},
            "even": sorted(self.even),
        }


def to_affine(stats: TensorStats, config: TensorConfig, bits: int | None = None) -> Affine:
    """Scale and zero point of a tensor under a config."""
    used = bits or config.bits or 8
    span = stats.range(config.algorithm or "minmax", symmetric=config.scheme == "sym", bits=used)
    return span_affine(span, config, used)


def span_affine(span: tuple[float, float], config: TensorConfig, bits: int | None = None) -> Affine:
    """Scale and zero point of a range under a config."""
    params = affine(*span, "uint8", config.scheme or "asym", bits or config.bits or 8)
    return Affine(float(params.scale), int(params.zero_point))
