"""A recipe: for each op, in which precision and how. Frozen, compared by content, JSON-able."""

from __future__ import annotations

import hashlib
import json
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property, lru_cache
from itertools import pairwise
from typing import Any, Literal, get_args

from lpot.core.repairs import NONE, Repairs

Mode = Literal["static", "dynamic", "float", "weight_only"]


@dataclass(frozen=True, order=True)
class OpKey:
    """The same pair in yaml, space, recipe, history and report."""

    name: str
    kind: str

    def __str__(self) -> str:
        return f"{self.name} ({self.kind})"


@dataclass(frozen=True)
class TensorConfig:
    """How one tensor is stored. `bits` is the range used: 7 on CPUs whose kernels saturate at 8.

    `group_size` is that of weights rounded by themselves: columns that share a scale, 0 for all.
    """

    dtype: str
    scheme: str | None = None
    granularity: str | None = None
    algorithm: str | None = None
    bits: int | None = None
    group_size: int | None = None

    @property
    def is_float(self) -> bool:
        return self.dtype in FLOAT_DTYPES

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> TensorConfig:
        config = cls(**raw)
        words = (config.scheme, config.granularity, config.algorithm)
        if type(config.dtype) is not str or not all(
            word is None or type(word) is str for word in words
        ):
            raise ValueError(
                f"a tensor's dtype, scheme, granularity and algorithm must be strings: {raw}"
            )
        if config.bits is not None and (type(config.bits) is not int or not 1 <= config.bits <= 32):
            raise ValueError(f"bits is {config.bits!r}, expected a number from 1 to 32")
        size = config.group_size
        if size is not None and (type(size) is not int or size < 0):
            raise ValueError(f"group_size is {size!r}, expected 0 or more")
        return config


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
        weight, mode = raw.get("weight"), raw["mode"]
        if mode not in get_args(Mode):
            raise ValueError(f"mode is {mode!r}, expected one of {', '.join(get_args(Mode))}")
        return cls(
            activation=TensorConfig.from_json(raw["activation"]),
            weight=None if weight is None else TensorConfig.from_json(weight),
            mode=mode,
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
    repairs: Repairs = NONE

    def __post_init__(self) -> None:
        if not isinstance(self.ops, Ops):
            object.__setattr__(self, "ops", Ops.of(self.ops))

    def __hash__(self) -> int:
        return hash(self.digest)

    def replace(self, changes: Mapping[OpKey, OpConfig]) -> Recipe:
        unknown = [key for key in changes if key not in self.ops]
        if unknown:
            raise KeyError(f"recipe has no op {unknown[0]}")
        ops = self.ops if isinstance(self.ops, Ops) else Ops.of(self.ops)
        return Recipe(ops.changed(changes), self.samples, self.repairs)

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
        assert isinstance(self.ops, Ops)
        table, ops = self.ops.numbered()
        raw: dict[str, Any] = {"configs": [config.to_json() for config in table], "ops": ops}
        if self.samples:
            raw["samples"] = self.samples
        if self.repairs:
            raw["repairs"] = self.repairs.to_json()
        return raw

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Recipe:
        """Raises KeyError, TypeError, ValueError or AttributeError for what is no recipe."""
        samples = raw.get("samples", 0)
        if type(samples) is not int:
            raise ValueError("samples is not a number")
        repairs = Repairs.from_json(raw.get("repairs", ()))
        return cls(Ops.from_json(raw["configs"], raw["ops"]), samples, repairs)

    @cached_property
    def digest(self) -> str:
        """Content hash: a recipe's identity in history."""
        text = json.dumps(self.to_json(), sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(text.encode()).hexdigest()[:16]


class Ops(Mapping[OpKey, OpConfig]):
    """Read-only mapping in the order of its keys, so that equal recipes have equal digests.

    A search holds thousands of recipes on the same ops: the keys are kept once for all of them, and
    a recipe is a number for each op into a table of configs.
    """

    __slots__ = ("_codes", "_keys", "_table")

    def __init__(self, keys: _Keys, table: tuple[OpConfig, ...], codes: bytes | array[int]) -> None:
        self._keys, self._table, self._codes = keys, table, codes

    @classmethod
    def of(cls, ops: Mapping[OpKey, OpConfig]) -> Ops:
        keys = tuple(ops) if isinstance(ops, Ops) else tuple(sorted(ops))
        table: dict[OpConfig, int] = {}
        codes = [table.setdefault(ops[key], len(table)) for key in keys]
        return cls(_keys(keys), _shared(tuple(table)), _packed(codes, len(table)))

    @classmethod
    def from_json(cls, configs: Any, ops: Any) -> Ops:
        table = _configs(configs)
        if not ops:
            return cls.of({})
        names, kinds, codes = zip(*ops, strict=True)
        if not set(map(type, codes)) <= {int} or not 0 <= min(codes) <= max(codes) < len(table):
            raise ValueError("an op's config is not among those listed")
        keys = _named(names, kinds)
        if keys is not None and len(set(table)) == len(table):
            return cls(keys, table, _packed(codes, len(table)))
        return cls.of({OpKey(name, kind): table[code] for name, kind, code in ops})

    def changed(self, changes: Mapping[OpKey, OpConfig]) -> Ops:
        """The same with other configs for some of the ops."""
        table = {config: code for code, config in enumerate(self._table)}
        codes = list(self._codes)
        for key, config in changes.items():
            codes[self._keys.places[key]] = table.setdefault(config, len(table))
        return Ops(self._keys, _shared(tuple(table)), _packed(codes, len(table)))

    def numbered(self) -> tuple[list[OpConfig], list[list[Any]]]:
        """The configs in the order of their first use, and each op with the number of its own."""
        order: dict[int, int] = {}
        codes = [order.setdefault(code, len(order)) for code in self._codes]
        ops = [[k.name, k.kind, code] for k, code in zip(self._keys.names, codes, strict=True)]
        return [self._table[code] for code in order], ops

    def __getitem__(self, key: OpKey) -> OpConfig:
        return self._table[self._codes[self._keys.places[key]]]

    def __iter__(self) -> Iterator[OpKey]:
        return iter(self._keys.names)

    def __len__(self) -> int:
        return len(self._codes)

    def __eq__(self, other: object) -> bool:
        if isinstance(other, Ops) and self._keys is other._keys and self._table is other._table:
            return self._codes == other._codes
        return isinstance(other, Mapping) and dict(self.items()) == dict(other.items())

    def __hash__(self) -> int:
        return hash(tuple(self.items()))

    def __reduce__(self) -> Any:
        return Ops.of, (dict(self),)

    def __repr__(self) -> str:
        return repr(dict(self))


@dataclass(frozen=True, eq=False)
class _Keys:
    """Ops in order, and the place of each."""

    names: tuple[OpKey, ...]
    places: Mapping[OpKey, int]


@lru_cache(maxsize=256)
def _keys(names: tuple[OpKey, ...]) -> _Keys:
    return _Keys(names, {key: place for place, key in enumerate(names)})


@lru_cache(maxsize=256)
def _named(names: tuple[Any, ...], kinds: tuple[Any, ...]) -> _Keys | None:
    """The ops so named; None where they are not in order, or not each other's equals."""
    if not set(map(type, names)) <= {str} or not set(map(type, kinds)) <= {str}:
        raise ValueError("an op's name or kind is not text")
    keys = tuple(map(OpKey, names, kinds))
    return _keys(keys) if all(one < two for one, two in pairwise(keys)) else None


@lru_cache(maxsize=1024)
def _shared(table: tuple[OpConfig, ...]) -> tuple[OpConfig, ...]:
    return table


_TABLES: dict[str, tuple[OpConfig, ...]] = {}


def _configs(raw: Any) -> tuple[OpConfig, ...]:
    text = repr(raw)
    if text not in _TABLES:
        if len(_TABLES) > 1024:
            _TABLES.clear()
        _TABLES[text] = _shared(tuple(OpConfig.from_json(config) for config in raw))
    return _TABLES[text]


def _packed(codes: Sequence[int], kinds: int) -> bytes | array[int]:
    return bytes(codes) if kinds <= 256 else array("I", codes)
