"""Reading a configuration with the strategies that are known in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lpot.config.load import load, override
from lpot.config.schema import Config
from lpot.strategy import strategies

Conf = str | Path | Mapping[str, Any] | Config | None


def read_config(source: Conf) -> Config:
    return load(source, extra_strategies=strategies())


def with_name(config: Config, model: Any) -> Config:
    """A model that nobody named goes by its file: two models must not share a workspace."""
    if "name" in config.model.model_fields_set or not isinstance(model, str | Path):
        return config
    return change_config(config, {"model.name": Path(model).stem or None})


def change_config(config: Config, changes: Mapping[str, Any]) -> Config:
    """The config with the arguments a caller gave; those left at None change nothing."""
    given = {key: value for key, value in changes.items() if value is not None}
    return override(config, given, extra_strategies=strategies())
