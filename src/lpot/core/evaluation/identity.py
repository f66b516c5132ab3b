"""Which evaluation is this? What it says of itself, its source, and the values it is seen to use.

A score that is recalled must be one of the same evaluation. Where that is not stated, its source
and values only tell how much must be evaluated again before old scores are believed
(`core/evaluation/recheck.py`).
"""

from __future__ import annotations

import functools
import hashlib
import inspect
import sys
import types
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from typing import Any, TypeVar

import numpy as np

from lpot.core.batch import as_array
from lpot.core.errors import EvaluationError, LpotError

Function = TypeVar("Function", bound=Callable[..., Any])

_VERSION = "__lpot_version__"
DEEPEST = 6  # containers in containers, functions called by functions
SAMPLES = 16  # of a dataset are looked at
MOST = 20_000  # values, beyond which nobody looks
LARGEST = 1 << 28  # bytes of arrays that are read
PLAIN = (bool, int, float, complex, str, bytes, type(None), type(...), slice, range)


def evaluation(*, version: str | float) -> Callable[[Function], Function]:
    """Name an evaluation: as long as its version stays, its scores are recalled unchecked.

    Change the version whenever the data or the way of scoring changes: old scores are then kept as
    another evaluation's.

    >>> @evaluation(version="val-2026-03")
    ... def accuracy(model): ...
    """
    if isinstance(version, bool) or not isinstance(version, str | int | float) or version == "":
        raise EvaluationError(f"version is {version!r:.80}: expected a text, such as 'val-2'")

    def named(function: Function) -> Function:
        setattr(function, _VERSION, str(version))
        return function

    return named


@dataclass(frozen=True)
class Identity:
    """Two evaluations that state the same are one; others are known by what they do."""

    source: str | None = None  # digest of the source
    stated: str | None = None  # what it says of itself
    values: str | None = None  # digest of the values it uses; None where some can't be seen
    data: str | None = None  # digest of those arrays among them that can be seen

    def to_json(self) -> dict[str, str]:
        return {name: value for name, value in asdict(self).items() if value is not None}

    @classmethod
    def from_json(cls, raw: Any) -> Identity | None:
        """None for what an older version kept."""
        if not isinstance(raw, Mapping):
            return None
        found = {name: raw.get(name) for name in ("source", "stated", "values", "data")}
        return cls(**{name: value for name, value in found.items() if isinstance(value, str)})

    def differs_from(self, other: Identity) -> bool:
        """Does it use other arrays, whatever it comes to?"""
        return None not in (self.data, other.data) and self.data != other.data

    def looks_like(self, other: Identity) -> bool:
        """Is all that can be seen of both the same?"""
        seen = self.values is not None and self.values == other.values
        return seen and self.source is not None and self.source == other.source


def of_function(function: Callable[..., Any]) -> Identity:
    version = getattr(function, _VERSION, None)
    stated = None if version is None else f"version {version}"
    seen = _Digest().of(function)
    return Identity(source_hash(function), stated, seen, _arrays(function))


def of_loader(loader: Any, scoring: str, *others: Any) -> Identity:
    """Of data and what scores them; a loader, or its dataset, may have a `digest` of its own."""
    stated = stated_digest(loader)
    told = None if stated is None else f"data {stated}, {scoring}"
    source = hashlib.sha256(scoring.encode()).hexdigest()[:16]
    return Identity(source, told, _Digest().of(loader, *others), _arrays(loader))


def stated_digest(loader: Any) -> str | None:
    """What the data say of themselves: `digest`, a text or a method that gives one."""
    return _told(loader) or _told(getattr(loader, "dataset", None))


def _told(value: Any) -> str | None:
    found = getattr(value, "digest", None)
    try:
        found = found() if callable(found) else found
    except TypeError:  # of a class, or of another kind of digest
        return None
    return found if isinstance(found, str) and found else None


def values_digest(*values: Any) -> str | None:
    """Of arrays, numbers, texts and containers of them; None where some can't be seen."""
    return _Digest().of(*values)


def data_digest(*values: Any) -> str:
    """Of the arrays among the values, and of the arguments of functions; the rest is passed over:
    what counts or logs is another each time."""
    return _Digest(data_alone=True).of(*values) or ""


def _arrays(value: Any) -> str | None:
    return _Digest(data_alone=True, arrays_alone=True).of(value)


class _Unseen(Exception):
    """A value whose content nobody can tell."""


class _Digest:
    """Reads values in an order that does not depend on where they lie in memory."""

    def __init__(self, data_alone: bool = False, arrays_alone: bool = False) -> None:
        self._hash = hashlib.sha256()
        self._arrays_alone = arrays_alone
        self._data_alone = data_alone
        self._left = MOST
        self._bytes = LARGEST
        self._open: set[int] = set()  # objects that are being read: they may hold themselves

    def of(self, *values: Any) -> str | None:
        try:
            for value in values:
                self._take(value, 0)
        except (_Unseen, RecursionError):
            return None
        return self._hash.hexdigest()[:16]

    def _take(self, value: Any, depth: int, is_argument: bool = False) -> None:
        self._left -= 1
        if self._left < 0 or depth > DEEPEST:
            self._pass_over()
        elif isinstance(value, PLAIN):
            if self._data_alone and not is_argument:
                return
            self._say(f"{type(value).__name__} {value!r}")
        elif id(value) in self._open:
            self._say("itself")
        elif isinstance(value, types.ModuleType | type | types.BuiltinFunctionType | np.ufunc):
            self._say(str(getattr(value, "__qualname__", getattr(value, "__name__", ""))))
        else:
            self._open.add(id(value))
            self._take_object(value, depth)
            self._open.discard(id(value))

    def _take_object(self, value: Any, depth: int) -> None:
        self._say(type(value).__qualname__)
        told = _told(value)
        if told is not None:
            self._say(told)
        elif hasattr(value, "dtype") and hasattr(value, "shape"):
            self._take_array(value)
        elif isinstance(value, dict):
            for key, item in value.items():
                self._take(key, depth + 1)
                self._take(item, depth + 1)
        elif isinstance(value, list | tuple):
            self._say("" if self._data_alone else str(len(value)))
            for item in value:
                self._take(item, depth + 1)
        elif isinstance(value, set | frozenset):
            self._take(sorted(map(repr, value)), depth + 1)
        elif isinstance(value, functools.partial):
            for item in (value.func, *value.args, *value.keywords.values()):
                self._take(item, depth + 1, is_argument=True)
        elif isinstance(value, types.MethodType):
            self._take(value.__func__, depth + 1)
            self._take(value.__self__, depth + 1)
        elif isinstance(value, types.FunctionType):
            self._take_function(value, depth)
        elif hasattr(value, "dataset") and hasattr(value, "__iter__"):
            self._take_loader(value)
        elif callable(getattr(value, "state_dict", None)):
            self._take({} if self._data_alone else dict(value.state_dict()), depth + 1)
        elif isinstance(getattr(value, "__dict__", None), dict) and _is_plain(type(value)):
            self._take(vars(value), depth + 1)
        else:
            self._pass_over()

    def _pass_over(self) -> None:
        if not self._data_alone:
            raise _Unseen

    def _take_array(self, value: Any) -> None:
        try:
            array = as_array(value)
        except (ValueError, TypeError, RuntimeError, LpotError):
            return self._pass_over()
        self._bytes -= array.nbytes
        if array.dtype.hasobject or self._bytes < 0:
            return self._pass_over()
        self._hash.update(f"{array.dtype.str} {array.shape}".encode())
        self._hash.update(np.ascontiguousarray(array).tobytes())

    def _take_loader(self, loader: Any) -> None:
        """A few samples of its dataset; nothing where they come out otherwise each time."""
        dataset = loader.dataset
        try:
            count = len(dataset)
            places = sorted({count * at // SAMPLES for at in range(SAMPLES)} if count else ())
            self._say(f"{count} {getattr(loader, 'batch_size', None)}")
            found = [_Digest().of(*(dataset[at] for at in places)) for _ in range(2)]
        except (TypeError, LookupError, AttributeError, NotImplementedError):
            found = [None]
        if found[0] is None or found[0] != found[-1]:
            self._pass_over()
        elif found[0] is not None:
            self._hash.update(found[0].encode())

    def _take_function(self, function: types.FunctionType, depth: int) -> None:
        """Its code, and the values that it finds around itself."""
        if _is_library(function.__module__):
            self._say(f"{function.__module__}.{function.__qualname__}")
            return
        self._say(source_hash(function) or "")
        given = (function.__defaults__ or (), (function.__kwdefaults__ or {}).values())
        for item in (item for items in given for item in items):
            self._take(item, depth + 1, is_argument=True)
        for cell in function.__closure__ or ():
            try:
                self._take(cell.cell_contents, depth + 1, is_argument=True)
            except ValueError:  # not filled yet
                self._say("empty")
        for name in sorted(_names(function.__code__)):
            if name in function.__globals__:
                self._say(name)
                self._take(function.__globals__[name], depth + 1, is_argument=True)

    def _say(self, text: str) -> None:
        if self._arrays_alone:
            return
        self._hash.update(f"{text}\0".encode("utf-8", "backslashreplace"))


def _names(code: types.CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, types.CodeType):
            yield from _names(constant)


def _is_plain(kind: type) -> bool:
    """Does an object of this class show all that it has? One whose class is written in Python."""
    bases = [base for base in kind.__mro__ if base is not object]
    return not any("__slots__" in vars(base) or _is_library(base.__module__) for base in bases)


def _is_library(module: str | None) -> bool:
    """Is it of a package, or of Python itself, whose version is known?"""
    name = module or ""
    if name == "__main__" or name.partition(".")[0] == "lpot":
        return False
    found = sys.modules.get(name)
    path = getattr(found, "__file__", None) or ""
    return found is not None and (not path or "-packages" in path or "/lib/python" in path)


def source_hash(function: Callable[..., Any]) -> str | None:
    """Hash of a function's source, to notice that it changed between runs.

    Of a `functools.partial` the function inside counts, of a callable object its `__call__`.
    """
    target: Any = inspect.unwrap(function)
    while isinstance(target, functools.partial):
        target = inspect.unwrap(target.func)
    if not inspect.isroutine(target) and not inspect.isclass(target):
        target = type(target).__call__
    try:
        text = inspect.getsource(target)
    except (OSError, TypeError):
        code = getattr(target, "__code__", None)
        if code is None:
            return None
        # Constants tell `return 0.5` from `return 0.6`; inner code objects print their address.
        constants = [value for value in code.co_consts if not hasattr(value, "co_code")]
        text = f"{code.co_code.hex()}{code.co_names}{constants}"
    return hashlib.sha256(text.encode()).hexdigest()[:16]
