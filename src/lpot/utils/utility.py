"""Door: `lpot.utils.utility`, small functions that scripts of the original import."""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from types import ModuleType
from typing import Any, TypeVar, cast

import numpy as np
import numpy.typing as npt

from lpot.core.cpu import VNNI, probe
from lpot.core.errors import ConfigError, NotAvailableYet, did_you_mean
from lpot.core.framework import FRAMEWORKS, family
from lpot.jobs.decoder.scores import last_word, perplexity
from lpot.jobs.recover import get_tuning_history, recover

logger = logging.getLogger(__name__)
Call = TypeVar("Call", bound=Callable[..., Any])
BF16 = ("avx512_bf16", "amx_bf16", "bf16")


class LazyImport:
    """A module that is imported when something of it is first asked for.

    >>> LazyImport("json").dumps([1])
    '[1]'
    """

    def __init__(self, module_name: str) -> None:
        self.module_name = module_name
        self.module: ModuleType | None = None

    def __getattr__(self, name: str) -> Any:
        if self.module is None:
            self.module = importlib.import_module(self.module_name)
        return getattr(self.module, name)


class CpuInfo:
    """What the CPU at hand can do."""

    def __init__(self) -> None:
        cpu = probe()
        self.vnni = cpu.has(*VNNI)
        self.bf16 = cpu.has(*BF16)
        self.cores_per_socket = cpu.physical_cores


def Dequantize(data: Any, scale_info: tuple[float, float]) -> npt.NDArray[np.float32]:
    """Integers as the numbers they stand for; `scale_info` is (minimum, maximum).

    >>> Dequantize(np.array([-127, 127], np.int8), (-2.0, 2.0)).tolist()
    [-2.0, 2.0]
    """
    values = np.asarray(data)
    low, high = map(float, scale_info)
    if values.dtype == np.uint8:
        return (values * ((high - low) / 255.0) + low).astype(np.float32)
    return (values * (max(abs(low), abs(high)) / 127.0)).astype(np.float32)


def singleton(cls: type[Any]) -> Callable[..., Any]:
    """Class decorator: one object for the whole process, made at the first call."""
    made: list[Any] = []

    def instance(*args: Any, **kwargs: Any) -> Any:
        if not made:
            made.append(cls(*args, **kwargs))
        return made[0]

    return instance


@contextmanager
def time_limit(seconds: float) -> Iterator[None]:
    """The original raises in the main thread when the time is over; that can't be done safely."""
    if seconds:
        raise NotAvailableYet("time_limit", "Set `tuning.exit_policy.timeout` in the yaml.")
    yield


_BACKEND = ContextVar("_BACKEND", default="")


def set_backend(backend: str) -> None:
    """For `get_backend` alone: the framework belongs to each component, not to the process."""
    if family(backend) not in FRAMEWORKS:
        raise ConfigError(
            f"unknown framework {backend!r}{did_you_mean(str(backend), FRAMEWORKS)}; expected one "
            f"of {', '.join(FRAMEWORKS)}",
            "backend",
        )
    _BACKEND.set(backend)


def get_backend() -> str:
    """
    >>> set_backend("pytorch")
    >>> get_backend()
    'pytorch'
    """
    if not _BACKEND.get():
        raise ConfigError("no set_backend was called; a model tells its own: `model.framework`")
    return _BACKEND.get()


def compute_sparsity(tensor: npt.NDArray[Any]) -> tuple[int, int, int]:
    """Of an array: how many values it has, how many are zero, how many are not.

    >>> compute_sparsity(np.array([0, 3, 0]))
    (3, 2, 1)
    """
    dense = int(np.count_nonzero(tensor))
    return tensor.size, tensor.size - dense, dense


def dump_elapsed_time(customized_msg: str = "") -> Callable[[Call], Call]:
    """Decorator: the time that a call took goes to the log."""

    def decorated(func: Call) -> Call:
        @wraps(func)
        def timed(*args: Any, **kwargs: Any) -> Any:
            start = time.perf_counter()
            result = func(*args, **kwargs)
            spent = 1000 * (time.perf_counter() - start)
            logger.info("%s elapsed time: %.2f ms", customized_msg or func.__qualname__, spent)
            return result

        return cast(Call, timed)

    return decorated


# Inner functions of the original that have no place here, and what serves in their stead.
INNER = {
    "get_size": "`result.sizes` has the sizes of the models in bytes",
    "combine_histogram": "`result` and the report have the ranges that calibration found",
    "get_tensor_histogram": "`result` and the report have the ranges that calibration found",
    "get_all_fp32_data": "the report has the weights' statistics",
    "str2array": "`numpy.fromstring` reads such text",
    "print_table": "`rich.table.Table` prints tables",
    "Statistics": "`print(result)` shows which ops became what",
    "OpEntry": "`result.recipe.ops` has the ops and what they became",
    "CaptureOutputToFile": "`contextlib.redirect_stdout` writes what is printed to a file",
    "fault_tolerant_file": "`pathlib.Path.write_text` writes a file",
    "equal_dicts": "`==` compares dictionaries",
    "mse_metric_gap": "`lpot.core.ptq.distance.distance` compares outputs",
}


def __getattr__(name: str) -> Any:
    if name in INNER:
        raise ImportError(f"{name} was an inner function of LPOT 1.x: {INNER[name]}")
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "CpuInfo",
    "Dequantize",
    "LazyImport",
    "compute_sparsity",
    "dump_elapsed_time",
    "get_backend",
    "get_tuning_history",
    "last_word",
    "perplexity",
    "recover",
    "set_backend",
    "singleton",
    "time_limit",
]
