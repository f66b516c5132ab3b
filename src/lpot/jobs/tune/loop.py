"""The training loop of quantization-aware training: q_func, or one made from the yaml."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lpot.config.rules import trains
from lpot.config.schema import Config
from lpot.core.backend import Backend, Trainable
from lpot.core.compress.training_data import TrainingData
from lpot.core.errors import ConfigError, a_kind
from lpot.jobs.tune.evaluation import plain, yaml_loader
from lpot.jobs.tune.request import Request
from lpot.jobs.tune.trainers import check_trainers

APPROACH = "quantization.approach"
SECTION = "quantization.train"

Loop = Callable[[Any], Any]


def wants_training(request: Request) -> bool:
    return trains(request.config, request.q_func is not None)


def training_loop(request: Request, config: Config, backend: Backend) -> Loop:
    """What can't be trained is an error before anything is evaluated."""
    if not isinstance(backend, Trainable):
        raise _wrong(
            config,
            f"backend {backend.name} can't train: give the torch module, or quantize after "
            "training (post_training_static_quant)",
        )
    given = request.q_func
    if given is None:
        return _from_section(config, backend)
    if not callable(given) or isinstance(given, type):
        raise ConfigError(
            f"given {a_kind(given)}, expected a function q_func(model) that trains the "
            "model it is given",
            "q_func",
        )
    return given


def _from_section(config: Config, backend: Trainable) -> Loop:
    section = config.quantization.train
    if section is None:
        raise _wrong(
            config,
            "quant_aware_training needs your training loop: give q_func, a function that trains "
            f"the model it is given, or `{SECTION}` with optimizer, criterion and dataloader",
        )
    needed = {
        "optimizer": section.optimizer,
        "criterion": section.criterion,
        "dataloader": section.dataloader,
        "end_epoch": section.end_epoch,
    }
    lacking = [name for name, value in needed.items() if value is None]
    if lacking:
        raise _wrong(
            config,
            f"{' and '.join(lacking)} not given: {', '.join(needed)} are all needed",
            SECTION,
        )
    check_trainers(config, section, SECTION, backend)
    place = f"{SECTION}.dataloader"
    loader = TrainingData(yaml_loader(config, section.dataloader, place), place)
    return backend.training_loop(plain(section), loader)


def _wrong(config: Config, message: str, path: str = APPROACH) -> ConfigError:
    return ConfigError(message, path, config.where(path))
