"""The names that frameworks go by: one list for configuration, metrics, data and backends."""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from lpot.core.backend import Approach, Backend

FRAMEWORKS = ("onnx", "pytorch", "tensorflow", "mxnet")
# Other names, the framework that serves each, and the approach that goes with it unless the user
# says otherwise.
ALIASES: Mapping[str, tuple[str, Approach | None]] = {
    "onnxrt_qlinearops": ("onnx", "static"),
    "onnxrt_integerops": ("onnx", "dynamic"),
    "onnxrt_qdq": ("onnx", "static"),
    "onnxrt_qoperator": ("onnx", "static"),
    "pytorch_fx": ("pytorch", None),
    "pytorch_ipex": ("pytorch", None),
    "torch": ("pytorch", None),
    "tensorflow_itex": ("tensorflow", None),
}
# Where a model may run besides its framework: each takes ONNX files.
RUNTIMES = ("onnxruntime", "openvino")
RUNTIME_GROUP = "lpot.runtimes"  # of the entry points by which other packages bring runtimes
NAMES = (*FRAMEWORKS, *ALIASES)
GROUP = "lpot.backends"  # of the entry points by which other packages bring frameworks
registered: dict[str, Backend] = {}  # what this process adds: see `backends.register`


def known() -> tuple[str, ...]:
    """Every name that can be given here."""
    plugged = (point.name for point in entry_points(group=GROUP))
    return tuple(dict.fromkeys((*NAMES, *registered, *plugged)))


def known_runtimes() -> tuple[str, ...]:
    """Every name that `runtime:` may say here, besides native and auto."""
    plugged = (point.name for point in entry_points(group=RUNTIME_GROUP))
    return tuple(dict.fromkeys((*RUNTIMES, *plugged)))


def family(name: str) -> str:
    """The framework behind a name.

    >>> family("pytorch_fx"), family("mxnet")
    ('pytorch', 'mxnet')
    """
    return ALIASES[name][0] if name in ALIASES else name
