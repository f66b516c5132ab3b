"""Build a trial of an earlier tuning again, from its history alone: no data, no evaluation."""

from __future__ import annotations

import logging
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from lpot.backends import detect, get_backend, get_runtime, missing_packages, named_in
from lpot.core.backend import Backend, Converting, Opening
from lpot.core.batch import Inputs
from lpot.core.errors import ConfigError, HistoryError, LpotError, UnsupportedModel
from lpot.core.files.card import read_card, recipe_of
from lpot.core.files.history import NAME, History
from lpot.core.files.store import load_observations, observations_path
from lpot.core.model import Model
from lpot.core.repairs import pruned
from lpot.core.trial import State, Trial
from lpot.jobs.benchmark.plan import deployed
from lpot.jobs.compress.variants import attach, origin_of
from lpot.jobs.load import load
from lpot.jobs.storage.workspace import fetched
from lpot.jobs.tune.job import Keeping, weights_folder
from lpot.jobs.tune.trained import trained_model

logger = logging.getLogger(__name__)


def recover(model: Any, history: str | Path, number: int) -> Model:
    """Trial `number` (as the history counts, from 1) of the tuning of `model`."""
    path = _file(history)
    found = History.read(path)
    trial = next((trial for trial in found.trials if trial.number == number), None)
    if trial is None:
        known = ", ".join(str(trial.number) for trial in found.trials) or "none"
        raise HistoryError(f"{path}: there is no trial {number}; there are: {known}")
    backend = _backend(found, trial, path)
    source = backend.load(model)
    if source.fingerprint() != found.fingerprint.get("model"):
        raise HistoryError(f"{path}: this history belongs to a different model")
    if "training" in found.fingerprint:
        source = trained_model(backend, source, path.parent, found.fingerprint["training"])
    ratio = trial.recipe.repairs.pruning
    if ratio is not None:
        if trial.state is State.DONE and found.recall(trial.recipe) is None:
            raise HistoryError(
                f"{path}: trial {number} was made from a pruned model that was trained again since"
            )
        attach(backend, source, path.parent, pruned(ratio), origin_of(found.fingerprint))
    static = any(config.mode == "static" for config in trial.recipe.ops.values())
    observations = None
    place = observations_path(path.parent, found.fingerprint)
    if static or place.is_file():
        observations = load_observations(place).get(trial.recipe.samples)
    if trouble := backend.overflow(source, trial.recipe):
        logger.warning("%s: trial %d: %s", path, number, trouble)
    built = backend.build(source, trial.recipe, observations)
    built.met = trial.met
    return built


# What a tuned model is written as: ending → who reads it.
FORMATS = {
    ".onnx": "ONNX Runtime, OpenVINO and others",
    ".xml": "OpenVINO",
    ".pt2": "PyTorch",
}


def check_format(target: Path, framework: str = "") -> None:
    """Refuse an ending that none of lpot's files, or none of a framework's, has."""
    own = framework in ("pytorch", "")
    fitting = {end: who for end, who in FORMATS.items() if own or end != ".pt2"}
    if target.suffix.lower() not in fitting:
        known = ", ".join(f"{end} ({who})" for end, who in fitting.items())
        whose = f"a {framework} model" if framework else "a tuned model"
        raise ConfigError(f"given {target.name!r}: {whose} can be written as {known}", "OUT")


def export(model: Model, target: Path, inputs: Inputs | None = None) -> Path:
    """The model in the format that the ending names, opened once by who is to read it."""
    check_format(target, model.framework)
    if target.suffix.lower() == ".xml":
        runtime = get_runtime("openvino")
        assert isinstance(runtime, Converting)
        with TemporaryDirectory(prefix="lpot-export-") as folder:
            runtime.convert(model.export_onnx(Path(folder) / "model.onnx", inputs), target)
        return target
    path = model.export_onnx(target, inputs)
    if target.suffix.lower() == ".pt2":  # PyTorch opens what it writes by itself
        return path
    if missing_packages("onnx"):
        logger.warning("%s was not opened: ONNX Runtime is not installed here", path)
        return path
    reader = get_backend("onnx")
    assert isinstance(reader, Opening)
    try:
        reader.open_file(path)
    except LpotError as error:
        path.unlink(missing_ok=True)
        raise UnsupportedModel(f"what was written could not be opened again: {error}") from error
    return path


def exportable(run: str | Path, source: Any = None) -> Model:
    """A tuned model in a form that other runtimes can be given.

    What some frameworks write can't be turned into anything else: those are built again, from the
    workspace and the model that was tuned. `source` is that model, where it is not at its old
    place; for PyTorch, the architecture.
    """
    place = fetched(run)
    found = deployed(place)
    path = place if found is None else found.model
    card = read_card(path)
    backend = get_backend(named_in(card) or detect(path))
    recipe = recipe_of(card, path)
    if not backend.exports_from_source or recipe is None or not recipe.low_ops:
        return load(run) if source is None else load(run, module=source)
    history = next((at for at in (place, path.parent) if (at / NAME).is_file()), None)
    if history is None:
        raise UnsupportedModel(
            f"{run}: it holds {backend.name}'s own INT8 ops, which no other runtime has: give the "
            "workspace of its tuning, from which it is built again"
        )
    origin = source or card.get("source")
    if not origin or (isinstance(origin, str) and not Path(origin).exists()):
        raise UnsupportedModel(
            f"{run}: the model that was tuned is needed to export it, and "
            f"{f'{origin} does not exist' if origin else 'it was given as an object'}: give its "
            "path, or pkg.mod:factory that makes it, with --module"
        )
    number = next(t.number for t in History.read(history / NAME).trials if t.recipe == recipe)
    return recover(origin, history, number)


def _backend(found: History, trial: Trial, path: Path) -> Backend:
    """The backend of the run; with the weights it has kept, if some were rounded by themselves."""
    backend = get_backend(found.info["framework"])
    if all(config.mode != "weight_only" for config in trial.recipe.ops.values()):
        return backend
    rounding = backend.offering_few_bits((), {})
    folder = weights_folder(path.parent, found.fingerprint)
    if not isinstance(rounding, Keeping) or not rounding.find_weights(folder, trial.recipe):
        raise HistoryError(
            f"{path}: the rounded weights of trial {trial.number} are not in {folder} any more: "
            "tune again, with the same history"
        )
    return rounding


def get_tuning_history(history: str | Path) -> tuple[Trial, ...]:
    """The trials of a history file or workspace."""
    return tuple(History.read(_file(history)).trials)


def _file(history: str | Path) -> Path:
    path = fetched(history)
    return path / NAME if path.is_dir() else path
