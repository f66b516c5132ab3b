"""lpot: from an FP32 model to the fastest low-precision one that holds your accuracy bar.

>>> import lpot
>>> lpot.__version__
'2.0.0'
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from lpot.on_import import install as _install
from lpot.version import VERSION as __version__

if TYPE_CHECKING:
    from lpot.benchmark import Benchmark as Benchmark
    from lpot.core.errors import LpotError as LpotError
    from lpot.core.evaluation.evaluate import takes_session as takes_session
    from lpot.core.evaluation.identity import evaluation as evaluation
    from lpot.core.goal import Goal as Goal
    from lpot.core.results.result import Result as Result
    from lpot.jobs.inspect_tensors import compare_tensors as compare_tensors
    from lpot.jobs.inspect_tensors import inspect_tensor as inspect_tensor
    from lpot.jobs.load import load as load
    from lpot.jobs.recover import recover as recover
    from lpot.jobs.tune.api import tune as tune
    from lpot.pruning import Pruning as Pruning
    from lpot.quantization import Quantization as Quantization

# name → where it lives; imported when first asked for, so that `import lpot` costs nothing
_PUBLIC = {
    "Benchmark": "lpot.benchmark",
    "Goal": "lpot.core.goal",
    "LpotError": "lpot.core.errors",
    "Pruning": "lpot.pruning",
    "Quantization": "lpot.quantization",
    "Result": "lpot.core.results.result",
    "compare_tensors": "lpot.jobs.inspect_tensors",
    "evaluation": "lpot.core.evaluation.identity",
    "inspect_tensor": "lpot.jobs.inspect_tensors",
    "load": "lpot.jobs.load",
    "recover": "lpot.jobs.recover",
    "takes_session": "lpot.core.evaluation.evaluate",
    "tune": "lpot.jobs.tune.api",
}

__all__ = ["__version__", *_PUBLIC]

_install()


def __getattr__(name: str) -> Any:
    if name in _PUBLIC:
        return getattr(import_module(_PUBLIC[name]), name)
    raise AttributeError(f"module 'lpot' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
