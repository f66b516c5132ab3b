"""Writing a model as plain tensors and JSON, and making the same model from them again.

The folder also holds the original tool's yaml (see checkpoint.py), for scripts that look for it;
its weights file, which would hold all tensors once more, is made on request (`add_weights_file`).
"""

from __future__ import annotations

import importlib
import json
import logging
import secrets
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from pickle import PickleBuffer
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from torch.storage import TypedStorage, UntypedStorage

from lpot.backends.torch.describe import Described, describe, rebuild
from lpot.backends.torch.files.checkpoint import DAMAGE, write_configure, write_weights
from lpot.backends.torch.files.hub import guard_of, is_transformers, write_config
from lpot.backends.torch.files.load import empty_module
from lpot.backends.torch.model import TorchModel
from lpot.backends.torch.run import run
from lpot.core.batch import Inputs
from lpot.core.cpu import overflow_of
from lpot.core.errors import BackendUnavailable, SaveError, UnsupportedModel, WorkspaceError
from lpot.core.files.card import compare_card, read_card
from lpot.core.files.publish import drafting, publish
from lpot.core.files.untrusted import checked, read_json

if TYPE_CHECKING:
    from lpot.backends.torch import TorchBackend

logger = logging.getLogger(__name__)

WEIGHTS = "model.safetensors"
FACTS = "lpot.json"
ADVICE = (
    "tune again in the same workspace, which rebuilds it from history, or copy the folder again"
)


@dataclass(frozen=True)
class _Facts:
    """What lpot.json must look like."""

    format: int
    recipe: dict[str, Any] | None
    ops: dict[str, dict[str, Any]]
    parts: dict[str, dict[str, Any]]
    skipped: dict[str, str]
    folded: list[str]
    aliases: dict[str, str] = field(default_factory=dict)
    guard: str | None = None
    functions: dict[str, list[Any]] = field(default_factory=dict)
    example: list[tuple[str | None, str, list[int]]] | None = None


def save(model: TorchModel, path: Path) -> Path:
    """A folder: model.safetensors, lpot.json (how ops run), the original's best_configure.yaml, and
    transformers' config.json; the card lies beside it."""
    if path.is_file():
        raise WorkspaceError(f"{path} is a file: a torch model is saved as a folder")
    described = describe(model)
    try:
        with drafting(path, folder=True) as draft:
            write(described, model.native, draft)
            write_configure(described, model.recipe, draft)
            _verify(model, draft)
            publish(model, draft, path, WEIGHTS)
    except OSError as error:
        raise WorkspaceError(
            f"{path}: can't write the model ({error.strerror or error})"
        ) from error
    return path


def write(described: Described, native: nn.Module, folder: Path) -> None:
    """Weights and facts, which name each other: files of two saves are never taken for one model.

    The facts lie in the weights' file, too. It alone is the model, should the other be of another
    save because a process was killed between the two.
    """
    package, facts = _safetensors(), {**described.facts, "save": secrets.token_hex(8)}
    tensors = described.tensors
    if is_transformers(native):
        facts["guard"] = guard = guard_of(native)
        write_config(native, folder, guard)
        tensors = tensors if guard is None else {**tensors, guard: torch.empty(0)}
    told = json.dumps(facts)
    try:
        package.torch.save_file(tensors, folder / WEIGHTS, metadata={"format": "pt", "lpot": told})
    except package.SafetensorError as error:  # a full disk comes as one of its own errors
        raise WorkspaceError(f"{folder / WEIGHTS}: can't be written ({error})") from error
    (folder / FACTS).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")


def _verify(model: TorchModel, draft: Path) -> None:
    """Make the model again from what was written and compare outputs, bit for bit.

    Both are as new: a module may keep what it last saw in plain attributes, which no file has.
    """
    if model.probe is None or model.origin is None or model.remake is None:
        return
    inputs, remake, root = model.probe, model.remake, model.origin.root

    def same(outputs: Callable[[nn.Module, Inputs], list[np.ndarray]]) -> bool:
        saved = read(model.backend, draft, root).native
        expected, found = (outputs(one, inputs) for one in (remake(), saved))
        return len(expected) == len(found) and all(map(_equal, expected, found))

    if not same(run) and not same(_run_seeded):
        raise SaveError(
            "the saved model and the one in memory give different outputs, so it was not kept. "
            "Does its forward draw random numbers from a source other than torch, or keep what it "
            "saw outside of the module? If not, please report this with the model"
        )


def _run_seeded(native: nn.Module, inputs: Inputs) -> list[np.ndarray]:
    """A forward may draw random numbers (masked autoencoders do): the same ones each time here.

    The whole process gets these, so others are tried only where the first outputs differ.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return run(native, inputs)


def _equal(one: np.ndarray, other: np.ndarray) -> bool:
    return np.array_equal(one, other, equal_nan=one.dtype.kind == "f")


def restore(backend: TorchBackend, path: Path, module: nn.Module | None = None) -> TorchModel:
    """The model that `save` wrote; of `module` only the architecture matters."""
    if not (path / FACTS).is_file():
        raise UnsupportedModel(
            f"{path}: no {FACTS} in it, so it is not a torch model saved by lpot"
        )
    if module is None:
        if not (path / "config.json").is_file():
            name = _read_facts(path).get("class", "the model")
            raise UnsupportedModel(
                f"{path}: tensors alone don't say what to compute: give the architecture too, "
                f"restore(path, module) with a freshly made {name}"
            )
        module = empty_module(path)
    model = read(backend, path, module)
    model.comes_from(module)
    card = read_card(path)
    compare_card(card, path, backend.versions())
    model.met = card.get("met")
    if trouble := overflow_of(model.recipe, backend.worst_error):
        logger.warning("%s: %s", path, trouble)
    return model


def read(backend: TorchBackend, path: Path, module: nn.Module) -> TorchModel:
    tensors, inner = _read_weights(path / WEIGHTS)
    facts = _read_facts(path)
    checked(_Facts, facts, path / FACTS, ADVICE, UnsupportedModel)
    if inner is not None and inner.get("save") != facts.get("save"):
        logger.info(
            "%s: its description and %s are from different saves: the one in the weights is used",
            path,
            WEIGHTS,
        )
        facts = inner
    shape = checked(_Facts, facts, path / FACTS, ADVICE, UnsupportedModel)
    tensors.pop(shape.guard or "", None)
    missing = [name for name in shape.aliases.values() if name not in tensors]
    if missing:
        raise UnsupportedModel(f"{path / FACTS}: damaged (no tensor {missing[0]!r}): {ADVICE}")
    try:
        return rebuild(backend, Described(tensors, facts), module, str(path))
    except DAMAGE as error:
        raise UnsupportedModel(
            f"{path}: weights and description don't match each other or this architecture "
            f"({type(error).__name__}: {error}): {ADVICE}"
        ) from error


def _read_weights(path: Path) -> tuple[dict[str, Any], dict[str, Any] | None]:
    """Tensors, and the facts among them; None in files of older versions."""
    package = _safetensors()
    try:
        with package.safe_open(path, "pt") as file:
            told = (file.metadata() or {}).get("lpot")
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        facts = None if told is None else json.loads(told)
    except (OSError, ValueError, RecursionError, package.SafetensorError) as error:
        raise UnsupportedModel(f"{path}: not a safetensors file ({error}): {ADVICE}") from error
    if facts is not None and not isinstance(facts, dict):
        raise UnsupportedModel(f"{path}: its description is damaged: {ADVICE}")
    return tensors, facts


def add_weights_file(folder: Path) -> Path:
    """The original's best_model_weights.pt for a saved folder: the same tensors once more."""
    tensors, facts = _read_weights(folder / WEIGHTS)
    return write_weights(tensors, facts or _read_facts(folder), folder)


def _safetensors() -> Any:
    try:
        importlib.import_module("safetensors.torch")
        return importlib.import_module("safetensors")
    except ImportError as error:
        raise BackendUnavailable("pytorch", "safetensors", str(error)) from error


def _read_facts(path: Path) -> dict[str, Any]:
    facts = read_json(path / FACTS, ADVICE, UnsupportedModel)
    if not isinstance(facts, dict):
        raise UnsupportedModel(f"{path / FACTS}: expected a mapping: {ADVICE}")
    return facts


# -- Tensors on their way to another process: their storages as plain buffers, shared ones once.


def reduced(value: Any) -> Any:
    """As `reducer_override` of a pickler; by itself torch would pickle the bytes of each tensor."""
    if isinstance(value, TypedStorage):
        return _typed, (value._untyped_storage, value.dtype)
    if isinstance(value, UntypedStorage) and value.device.type == "cpu":
        view = torch.empty(0, dtype=torch.uint8).set_(value)
        return _untyped, (PickleBuffer(view.numpy()),)
    return NotImplemented


def _typed(storage: UntypedStorage, dtype: torch.dtype) -> TypedStorage:
    return TypedStorage(wrap_storage=storage, dtype=dtype, _internal=True)


def _untyped(raw: Any) -> UntypedStorage:
    if not memoryview(raw).nbytes:
        return UntypedStorage(0)
    return torch.frombuffer(raw, dtype=torch.uint8).untyped_storage()
