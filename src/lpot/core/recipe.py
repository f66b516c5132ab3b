"""A recipe: for each op, in which precision and how. Frozen, compared by content, JSON-able."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

Mode = Literal["static", "dynamic", "float"]


@dataclass(frozen=True, order=True)
class OpKey:
    """The same pair in yaml, space, recipe, history and report."""

    name: str
    kind: str

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"


@dataclass(frozen=True)
class TensorConfig:
    """How one tensor is stored. `bits` is the range used: 7 on CPUs whose kernels saturate at 8."""

    dtype: str
    scheme: str | None = None
    granularity: str | None = None
    algorithm: str | None = None
    bits: int | None = None

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOAT_DTYPES


FLOAT_DTYPES = ("fp32", "bf16", "fp16")
FP32_TENSOR = TensorConfig("fp32")


@dataclass(frozen=True)
class OpConfig:
    """How one op runs. `weight` is None for ops without weights."""

    activation: TensorConfig
    weight: TensorConfig | None = None
    mode: Mode = "static"

    @property
    def is_float(self) -> bool:
        return self.mode == "float"

    @property
    def precision(self) -> str:
        """One word for tables: int8, uint8, fp32, bf16 …"""
        if self.is_float:
            return self.activation.dtype
        return self.weight.dtype if self.weight is not None else self.activation.dtype

    def to_json(self) -> dict[str, Any]:
        raw: dict[str, Any] = {"mode": self.mode, "activation": _compact(self.activation)}
        if self.weight is not None:
            raw["weight"] = _compact(self.weight)
        return raw

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> OpConfig:
        weight = raw.get("weight")
        return cls(
            activation=TensorConfig(**raw["activation"]),
            weight=None if weight is None else TensorConfig(**weight),
            mode=raw["mode"],
        )


FP32 = OpConfig(FP32_TENSOR, None, "float")


def _compact(config: TensorConfig) -> dict[str, Any]:
    return {key: value for key, value in asdict(config).items() if value is not None}


@dataclass(frozen=True)
class Recipe:
    """Op → config, plus graph-wide repairs and the number of calibration samples used.

    >>> conv = OpKey("conv1", "Conv")
    >>> int8 = OpConfig(TensorConfig("uint8", "asym"), TensorConfig("int8", "sym"))
    >>> recipe = Recipe({conv: int8})
    >>> recipe.with_float([conv]).float_ops
    (OpKey(name='conv1', kind='Conv'),)
    >>> Recipe.from_json(recipe.to_json()) == recipe
    True
    """

    ops: Mapping[OpKey, OpConfig]
    samples: int = 0
    repairs: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        object.__setattr__(self, "ops", _FrozenOps(self.ops))

    def __hash__(self) -> int:
        return hash(self.digest)

    def replace(self, changes: Mapping[OpKey, OpConfig]) -> Recipe:
        unknown = [key for key in changes if key not in self.ops]
        if unknown:
            raise KeyError(f"recipe has no op {unknown[0]}")
        return Recipe({**self.ops, **changes}, self.samples, self.repairs)

    def with_float(self, keys: Iterable[OpKey], config: OpConfig = FP32) -> Recipe:
        """The same recipe with these ops in floating point."""
        return self.replace({key: config for key in keys})

    @property
    def float_ops(self) -> tuple[OpKey, ...]:
        return tuple(key for key, config in self.ops.items() if config.is_float)

    @property
    def low_ops(self) -> tuple[OpKey, ...]:
        return tuple(key for key, config in self.ops.items() if not config.is_float)

    def precisions(self) -> dict[str, int]:
        """How many ops run in which precision, for tables."""
        count: dict[str, int] = {}
        for config in self.ops.values():
            count[config.precision] = count.get(config.precision, 0) + 1
        return dict(sorted(count.items()))

    def to_json(self) -> dict[str, Any]:
        """Configs are written once and referred to by number: a net of 10 000 ops stays small."""
        table: dict[OpConfig, int] = {}
        ops = [[k.name, k.kind, table.setdefault(c, len(table))] for k, c in self.ops.items()]
        raw: dict[str, Any] = {"configs": [config.to_json() for config in table], "ops": ops}
        if self.samples:
            raw["samples"] = self.samples
        if self.repairs:
            raw["repairs"] = list(self.repairs)
        return raw

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Recipe:
        configs = [OpConfig.from_json(config) for config in raw["configs"]]
        ops = {OpKey(name, kind): configs[index] for name, kind, index in raw["ops"]}
        return cls(ops, raw.get("samples", 0), tuple(raw.get("repairs", ())))

    @cached_property
    def digest(self) -> str:
        """Content hash: a recipe's identity in history."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class _FrozenOps(Mapping[OpKey, OpConfig]):
    """Read-only mapping in the order of its keys, so that equal recipes have equal digests."""

    __slots__ = ("_ops",)

    def __init__(self, ops: Mapping[OpKey, OpConfig]) -> None:
        self._ops = dict(sorted(ops.items()))

    def __getitem__(self, key: OpKey) -> OpConfig:
        return self._ops[key]

    def __iter__(self) -> Iterator[OpKey]:
        return iter(self._ops)

    def __len__(self) -> int:
        return len(self._ops)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Mapping) and self._ops == dict(other)

    def __hash__(self) -> int:
        return hash(tuple(self._ops.items()))

    def __repr__(self) -> str:
        return repr(self._ops)
