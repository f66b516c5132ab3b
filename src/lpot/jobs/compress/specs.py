"""The pruners that a yaml describes, checked: mistakes with file:line."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from lpot.config.schema import Config
from lpot.config.schema_pruning import Pruner as PrunerSection
from lpot.config.schema_pruning import Pruning, WeightCompression
from lpot.core.compress.pruners import PrunerSpec
from lpot.core.compress.schedule import Schedule
from lpot.core.errors import ConfigError

PLACE = "pruning.approach.weight_compression"


def specs(config: Config) -> tuple[PrunerSpec, ...]:
    """The pruners of a yaml; without a list, one for all weights."""
    if config.pruning is not None and config.pruning.magnitude:
        return _oldest(config, config.pruning)
    section = None if config.pruning is None else config.pruning.approach.weight_compression
    if section is None:
        raise ConfigError(
            "nothing to prune is configured: give `weight_compression` or `structured`",
            "pruning.approach",
            config.where("pruning.approach"),
        )
    listed = section.pruners or (PrunerSection(),)
    found = []
    for number, one in enumerate(listed):
        path = f"{PLACE}.pruners[{number}]"
        spec = _spec(section, one, config.where(f"{path}.names") if section.pruners else "")
        _check_order(config, path, spec.schedule)
        _check_parameters(config, f"{path}.parameters", spec)
        found.append(spec)
    return tuple(found)


def _oldest(config: Config, section: Pruning) -> tuple[PrunerSpec, ...]:
    """Pruners as files of LPOT 1.0 and 1.1 have them."""
    found = []
    for name, one in section.magnitude.items():
        schedule = Schedule(
            section.init_sparsity if one.init_sparsity is None else one.init_sparsity,
            section.target_sparsity if one.target_sparsity is None else one.target_sparsity,
            section.start_epoch if one.start_epoch is None else one.start_epoch,
            section.end_epoch if one.end_epoch is None else one.end_epoch,
            section.frequency,
        )
        path = f"pruning.magnitude.{name}"
        _check_order(config, path, schedule)
        where = config.where(f"{path}.weights")
        found.append(PrunerSpec("basic_magnitude", schedule, tuple(one.weights), {}, where))
    return tuple(found)


def _check_order(config: Config, path: str, schedule: Schedule) -> None:
    """A pruner's own values against those that it takes from the section above."""
    if schedule.initial > schedule.target:
        raise ConfigError(
            f"target_sparsity is {schedule.target:g}, below the initial sparsity "
            f"({schedule.initial:g}): expected a share of zeros from {schedule.initial:g} to below "
            "1",
            path,
            config.where(f"{path}.target_sparsity"),
        )
    if schedule.start > schedule.end:
        raise ConfigError(
            f"end_epoch is {schedule.end}, before start_epoch ({schedule.start}): expected "
            f"{schedule.start} or later",
            path,
            config.where(f"{path}.end_epoch"),
        )


def idle(config: Config, chosen: Sequence[PrunerSpec]) -> list[str]:
    """What is asked for and changes nothing."""
    section = None if config.pruning is None else config.pruning.approach.weight_compression
    nothing = [
        f"warning: {spec.where or PLACE}: target_sparsity is 0, so that {spec.kind} sets no weight "
        "to zero: expected a share between 0 and 1, such as 0.5"
        for spec in chosen
        if spec.schedule.target == 0 and spec.left is None and spec.kind != "pattern_lock"
    ]
    return nothing + [
        f"warning: {PLACE}.pruners[{number}].method: {one.method!r} has no effect: shares of zeros "
        "are those of each weight (per_tensor)"
        for number, one in enumerate(() if section is None else section.pruners)
        if one.method != "per_tensor"
    ]


def _check_parameters(config: Config, path: str, spec: PrunerSpec) -> None:
    try:
        spec.check()
    except ConfigError as error:
        where = config.where(f"{path}.{error.path}")
        raise ConfigError(str(error), path, where) from error


def _spec(section: WeightCompression, one: PrunerSection, where: str) -> PrunerSpec:
    def value(name: str) -> Any:
        own = getattr(one, name)
        return getattr(section, name) if own is None else own

    schedule = Schedule(
        value("initial_sparsity"),
        value("target_sparsity"),
        value("start_epoch"),
        value("end_epoch"),
        math.ceil(one.update_frequency or section.frequency),
    )
    return PrunerSpec(one.prune_type, schedule, tuple(one.names), dict(one.parameters), where)
