"""Reading a configuration with the strategies that are known in this process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lpot.config.load import load, override
from lpot.config.mistakes import ConfigMistakes
from lpot.config.schema import Config
from lpot.core.errors import ConfigError
from lpot.strategy import strategies

Conf = str | Path | Mapping[str, Any] | Config | None


def read_config(source: Conf) -> Config:
    return load(source, extra_strategies=strategies())


def with_name(config: Config, model: Any) -> Config:
    """A model that nobody named goes by its file: two models must not share a workspace."""
    if "name" in config.model.model_fields_set or not isinstance(model, str | Path):
        return config
    return change_config(config, {"model.name": Path(model).stem or None})


def change_config(
    config: Config, changes: Mapping[str, Any], names: Mapping[str, str] | None = None
) -> Config:
    """The config with the arguments a caller gave; those left at None change nothing.

    `names` has the caller's own word for a key, for whatever is wrong with it.
    """
    given = {key: value for key, value in changes.items() if value is not None}
    try:
        return override(config, given, extra_strategies=strategies())
    except ConfigMistakes as error:
        raise in_their_words(error, names or {}) from None


def in_their_words(error: ConfigMistakes, names: Mapping[str, str]) -> ConfigError:
    """Mistakes under the names that the caller wrote."""
    told = []
    for mistake in error.mistakes:
        path = ".".join(map(str, mistake.path))
        key = next((key for key in (path, f"{path}.name") if key in names), path)
        told.append((names.get(key, path), mistake.message))
    if len(told) == 1:
        return ConfigError(told[0][1], told[0][0])
    return ConfigError("\n".join(f"{name}: {message}" for name, message in told))
