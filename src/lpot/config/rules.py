"""What the jobs need from a configuration, in the core's own types."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from lpot.config.schema import Config
from lpot.config.schema_quantization import Activation, OpRule, Weight
from lpot.core.backend import Approach, ModelSpec
from lpot.core.errors import ConfigError
from lpot.core.goal import Goal, Objectives
from lpot.core.limits import Limits
from lpot.core.space import Rule, TensorRule

_APPROACHES: dict[str, Approach] = {
    "post_training_static_quant": "static",
    "post_training_dynamic_quant": "dynamic",
    "post_training_auto_quant": "auto",
    "quant_aware_training": "static",  # what comes out of it is static
    "weight_only": "weight_only",
}
_TRAINS = "quant_aware_training"
_OPEN = "placeholder"  # the original's word for: nothing is said
_FOR_THE_REST = "default_qconfig"
_NOT_BF16 = ("int8", "uint8", "fp32", "fp16")
_WHOLE_RANGE = 7  # bits beside the sign


def rules(config: Config) -> tuple[Rule, ...]:
    """The user's wishes about precisions, each with its place in the configuration."""
    return tuple(_rules(config))


def _rules(config: Config) -> Iterator[Rule]:
    section = config.quantization
    everywhere = _rule(section.model_wise, "", "quantization.model_wise")
    if everywhere.activation is not None or everywhere.weight is not None:
        yield replace(everywhere, yields=not everywhere.asks_few_bits)
    if not config.use_bf16:
        yield Rule(activation=TensorRule(dtype=_NOT_BF16), path="use_bf16")
    for kind, wish in section.optype_wise.items():
        yield _rule(wish, kind, f"quantization.optype_wise.{kind}", kind_only=True)
    for name, wish in section.op_wise.items():
        pattern = "" if name == _FOR_THE_REST else name
        yield _rule(wish, pattern, f"quantization.op_wise.{name}")


def float_words(config: Config) -> tuple[str, ...]:
    """The floats that `graph_optimization` or `mixed_precision` allows; empty without them."""
    section = config.graph_optimization or config.mixed_precision
    return () if section is None else tuple(section.precisions)


def float_rules(config: Config) -> tuple[Rule, ...]:
    """What `graph_optimization` says of single ops."""
    section = config.graph_optimization
    wishes = {} if section is None else section.op_wise
    return tuple(
        _rule(wish, name, f"graph_optimization.op_wise.{name}") for name, wish in wishes.items()
    )


def _rule(wish: OpRule, pattern: str, path: str, kind_only: bool = False) -> Rule:
    return Rule(pattern, _tensor(wish.activation), _tensor(wish.weight), kind_only, path)


def _tensor(wish: Activation | Weight | None) -> TensorRule | None:
    if wish is None:
        return None
    rule = TensorRule(
        dtype=tuple(wish.dtype),
        scheme=_closed(wish.scheme),
        granularity=tuple(wish.granularity),
        algorithm=_closed(wish.algorithm),
        bits=_bits(wish.bit) if isinstance(wish, Weight) else (),
        group_size=wish.group_size if isinstance(wish, Weight) else (),
    )
    return None if rule == TensorRule() else rule


def _closed(words: tuple[str, ...]) -> tuple[str, ...]:
    return () if _OPEN in words else tuple(words)


def _bits(values: tuple[float, ...]) -> tuple[int, ...]:
    """The file counts bits beside the sign, the core all of them.

    The whole range takes in the reduced one, which some processors need: files that name it say
    "as usual", and must work on these too.
    """
    found: dict[int, None] = {}
    for value in values:
        found[int(value) + 1] = None
        if value == _WHOLE_RANGE:
            found[_WHOLE_RANGE] = None
    return tuple(found)


def approach(config: Config) -> Approach | None:
    """Static, dynamic or auto; None when the user left it to the framework."""
    if "approach" not in config.quantization.model_fields_set:
        return None
    return _APPROACHES[config.quantization.approach]


def weight_settings(config: Config) -> dict[str, Any]:
    """What is said of weights alone, in the words of the section."""
    others = {"calibration_text", "evaluation_text", "two_formats"}
    return dict(config.quantization.weight_only.model_dump(exclude=others))


def trains(config: Config, has_loop: bool) -> bool:
    """Is there training before the search? A loop that was given says so where nothing else does.

    >>> from lpot.config.load import load
    >>> trains(load(), has_loop=True)
    True
    """
    if "approach" not in config.quantization.model_fields_set:
        return has_loop
    return config.quantization.approach == _TRAINS


def goal(config: Config) -> Goal:
    criterion = config.tuning.accuracy_criterion
    return Goal(
        criterion.relative, criterion.absolute, criterion.higher_is_better, criterion.proven
    )


def objectives(config: Config) -> Objectives:
    """What to make best. The direction of each is known: one that is given must agree with it."""
    several = config.tuning.multi_objectives
    if several is None or not several.objective:
        return Objectives((config.tuning.objective,))
    higher = config.tuning.accuracy_criterion.higher_is_better
    for word, given in zip(several.objective, several.higher_is_better, strict=False):
        known = higher if word == "accuracy" else False
        if given != known:
            path = "tuning.multi_objectives.higher_is_better"
            raise ConfigError(
                f"given {str(given).lower()} for {word}, which is better {_side(known)}",
                path=path,
                where=config.where(path),
            )
    equal = (1.0 / len(several.objective),) * len(several.objective)
    return Objectives(tuple(several.objective), tuple(several.weight) or equal)


def _side(higher: bool) -> str:
    return "high" if higher else "low"


def limits(config: Config) -> Limits:
    policy = config.tuning.exit_policy
    return Limits(
        timeout=policy.timeout,
        max_trials=policy.max_trials,
        performance_only=policy.performance_only,
    )


def model_spec(config: Config) -> ModelSpec:
    model = config.model
    return ModelSpec(model.name, tuple(model.inputs), tuple(model.outputs), model.signature)


def sampling_sizes(config: Config, batch_size: int = 1) -> tuple[int, ...]:
    """Numbers of calibration samples to try; (0,) stands for the whole loader.

    `batch_size` turns the older `calibration.iterations` into samples.
    """
    calibration = config.quantization.calibration
    if calibration.iterations:
        return tuple(count * batch_size for count in calibration.iterations)
    return tuple(calibration.sampling_size) or (0,)
