"""What a `train` section needs besides the model: its data, and the file it is kept in."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Sequence
from typing import Any

from lpot.config.schema import Config
from lpot.core.compress.resume import Resumable, TrainingFile
from lpot.core.compress.training_data import TrainingData
from lpot.core.compress.weight_store import WeightStore
from lpot.core.errors import ConfigError
from lpot.core.files.workspace import default_folder
from lpot.core.loader import length_of
from lpot.jobs.storage.workspace import as_path, is_url
from lpot.jobs.tune.evaluation import plain, yaml_loader
from lpot.jobs.tune.trainers import check_trainers


def training_file(
    config: Config,
    kind: str,
    stores: Sequence[WeightStore],
    data: TrainingData,
    tell: Callable[[str], None],
    others: Sequence[Resumable] = (),
) -> TrainingFile:
    """In the workspace, for the training of this kind ("pruning"). `stores` hold the models that
    it begins with."""
    given = config.tuning.workspace.path
    framework = config.model.framework or "model"
    if given and not is_url(given):
        folder = as_path(given)
    else:
        folder = default_folder(framework, config.model.name)
    told = {"seed": config.tuning.random_seed, "kind": kind, "batches": length_of(data)}
    told |= {name: _told(getattr(config, name)) for name in ("pruning", "distillation")}
    identity = hashlib.sha256(json.dumps(told, sort_keys=True, default=str).encode())
    for store in stores:
        for name, value in store.packed(store.snapshot()).items():
            identity.update(name.encode() + value.tobytes())
    path = folder.absolute() / f"{kind}-training.npz"
    return TrainingFile(path, identity.hexdigest(), tell, others, data)


def _told(section: Any) -> Any:
    return None if section is None else plain(section)


def training_data(
    config: Config, section: Any, given: Any, path: str, backend: Any
) -> TrainingData:
    """The loader of a `train` section, which must be complete."""
    where = config.where(path) or config.where(path.partition(".")[0])
    if section is None:
        raise ConfigError(
            "no training loop: give a function that trains, or optimizer, criterion and end_epoch",
            path,
            where,
        )
    needed = ("optimizer", "criterion", "end_epoch")
    lacking = [name for name in needed if getattr(section, name) is None]
    if lacking:
        raise ConfigError(f"{' and '.join(lacking)} not given", path, where)
    if section.end_epoch <= section.start_epoch:
        raise ConfigError(
            f"given {section.end_epoch}: expected more than start_epoch ({section.start_epoch}), "
            "or nothing is trained",
            f"{path}.end_epoch",
            config.where(f"{path}.end_epoch"),
        )
    check_trainers(config, section, path, backend)
    if given is not None:
        return TrainingData(given)
    if section.dataloader is None:
        raise ConfigError("no dataloader, and no train_dataloader was given", path, where)
    loader = yaml_loader(config, section.dataloader, f"{path}.dataloader")
    return TrainingData(loader, f"{path}.dataloader")
