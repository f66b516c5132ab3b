"""The optimizer and the loss that a `train` section names: known, before anything runs."""

from __future__ import annotations

from typing import Any

from lpot.config.schema import Config
from lpot.core.compress.prunable import Sparsifiable
from lpot.core.compress.trainers import CRITERIONS, OPTIMIZERS
from lpot.core.errors import ConfigError, LpotError


def provided(backend: Any) -> str:
    """The framework's name, once its backend has told what can be named."""
    if not isinstance(backend, Sparsifiable):
        raise ConfigError(
            f"backend {backend.name} does not train: expected pytorch or tensorflow", "framework"
        )
    backend.provide_trainers()
    return str(backend.name)  # type: ignore[attr-defined]


def check_trainers(config: Config, section: Any, path: str, backend: Any) -> None:
    framework = provided(backend)
    wanted = {
        "optimizer": (OPTIMIZERS, section.optimizer),
        "criterion": (CRITERIONS, section.criterion),
    }
    for key, (known, given) in wanted.items():
        place = f"{path}.{key}"
        known.find(framework, given.name, place, config.where(place))


def located(error: LpotError, config: Config, path: str) -> LpotError:
    """What an optimizer or a loss says of its options, with the place in the file."""
    known = {trainers.what for trainers in (OPTIMIZERS, CRITERIONS)}
    if not isinstance(error, ConfigError) or error.where or error.path not in known:
        return error
    place = f"{path}.{error.path}"
    said = str(error).removeprefix(f"{error.path}: ")
    return ConfigError(said, place, config.where(place))
