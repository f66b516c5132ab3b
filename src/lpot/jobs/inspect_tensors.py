"""FP32 against low precision, op by op: how far outputs and weights are apart."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

import numpy as np

from lpot.backends import detect, get_backend
from lpot.core.backend import Backend, Traced
from lpot.core.batch import Inputs
from lpot.core.calibration import Calibration
from lpot.core.errors import ConfigError, HistoryError, UnsupportedModel, did_you_mean
from lpot.core.files.history import NAME, History
from lpot.core.model import Model
from lpot.core.preference import recorded
from lpot.core.progress import tracked
from lpot.core.recipe import OpKey, Recipe
from lpot.core.results.tensors import Contrast, Pair, contrasts
from lpot.core.space import Capability
from lpot.core.trial import Trial
from lpot.jobs.recover import recover
from lpot.jobs.storage.workspace import fetched

TOGETHER = 128  # ops looked at in one run: bounds the memory


def compare_tensors(
    model: Any,
    against: Any,
    calib: Any,
    *,
    ops: Sequence[str] = (),
    trial: int | None = None,
    framework: str | None = None,
) -> tuple[Contrast, ...]:
    """Each op of `model` against what it became, on the first batch of `calib`; the worst first.

    Args:
        model: the FP32 model, as a path or the framework's own object.
        against: the workspace of its tuning, a saved model, the handle of one, or what it holds.
        calib: any iterable of batches.
        ops: names of ops; all that can be low precision if omitted.
        trial: which trial of the workspace; the best one if omitted.
        framework: detected from the model if omitted.
    """
    backend = get_backend(framework or detect(model))
    loaded = backend.load(model)
    low = _low(backend, model, loaded, against, trial)
    names = loaded.input_names
    inputs = Calibration(calib, names).first.inputs
    capability = backend.inspect(loaded, "auto")
    keys = chosen_ops(capability, ops)
    found = list(look(backend, loaded, low, keys, inputs))
    return tuple(sorted(found, key=lambda item: (item.what != "output", item.sqnr)))


def look(
    backend: Backend, model: Model, low: Model, keys: Sequence[OpKey], inputs: Inputs
) -> Iterator[Contrast]:
    """How far apart the two models are, op by op."""
    for key, pair in traced(backend, model, low, keys, inputs):
        yield from contrasts({key: pair})


def traced(
    backend: Backend, model: Model, low: Model, keys: Sequence[OpKey], inputs: Inputs
) -> Iterator[tuple[OpKey, Pair]]:
    """What both models make of the inputs, a few ops at a time: tensors are large."""
    if not isinstance(backend, Traced):
        raise UnsupportedModel(
            f"backend {backend.name} does not support showing the tensors between ops; these do: "
            "onnx, pytorch, tensorflow"
        )
    groups = [keys[at : at + TOGETHER] for at in range(0, len(keys), TOGETHER)]
    for group in tracked(groups):
        yield from backend.tensors(model, low, group, inputs).items()


def chosen_ops(capability: Capability, names: Sequence[str]) -> list[OpKey]:
    """The ops of these names; without names, those that can be low precision."""
    if not names:
        return [info.key for info in capability.low()]
    by_name = {key.name: key for key in capability.ops}
    for name in names:
        if name not in by_name:
            near = did_you_mean(name, list(by_name)) or "; `lpot inspect` lists them"
            raise ConfigError(f"the model has no op {name!r}{near}", "op")
    return [by_name[name] for name in dict.fromkeys(names)]


def _low(backend: Backend, given: Any, model: Model, against: Any, trial: int | None) -> Model:
    if isinstance(against, Model):
        return against
    if not isinstance(against, str | Path):
        return backend.opened(against)
    path = fetched(against)
    if not path.exists():
        raise HistoryError(f"{path}: no such workspace or model")
    history = path / NAME if path.is_dir() else path
    if history.name == NAME and history.is_file():
        number = trial or best_trial(History.read(history)).number
        return recover(given, history, number)
    if path.is_dir() and not any(path.iterdir()):
        raise HistoryError(f"{path}: the folder is empty: no {NAME} and no model in it")
    if model.holds_architecture:
        return backend.restore(path)
    return backend.restore_into(path, given)


def best_trial(history: History) -> Trial:
    """The one that was, or would be, handed back."""
    best = recorded(history.info, history.baseline).best(history.trials)
    if best is None:
        raise HistoryError(f"{history.path}: no trial finished, so there is nothing to inspect")
    return best


def inspect_tensor(
    model: Any,
    dataloader: Any,
    op_list: Sequence[str] = (),
    iteration_list: Sequence[int] = (1,),
    inspect_type: Literal["activation", "weight", "all"] = "activation",
    save_to_disk: bool | str | Path = False,
    against: Any = None,
) -> dict[str, Any]:
    """Tensors of a model by op, in the original's form; of `against`, its INT8 twin, when given.

    Returns:
        `{"activation": [{op: {op: values}} for each iteration], "weight": {op: {op: values}}}`.
        Tensors above 65536 values are thinned out evenly. `save_to_disk` names a folder (True:
        the current one), which gets `inspect_result.npz`.
    """
    if inspect_type not in ("activation", "weight", "all"):
        raise ConfigError(
            f"given {inspect_type!r}, expected activation, weight or all", "inspect_type"
        )
    backend = get_backend(detect(model))
    loaded = backend.load(model)
    low = (
        backend.build(loaded, Recipe({}), None)
        if against is None
        else _low(backend, model, loaded, against, None)
    )
    keys = chosen_ops(backend.inspect(loaded, "auto"), op_list)
    side = 0 if against is None else 1
    activations: list[dict[str, Any]] = []
    weights: dict[str, Any] = {}
    for inputs in _iterations(Calibration(dataloader, loaded.input_names), iteration_list):
        seen: dict[str, Any] = {}
        for key, pair in traced(backend, loaded, low, keys, inputs):
            output, weight = pair[side].output, pair[side].weight
            seen |= {} if output is None else {key.name: {key.name: output.shaped}}
            weights |= {} if weight is None else {key.name: {key.name: weight.shaped}}
        activations.append(seen)
    found: dict[str, Any] = {"activation": activations, "weight": weights}
    if inspect_type != "all":
        found = {inspect_type: found[inspect_type]}
    if save_to_disk:
        _save(found, Path() if save_to_disk is True else Path(str(save_to_disk)))
    return found


def _iterations(data: Calibration, wanted: Sequence[int]) -> Iterator[Inputs]:
    """The batches of these numbers, counted from 1."""
    last = max(wanted, default=0)
    if last < 1 or min(wanted) < 1:
        raise ConfigError(f"given {list(wanted)}, expected numbers from 1", "iteration_list")
    seen = 0
    for number, inputs in enumerate(data.batches((last * data.batch_size,)), start=1):
        if number in wanted:
            seen += 1
            yield inputs
        if number >= last:
            break
    if seen < len(set(wanted)):
        raise ConfigError(
            f"iteration {last} was requested, but the loader ended before it", "iteration_list"
        )


def _save(found: dict[str, Any], folder: Path) -> None:
    arrays: dict[str, Any] = {}
    for number, seen in enumerate(found.get("activation", ()), start=1):
        arrays |= {f"activation/{number}/{op}": item[op] for op, item in seen.items()}
    arrays |= {f"weight/{op}": item[op] for op, item in found.get("weight", {}).items()}
    folder.mkdir(parents=True, exist_ok=True)
    np.savez_compressed(folder / "inspect_result.npz", **arrays)
