"""The original tool's two files: best_configure.yaml and best_model_weights.pt.

The yaml is in its words (ops keyed by a `!!python/tuple` of name and type), with our facts under
`lpot`; the weights are a plain dict of tensors, read with `weights_only`.
"""

from __future__ import annotations

import copy
import io
import json
import pickle
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from lpot.backends.torch.describe import Described, rebuild
from lpot.backends.torch.files.legacy import translate
from lpot.backends.torch.model import TorchModel
from lpot.core.errors import UnsupportedModel, a_kind
from lpot.core.files.card import recipe_of
from lpot.core.files.draft import write_bytes
from lpot.core.files.untrusted import check_archive
from lpot.core.recipe import OpConfig, Recipe, TensorConfig

if TYPE_CHECKING:
    from lpot.backends.torch import TorchBackend

CONFIGURE = "best_configure.yaml"
WEIGHTS = "best_model_weights.pt"
MAX_YAML = 64 << 20
# What tensors and facts that do not fit can raise on their way through modules and kernels.
DAMAGE = (
    KeyError,
    TypeError,
    ValueError,
    IndexError,
    AttributeError,
    RuntimeError,
    AssertionError,
    ArithmeticError,
    MemoryError,
)
_TUPLE = "tag:yaml.org,2002:python/tuple"


def to_tune_cfg(recipe: Recipe) -> dict[str, Any]:
    """The recipe as the original's tune_cfg: {'op': {(name, type): {'activation', 'weight'}}}."""
    modes = {config.mode for config in recipe.ops.values() if not config.is_float}
    approach = "dynamic" if modes == {"dynamic"} else "static"
    return {
        "framework": "pytorch",
        "approach": f"post_training_{approach}_quant",
        "calib_sampling_size": recipe.samples,
        "op": {(key.name, key.kind): _op_cfg(config) for key, config in recipe.ops.items()},
    }


def _op_cfg(config: OpConfig) -> dict[str, Any]:
    raw = {"activation": _tensor_cfg(config.activation)}
    weight = config.weight if config.weight is not None else TensorConfig(config.activation.dtype)
    raw["weight"] = _tensor_cfg(weight)
    return raw


def _tensor_cfg(config: TensorConfig) -> dict[str, Any]:
    return {key: value for key, value in vars(config).items() if value is not None}


def write_configure(described: Described, recipe: Recipe | None, folder: Path) -> None:
    config: dict[str, Any] = {"framework": "pytorch", "op": {}}
    if recipe is not None:
        config = to_tune_cfg(recipe)
    lines = [f"{key}: {json.dumps(value)}" for key, value in config.items() if key != "op"]
    lines.append("op:" if config["op"] else "op: {}")
    # JSON is yaml: quoting is right for any name, and floats come back bit for bit.
    for (name, kind), value in config["op"].items():
        lines += [f"  ? !!python/tuple [{json.dumps(name)}, {json.dumps(kind)}]"]
        lines += [f"  : {json.dumps(value)}"]
    lines.append(f"lpot: {json.dumps(described.facts)}")
    (folder / CONFIGURE).write_text("\n".join(lines) + "\n", encoding="utf-8")


def write_weights(tensors: dict[str, torch.Tensor], facts: dict[str, Any], folder: Path) -> Path:
    """The original's weights file; with best_configure.yaml it is a model on its own."""
    if not (folder / CONFIGURE).is_file():
        write_configure(Described(tensors, facts), recipe_of(facts, folder), folder)
    raw = io.BytesIO()
    torch.save(tensors, raw)
    write_bytes(folder / WEIGHTS, raw.getvalue())
    return folder / WEIGHTS


def checkpoint_folder(given: Path) -> Path:
    """The folder itself, or the one inside a workspace."""
    inner = given / "checkpoint"
    if not given.is_dir():
        raise UnsupportedModel(f"{given}: no such folder; in a workspace it is named `checkpoint`")
    return inner if inner.is_dir() and not (given / CONFIGURE).is_file() else given


def read_checkpoint(backend: TorchBackend, folder: Path, module: nn.Module) -> TorchModel:
    """The model of a checkpoint folder, on the architecture of `module`."""
    config = read_configure(folder / CONFIGURE)
    tensors = _read_weights(folder / WEIGHTS)
    facts = config.get("lpot")
    if facts is None:
        described = _translated(tensors, config, module, folder)
    elif isinstance(facts, dict):
        described = Described(_only_tensors(tensors, folder / WEIGHTS), facts)
    else:
        raise UnsupportedModel(f"{folder / CONFIGURE}: the `lpot` section is damaged")
    try:
        return rebuild(backend, described, module, str(folder))
    except DAMAGE as error:
        raise UnsupportedModel(
            f"{folder}: its two files don't match each other or this architecture "
            f"({type(error).__name__}: {error})"
        ) from error


def _translated(
    tensors: dict[str, Any], config: dict[str, Any], module: nn.Module, folder: Path
) -> Described:
    architecture = _copied(module)
    try:
        return translate(tensors, config, architecture, str(folder))
    except DAMAGE as error:
        raise UnsupportedModel(
            f"{folder / CONFIGURE}: damaged, or for other weights ({type(error).__name__}: {error})"
        ) from error


def _copied(module: nn.Module) -> nn.Module:
    if not isinstance(module, nn.Module):
        raise UnsupportedModel(
            f"given {a_kind(module)} as the model, expected the nn.Module that was tuned: "
            "a checkpoint holds weights, not code"
        )
    return copy.deepcopy(module).float().eval()


def read_configure(path: Path) -> dict[str, Any]:
    """The yaml, with tuples as its only python objects; anything else in it is refused."""
    from ruamel.yaml import YAML, YAMLError

    if not path.is_file():
        raise UnsupportedModel(f"{path}: no such file")
    if path.stat().st_size > MAX_YAML:
        raise UnsupportedModel(
            f"{path}: larger than {MAX_YAML >> 20} MB, too large for a configuration"
        )
    yaml = YAML(typ="safe", pure=True)
    yaml.constructor.add_constructor(_TUPLE, _tuple)
    try:
        raw = yaml.load(io.StringIO(path.read_text("utf-8")))
    except (YAMLError, ValueError, TypeError, RecursionError) as error:
        raise UnsupportedModel(f"{path}: not a plain yaml file: {error}") from error
    if not isinstance(raw, dict):
        raise UnsupportedModel(f"{path}: expected a mapping")
    return dict(raw)


def _tuple(constructor: Any, node: Any) -> tuple[Any, ...]:
    return tuple(constructor.construct_sequence(node, deep=True))


def _read_weights(path: Path) -> dict[str, Any]:
    if not path.is_file():
        raise UnsupportedModel(f"{path}: no such file")
    try:
        check_archive(path)
        raw = torch.load(path, map_location="cpu", weights_only=True)
    except (pickle.UnpicklingError, EOFError, OSError, *DAMAGE) as error:
        named = re.search(r"GLOBAL (\S+)", str(error))
        lines = str(error).strip().splitlines() or [type(error).__name__]
        told = named.group(1) if named else lines[0]
        raise UnsupportedModel(
            f"{path}: refused: it is damaged, or holds more than tensors ({told})"
        ) from error
    if not isinstance(raw, dict) or not all(isinstance(name, str) for name in raw):
        raise UnsupportedModel(f"{path}: not a state dict")
    return raw


def _only_tensors(raw: dict[str, Any], path: Path) -> dict[str, torch.Tensor]:
    if not all(isinstance(value, torch.Tensor) for value in raw.values()):
        raise UnsupportedModel(f"{path}: holds something other than named tensors")
    return raw
