"""From what a user gives (a module, or a folder of transformers) to a private FP32 copy."""

from __future__ import annotations

import copy
import importlib
import logging
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import nn

from lpot.backends.torch.convert import has_fake_quant, without_fake_quant
from lpot.backends.torch.dtypes import copied, private
from lpot.backends.torch.files.exported import is_exported, layered
from lpot.backends.torch.kernels.codes import is_coded
from lpot.backends.torch.modules.base import LowModule
from lpot.backends.torch.prepare import Prepared
from lpot.core.blame import told
from lpot.core.errors import BackendUnavailable, UnsupportedModel, did_you_mean
from lpot.core.files.untrusted import read_json
from lpot.core.tune import guarded

logger = logging.getLogger(__name__)

Made = TypeVar("Made")
MOST_LAYERS, LARGEST_SIZE = 10_000, 1 << 27  # that a config may ask for

_TOOLS = {
    "torch.ao.nn.quantized": "torch.ao",
    "torch.ao.nn.intrinsic.quantized": "torch.ao",
    "torch.ao.nn.sparse.quantized": "torch.ao",
    "torchao.": "torchao",
    "bitsandbytes.": "bitsandbytes",
    "optimum.quanto": "quanto",
    "auto_gptq.": "GPTQ",
    "gptqmodel.": "GPTQ",
    "awq.": "AWQ",
}

_PARALLEL = (nn.DataParallel, nn.parallel.DistributedDataParallel)
_COPY_ERRORS = (
    RuntimeError,
    TypeError,
    ValueError,
    AttributeError,
    NotImplementedError,
    copy.Error,
)


def load_module(source: Any) -> Prepared:
    """Checked, copied, float32, in eval mode. The user's own module stays as it is."""
    if isinstance(source, str | os.PathLike):
        loaded = load_folder(Path(source))
        check_plain(loaded)
        return Prepared(private(loaded))
    module = _unwrap(source)
    _check(module)
    try:
        pristine = copied(module)
    except _COPY_ERRORS as error:
        raise UnsupportedModel(
            f"{type(module).__name__} can't be copied ({error}), but every trial works on a copy: "
            "remove what can't be copied from it"
        ) from error
    return Prepared(private(pristine), dict(module.named_parameters()))


def _unwrap(source: Any) -> nn.Module:
    if not isinstance(source, nn.Module) and not is_exported(source):
        raise UnsupportedModel(
            f"a {type(source).__module__}.{type(source).__qualname__} is not a torch model: "
            "give an nn.Module, or a folder with config.json and model.safetensors"
        )
    module: nn.Module = in_float(unwrapped(source))
    refuse_script(module)
    check_plain(module)
    return module


def refuse_script(module: Any) -> None:
    if isinstance(module, torch.jit.ScriptModule):
        raise UnsupportedModel(
            "the layers of a TorchScript module can't be replaced: give the nn.Module it was "
            "made from"
        )


def unwrapped(module: Any) -> Any:
    """What torch.compile wraps, whose kernels are made anew by whoever compiles the result; what
    is spread over processes or GPUs; an exported program as layers."""
    if is_exported(module):
        return layered(module)
    compiled = getattr(module, "_orig_mod", None)
    if isinstance(compiled, nn.Module):
        return unwrapped(compiled)
    if isinstance(module, _PARALLEL):
        return unwrapped(module.module)
    return module


def in_float(module: nn.Module) -> nn.Module:
    """What torch.ao prepared for training, as it was before."""
    if not has_fake_quant(module):
        return module
    logger.warning(
        "the model was prepared for training by torch.ao: its fake quantization is removed"
    )
    return without_fake_quant(module)


def check_plain(module: nn.Module) -> None:
    """Refuse what is already quantized, by whatever tool."""
    for name, part in module.named_modules():
        home = type(part).__module__
        by = next((tool for start, tool in _TOOLS.items() if home.startswith(start)), None)
        if type(part).__name__ in ("FloatFunctional", "FXFloatFunctional"):  # plain sums
            by = None
        if isinstance(part, LowModule):
            by = "lpot"
        if by is not None:
            raise UnsupportedModel(
                f"the model is already quantized, by {by} (first at {name or 'the model'!r}, a "
                f"{type(part).__name__}): give the FP32 model that it was made from"
            )
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if is_coded(tensor) or type(tensor).__module__.startswith("torchao."):
            raise UnsupportedModel(
                f"the model is already quantized: {name!r} is not a plain tensor; give the FP32 "
                "model"
            )


def _check(module: nn.Module) -> None:
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        if isinstance(tensor, nn.parameter.UninitializedTensorMixin):
            raise UnsupportedModel(f"{name!r} has no shape yet: run the model on one batch first")
        if tensor.device.type == "meta":
            raise UnsupportedModel(
                f"{name!r} has no values (it is on the device 'meta'): load the weights first, by "
                "model.to_empty(device='cpu') and model.load_state_dict(...)"
            )
        if tensor.device.type != "cpu":
            raise UnsupportedModel(
                f"{name!r} is on the device {str(tensor.device)!r}: INT8 runs on the CPU, "
                "call model.cpu() first"
            )


def load_folder(path: Path) -> nn.Module:
    """A model in the layout of save_pretrained: config.json and model.safetensors."""
    if not path.exists():
        raise UnsupportedModel(f"{path}: no such file or folder")
    if not (path / "config.json").is_file():
        raise UnsupportedModel(
            f"{path}: a torch model is given as an nn.Module (on the command line `module:name`, "
            "a function that makes it), or as a folder with config.json and model.safetensors; "
            "weights alone don't say what to compute"
        )
    module = empty_module(path)
    kind: Any = type(module)
    loaded: nn.Module = made_of(
        path, lambda: kind.from_pretrained(path, local_files_only=True, dtype=torch.float32)
    )
    return loaded


def empty_module(path: Path) -> nn.Module:
    """What config.json names, with fresh weights; only transformers' own classes are made."""
    try:
        transformers = importlib.import_module("transformers")
    except ImportError as error:
        raise BackendUnavailable("pytorch", "transformers", str(error)) from error
    raw = read_json(path / "config.json", "save the model again", UnsupportedModel)
    names = raw.get("architectures") if isinstance(raw, dict) else None
    names = names if isinstance(names, list) else []
    cls = getattr(transformers, str(names[0]), None) if names else None
    if not (isinstance(cls, type) and issubclass(cls, nn.Module)):
        given = names[0] if names else None
        hint = did_you_mean(str(given), dir(transformers)) if given else ""
        raise UnsupportedModel(
            f"{path / 'config.json'}: `architectures` names {given!r}, which is not a "
            f"transformers class{hint}: give the nn.Module instead of the folder"
        )
    check_sizes(raw, path)
    kind: Any = cls
    config = made_of(path, lambda: kind.config_class.from_pretrained(path, local_files_only=True))
    with torch.random.fork_rng():
        made: nn.Module = made_of(path, lambda: kind(config))
    return made


def check_sizes(config: Mapping[str, Any], path: Path) -> None:
    """A damaged number would have layers made until the memory is full."""
    for name, value in config.items():
        most = MOST_LAYERS if "layer" in name else LARGEST_SIZE
        if isinstance(value, int) and abs(value) > most:
            raise UnsupportedModel(f"{path / 'config.json'}: {name} is {value}: damaged?")


def made_of(path: Path, make: Callable[[], Made]) -> Made:
    """What transformers makes of a folder; it raises whatever a damaged config leads to."""
    made = guarded(make)
    if isinstance(made, Exception):
        raise UnsupportedModel(
            f"{path}: transformers can't load a model from it ({type(made).__name__}: "
            f"{told(made)}): save it again, or give the nn.Module"
        ) from made
    return made
