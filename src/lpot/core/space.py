"""What a backend can do (Capability), what users allow (Rule), what is left (TuningSpace)."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from lpot.core.errors import ConfigError, nearest
from lpot.core.recipe import FLOAT_DTYPES, FP32, OpConfig, OpKey, Recipe, TensorConfig
from lpot.core.repairs import NONE, Repairs


@dataclass(frozen=True)
class OpInfo:
    """One op of the model as given.

    `choices` has the most wanted first. An op with no low-precision choice says why in `reason`.
    `follower` marks ops that are low precision only between low-precision neighbours. `aliases` are
    names that other tools give it after rewriting it.
    """

    key: OpKey
    choices: tuple[OpConfig, ...] = (FP32,)
    reason: str = ""
    follower: bool = False
    aliases: tuple[str, ...] = ()

    @property
    def can_be_low(self) -> bool:
        return any(not choice.is_float for choice in self.choices)


@dataclass(frozen=True)
class Capability:
    """Every op of the model, by name, and remarks worth telling the user."""

    ops: Mapping[OpKey, OpInfo]
    notes: tuple[str, ...] = ()
    left: str = ""  # in a sentence: layers that can not be low precision as they are written

    def low(self) -> tuple[OpInfo, ...]:
        return tuple(info for info in self.ops.values() if info.can_be_low)


EIGHT_BITS = ("uint8", "int8")
FEW_BITS = ("int2", "int3", "int4")  # types of weights that are rounded by themselves


@dataclass(frozen=True)
class TensorRule:
    """What the user allows of a tensor; an empty tuple allows anything."""

    dtype: tuple[str, ...] = ()
    scheme: tuple[str, ...] = ()
    granularity: tuple[str, ...] = ()
    algorithm: tuple[str, ...] = ()
    bits: tuple[int, ...] = ()
    group_size: tuple[int, ...] = ()

    def allows(self, config: TensorConfig) -> bool:
        if self.dtype and config.dtype not in self.dtype:
            return False
        if config.is_float:
            return True
        pairs = (
            (self.scheme, config.scheme),
            (self.granularity, config.granularity),
            (self.algorithm, config.algorithm),
            (self.bits, config.bits),
            (self.group_size, config.group_size),
        )
        return all(not allowed or given is None or given in allowed for allowed, given in pairs)

    def __str__(self) -> str:
        words = [f"{key}={'|'.join(map(str, value))}" for key, value in vars(self).items() if value]
        return ", ".join(words) or "anything"


@dataclass(frozen=True)
class Rule:
    """One wish of the user. `pattern` '' stands for the whole model, `kind_only` for op types."""

    pattern: str = ""
    activation: TensorRule | None = None
    weight: TensorRule | None = None
    kind_only: bool = False
    path: str = ""  # where it stands in the yaml, for messages
    # Taken as far as an op can, as LPOT takes what `model_wise` says: the rest keeps its settings.
    yields: bool = field(default=False, compare=False)

    def parts(self) -> tuple[Rule, ...]:
        """Each wish by itself, where one that an op can't have is no reason to drop the others."""
        if not self.yields:
            return (self,)
        found = []
        for side in ("activation", "weight"):
            wish: TensorRule | None = getattr(self, side)
            for key, value in vars(wish).items() if wish is not None else ():
                if value:
                    alone: dict[str, Any] = {side: replace(TensorRule(), **{key: value})}
                    found.append(Rule(path=f"{self.path}.{side}.{key}", yields=True, **alone))
        return tuple(found)

    def widened(self) -> Rule:
        """With either sign for activations in eight bits: a framework has one of them."""
        given = self.activation
        if given is None or not set(given.dtype) & set(EIGHT_BITS):
            return self
        dtypes = tuple(dict.fromkeys((*given.dtype, *EIGHT_BITS)))
        return replace(self, activation=replace(given, dtype=dtypes))

    def allows(self, config: OpConfig) -> bool:
        if self.activation is not None and not self.activation.allows(config.activation):
            return False
        if self.weight is None:
            return True
        if config.is_float:  # a float op keeps its weights float
            return not self.weight.dtype or config.activation.dtype in self.weight.dtype
        return config.weight is None or self.weight.allows(config.weight)

    @property
    def names_float(self) -> bool:
        rules = [rule for rule in (self.activation, self.weight) if rule is not None]
        return any(dtype in FLOAT_DTYPES for rule in rules for dtype in rule.dtype)

    @property
    def names_type(self) -> bool:
        """Does it speak of types alone, and of no float?"""
        rules = [rule for rule in (self.activation, self.weight) if rule is not None]
        low = {*EIGHT_BITS, *FLOAT_DTYPES}
        return any(rule.dtype and not set(rule.dtype) & low for rule in rules)

    @property
    def asks_few_bits(self) -> bool:
        """Does it speak of weights that are rounded by themselves, in groups?"""
        weight = self.weight
        if weight is None:
            return False
        return bool(weight.group_size) or any(dtype in FEW_BITS for dtype in weight.dtype)

    def __str__(self) -> str:
        parts = []
        if self.activation is not None:
            parts.append(f"activation {self.activation}")
        if self.weight is not None:
            parts.append(f"weight {self.weight}")
        return "; ".join(parts) or "anything"


@dataclass(frozen=True)
class TuningSpace:
    """Op → the configs allowed, most wanted first, for every op that may be low precision."""

    choices: Mapping[OpKey, tuple[OpConfig, ...]]
    samples: tuple[int, ...] = (0,)
    followers: frozenset[OpKey] = frozenset()  # low precision only where their neighbours are
    notes: tuple[str, ...] = field(default=(), compare=False)
    repairs: Repairs = NONE  # graph-wide ones, part of every recipe

    def default(self) -> Recipe:
        """Every op at its most wanted config."""
        ops = {key: options[0] for key, options in self.choices.items()}
        return Recipe(ops, self.samples[0], self.repairs)

    def preferring(self, recipe: Recipe) -> TuningSpace:
        """The same space with the recipe's configs, where it allows them, as the most wanted."""
        choices = {}
        for key, options in self.choices.items():
            wanted = recipe.ops.get(key)
            rest = tuple(option for option in options if option != wanted)
            choices[key] = (wanted, *rest) if wanted in options else options
        return replace(self, choices=choices, repairs=recipe.repairs)

    def float_config(self, key: OpKey) -> OpConfig | None:
        """The op's way back to floating point, None when the user forbade it.

        FP32 where it is allowed, even on CPUs with 16-bit floats: what eight bits can't tell
        apart, the eight bits of BF16's mantissa can't either.
        """
        floats = [option for option in self.choices[key] if option.is_float]
        return FP32 if FP32 in floats else next(iter(floats), None)

    def with_float(self, recipe: Recipe, keys: Sequence[OpKey]) -> Recipe:
        changes = {key: config for key in keys if (config := self.float_config(key)) is not None}
        return recipe.replace(changes)

    def low_choices(self, key: OpKey) -> tuple[OpConfig, ...]:
        return tuple(option for option in self.choices[key] if not option.is_float)


_PLAIN_NAME = re.compile(r"^[A-Za-z0-9.][A-Za-z0-9_.\-/:]*$")


def select(rule: Rule, ops: Mapping[OpKey, OpInfo]) -> tuple[list[OpKey], str]:
    """The ops a rule speaks of and how they were found: name first, then regex, then kind."""
    if not rule.pattern:
        return list(ops), "model"
    if not rule.kind_only:
        exact = [key for key in ops if key.name == rule.pattern]
        exact = exact or [key for key, info in ops.items() if rule.pattern in info.aliases]
        if exact:
            return exact, "name"
        if not _PLAIN_NAME.match(rule.pattern):
            try:
                regex = re.compile(rule.pattern)
            except re.error as error:
                raise ConfigError(
                    f"{rule.pattern!r} is neither an op name nor a valid regular expression "
                    f"({error})",
                    path=rule.path,
                ) from error
            found = [key for key in ops if regex.match(key.name)]
            if found:
                return found, "regex"
    return [key for key in ops if key.kind == rule.pattern], "kind"


_WIDTH = {"name": 0, "regex": 1, "kind": 2, "model": 3}


def restrict(
    capability: Capability,
    rules: Sequence[Rule],
    samples: tuple[int, ...] = (0,),
    lenient: bool = False,
    halves: bool = False,
) -> TuningSpace:
    """The capability cut down to what the rules allow. Nothing is dropped silently.

    With `halves` a float of 16 bits makes an op one to choose for, too.
    """
    left = {key: info.choices for key, info in capability.ops.items()}
    notes: list[str] = []
    bound: dict[OpKey, tuple[int, Rule]] = {}  # op → the narrowest rule for it, and how narrow
    # The narrower wish is applied first, so that a wider one yields to it where both speak.
    parts = (part for rule in rules for part in rule.parts())
    matched = [(rule, *select(rule, capability.ops)) for rule in parts]
    for rule, keys, how in sorted(matched, key=lambda item: _WIDTH[item[2]]):
        if not keys:
            _unmatched(rule, capability, lenient, notes)
            continue
        if rule.pattern:
            notes.append(f"{rule.path or rule.pattern}: matched {len(keys)} op(s) by {how}")
        width = _WIDTH[how]
        refused = [
            key
            for key in keys
            if not _narrow(left, key, rule) and not _yields(bound.get(key), width)
        ]
        clashing = [key for key in refused if key in bound and _offers(capability, key, rule)]
        able = [key for key in refused if capability.ops[key].can_be_low]
        if rule.yields and not (rule.names_type and len(able) == len(refused) == len(keys)):
            if able:
                notes.append(_kept(rule, able, left))
        elif clashing:
            _clash(rule, bound[clashing[0]][1], clashing[0], lenient, notes)
        elif refused and rule.asks_few_bits and how != "name" and len(refused) < len(keys):
            notes.append(_passed_over(rule, refused))  # products of two activations, small weights
        elif refused and (rule.pattern or (able and len(refused) == len(keys))):
            _refuse(rule, refused[0], capability, lenient, notes)
        elif able:
            notes.append(_passed_over(rule, able))
        if rule.pattern:
            bound = {key: (width, rule) for key in keys} | bound
    chosen = {
        key: options
        for key, options in left.items()
        if any(not option.is_float or (halves and option != FP32) for option in options)
    }
    followers = frozenset(key for key in chosen if capability.ops[key].follower)
    return TuningSpace(chosen, samples, followers, tuple(notes))


def _narrow(left: dict[OpKey, tuple[OpConfig, ...]], key: OpKey, rule: Rule) -> bool:
    """Apply a rule to one op; False, and the op left as it was, where it is not available."""
    allowed = tuple(option for option in left[key] if rule.allows(option))
    was_low = any(not option.is_float for option in left[key])
    is_low = any(not option.is_float for option in allowed)
    # Only a rule that speaks of float may take an op's low precision away.
    if rule.yields and was_low and not is_low and rule.widened() != rule:
        _narrow(left, key, rule.widened())
        return False
    if not allowed or (was_low and not is_low and not rule.names_float):
        return False
    left[key] = allowed
    return True


def _yields(narrower: tuple[int, Rule] | None, width: int) -> bool:
    """Whether a rule has nothing to say of an op, for one that names it more closely has spoken."""
    return narrower is not None and narrower[0] < width


def _offers(capability: Capability, key: OpKey, rule: Rule) -> bool:
    """Whether the op could do what the rule asks, were it not for another rule."""
    return any(rule.allows(choice) for choice in capability.ops[key].choices)


def _clash(rule: Rule, other: Rule, key: OpKey, lenient: bool, notes: list[str]) -> None:
    message = (
        f"{rule.path or rule.pattern} ({rule}) and {other.path or other.pattern} ({other}) can't "
        f"both apply to op {key}: remove one of them"
    )
    if not lenient:
        raise ConfigError(message, path=rule.path)
    notes.append(f"warning: {message}; the latter applies")


def _unmatched(rule: Rule, capability: Capability, lenient: bool, notes: list[str]) -> None:
    names = sorted({key.kind for key in capability.ops})
    if not rule.kind_only:
        names += [key.name for key in capability.ops]
    close = nearest(rule.pattern, names) or names[:3]
    message = (
        f"{rule.pattern!r} matches no op of the model by name, regex or type; "
        f"the nearest are {', '.join(map(repr, close)) or 'none, the model has no ops'}"
    )
    if not lenient:
        raise ConfigError(message, path=rule.path)
    notes.append(f"warning: {rule.path}: {message}")


def _kept(rule: Rule, keys: Sequence[OpKey], left: Mapping[OpKey, tuple[OpConfig, ...]]) -> str:
    """What a wish for the whole model could not have, and what these ops have in its place."""
    kinds = ", ".join(sorted({key.kind for key in keys}))
    now = " | ".join(sorted({_describe(left[key][0]) for key in keys}))
    return (
        f"{rule.path} ({rule}) is not available for {len(keys)} op(s) ({kinds}), which keep {now}"
    )


def _passed_over(rule: Rule, keys: Sequence[OpKey]) -> str:
    kinds = ", ".join(sorted({key.kind for key in keys}))
    return (
        f"{rule.path or 'model_wise'} ({rule}) is not available for {len(keys)} op(s) "
        f"({kinds}): these keep their supported settings"
    )


def _refuse(
    rule: Rule, key: OpKey, capability: Capability, lenient: bool, notes: list[str]
) -> None:
    info = capability.ops[key]
    why = f" ({info.reason})" if info.reason else ""
    offers = sorted({_describe(choice) for choice in info.choices})
    message = f"{rule} is not available for op {key}{why}; available: {' | '.join(offers)}"
    if not lenient:
        raise ConfigError(message, path=rule.path)
    notes.append(f"warning: {rule.path}: {message}")


def _describe(config: OpConfig) -> str:
    if config.is_float:
        return config.precision
    parts = [f"{config.mode} activation {_words(config.activation)}"]
    if config.weight is not None:
        parts.append(f"weight {_words(config.weight)}")
    return ", ".join(parts)


def _words(config: TensorConfig) -> str:
    groups = f"groups of {config.group_size}" if config.group_size else None
    words = (config.dtype, config.scheme, groups or config.granularity, config.algorithm)
    return "/".join(word for word in words if word)
