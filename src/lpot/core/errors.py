"""Every error that lpot raises on purpose.

    LpotError
    ├── ConfigError            a yaml key or argument: where, what was given, what is accepted
    ├── DataError              a loader, batch or dataset
    │   └── CalibrationError   calibration data or the pass over it
    ├── EvaluationError        eval_func or metric: what it returned or raised
    ├── TrainingError          q_func: what it did, returned or raised
    ├── UnsupportedModel       a model file or object that can't be served
    │   └── UnsupportedOp      one op that can't do what was asked
    ├── BackendUnavailable     a framework that is not installed: which package to install
    ├── WorkspaceError         disk, permissions, locks
    │   ├── WorkspaceBusy      another process owns the workspace
    │   └── SaveError          a model that does not come back from disk as it was written
    ├── HistoryError           a journal that can't be used
    └── NotAvailableYet        a name of the contract whose work is still to come

A message says what was given, what is accepted and what to do.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable


class LpotError(Exception):
    """Root of the tree: catch this to catch everything lpot raises on purpose."""


class ConfigError(LpotError):
    """A wrong configuration. `path` is the key's dotted path, `where` is file:line."""

    def __init__(self, message: str, path: str = "", where: str = "") -> None:
        self.path = path
        self.where = where
        super().__init__(": ".join(part for part in (where, path, message) if part))


class DataError(LpotError):
    """A loader, batch or dataset that can't be used as it is."""


class CalibrationError(DataError):
    """Calibration data, or the pass over it, went wrong."""


class EvaluationError(LpotError):
    """eval_func or metric raised or returned something that is not a score."""


class TrainingError(LpotError):
    """q_func raised, or what it left can't be quantized."""


class UnsupportedModel(LpotError):
    """A model file or object that can't be served."""


class UnsupportedOp(UnsupportedModel):
    """One op can't do what was asked of it."""

    def __init__(self, op: str, message: str) -> None:
        self.op = op
        super().__init__(f"op {op!r}: {message}")


class BackendUnavailable(LpotError):
    """A framework is not installed. `package` is what to install, by its own name."""

    def __init__(self, framework: str, package: str, detail: str = "") -> None:
        self.package = package
        tail = f" ({detail})" if detail else ""
        super().__init__(
            f"framework {framework!r} needs {package}, which can't be imported{tail}: "
            f"pip install {package}"
        )


class WorkspaceError(LpotError):
    """The workspace can't be written, is full, or is damaged."""


class WorkspaceBusy(WorkspaceError):
    """Another process owns the workspace."""


class SaveError(WorkspaceError):
    """A model that does not come back from disk as it was written; it was not kept."""


class HistoryError(LpotError):
    """A journal can't be read or does not hold what was asked for."""


class NotAvailableYet(LpotError):
    """A name of the contract whose work is still to come."""

    def __init__(self, name: str, instead: str = "") -> None:
        tail = f" {instead}" if instead else ""
        super().__init__(f"{name} is not available yet.{tail}")


def first_line(error: BaseException) -> str:
    """What an exception says without its further lines; its kind where it says nothing.

    >>> first_line(ValueError("no kernel\\nat line 3")), first_line(ValueError())
    ('no kernel', 'ValueError')
    """
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def nearest(word: str, known: Iterable[str], count: int = 3) -> list[str]:
    """The closest known words, best first.

    >>> nearest("exit_polcy", ["exit_policy", "objective"])
    ['exit_policy']
    >>> nearest("statik", ["post_training_static_quant", "quant_aware_training"])
    ['post_training_static_quant']
    >>> nearest("onnxruntime", ["onnx", "mxnet"])
    ['onnx']
    """
    names = list(known)
    lowered: dict[str, str] = {}
    for name in names:
        lowered.setdefault(name.lower(), name)
    found = difflib.get_close_matches(word.lower(), lowered, n=count, cutoff=0.6)
    found = found or _by_part(word.lower(), list(lowered))[:count]
    return [lowered[name] for name in found]


def _by_part(word: str, names: list[str]) -> list[str]:
    """Names of which a part is near, or with which the word begins."""
    longest = sorted((n for n in names if len(n) > 3 and word.startswith(n)), key=len, reverse=True)
    parts = [n for n in names if difflib.get_close_matches(word, n.split("_"), cutoff=0.75)]
    return longest or parts


def a_kind(value: object) -> str:
    """What something is, for an error message.

    >>> a_kind(3), a_kind([]), a_kind(None), a_kind(dict)
    ('an int', 'a list', 'None', 'the class dict')
    """
    if value is None:
        return "None"
    if isinstance(value, type):
        return f"the class {value.__name__}"
    name = type(value).__name__
    return f"{'an' if name[0].lower() in 'aeiou' else 'a'} {name}"


def did_you_mean(word: str, known: Iterable[str]) -> str:
    """A ready tail for an error message; empty when nothing is near.

    >>> did_you_mean("basik", ["basic", "random"])
    ", did you mean 'basic'?"
    """
    found = nearest(word, known)
    return f", did you mean {' or '.join(map(repr, found))}?" if found else ""
