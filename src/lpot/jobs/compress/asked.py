"""What a request asks of pruning under the bar, and what it must give for it."""

from __future__ import annotations

from lpot.config.schema import Config
from lpot.config.schema_pruning import StructuredPruning
from lpot.core.backend import Backend
from lpot.core.compress.prunable import Prunable
from lpot.core.compress.settings import Distill, Structured
from lpot.core.errors import ConfigError
from lpot.core.model import Model
from lpot.jobs.tune.request import Request

SECTION = "pruning.approach.structured"


def wants_compression(config: Config) -> bool:
    return config.pruning is not None and config.pruning.approach.structured is not None


def settings(config: Config) -> Structured:
    assert config.pruning is not None and config.pruning.approach.structured is not None
    return settings_of(config.pruning.approach.structured, config.tuning.random_seed)


def check_compression(
    request: Request, config: Config, backend: Backend, model: Model, calibrates: bool
) -> None:
    """Before anything is evaluated."""
    if not isinstance(backend, Prunable):
        raise ConfigError(
            f"backend {backend.name} can't remove channels: give a torch module or a Keras model",
            SECTION,
            config.where(SECTION),
        )
    backend.check_prunable(model)
    if config.pruning is not None and config.pruning.approach.weight_compression is not None:
        raise ConfigError(
            "both `structured` and `weight_compression` are given, expected one of them: for both, "
            "chain two components with Scheduler",
            SECTION,
            config.where(SECTION),
        )
    train = None if config.pruning is None else config.pruning.train
    given = request.train is not None or (train is not None and train.dataloader is not None)
    if not given and not calibrates:
        raise ConfigError(
            "structured pruning trains what is left: give train_dataloader, or "
            "`pruning.train.dataloader` in the yaml",
            SECTION,
            config.where(SECTION),
        )


def settings_of(section: StructuredPruning, seed: int) -> Structured:
    distill = Distill(
        epochs=section.epochs,
        learning_rate=section.learning_rate,
        temperature=section.temperature,
        logits=section.logits,
        features=section.features,
        labels=section.labels,
        mixup=section.mixup,
        seed=seed,
    )
    ratios = tuple(sorted(section.ratio, reverse=True))
    return Structured(ratios, section.blocks, section.samples, section.batch_size, distill)
