"""Reads a pickle of plain values without running anything a forged file asks for.

Known are lists, dicts, tuples, texts, numbers and arrays of bytes. Every opcode is checked before
the first one is run; classes and functions are replaced by stand-ins of ours.
"""

from __future__ import annotations

import io
import pickle
import pickletools
from typing import Any, ClassVar

import numpy as np

from lpot.core.errors import DataError

# The opcodes of binary pickles of plain values; the text ones of protocol 0 are not needed.
OPCODES = frozenset(
    (
        *("PROTO", "FRAME", "STOP", "MARK", "POP", "NONE", "NEWTRUE", "NEWFALSE", "LONG1"),
        *("BININT", "BININT1", "BININT2", "BINFLOAT", "BINSTRING", "SHORT_BINSTRING"),
        *("BINUNICODE", "SHORT_BINUNICODE", "BINBYTES", "SHORT_BINBYTES"),
        *("EMPTY_LIST", "APPEND", "APPENDS", "EMPTY_DICT", "SETITEM", "SETITEMS"),
        *("EMPTY_TUPLE", "TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"),
        *("BINGET", "LONG_BINGET", "BINPUT", "LONG_BINPUT", "MEMOIZE"),
        *("GLOBAL", "STACK_GLOBAL", "REDUCE", "BUILD"),
    )
)
# A forged number here would make the reader reserve memory for as many objects.
MOST_MEMOS = 1_000_000


def load_plain(data: bytes, origin: str) -> Any:
    """The pickled value; anything but plain values is refused, naming `origin`."""
    try:
        for opcode, argument, place in pickletools.genops(data):
            if opcode.name not in OPCODES:
                raise pickle.UnpicklingError(f"{opcode.name} at byte {place} is refused")
            if opcode.name.endswith("PUT") and int(argument or 0) > MOST_MEMOS:
                raise pickle.UnpicklingError(f"{opcode.name} {argument} at byte {place} is refused")
        content = RestrictedUnpickler(io.BytesIO(data), encoding="bytes").load()
    except (
        *(pickle.UnpicklingError, EOFError, IndexError, KeyError, TypeError, ValueError),
        *(AttributeError, ImportError, OverflowError, MemoryError, RecursionError),
    ) as error:
        raise DataError(f"{origin}: is not a pickle of plain values: {error}") from error
    return _unwrap(content)


def _unwrap(content: Any) -> Any:
    """The arrays out of their stand-ins, at the top and inside a dict."""
    if isinstance(content, dict):
        return {key: _unwrap(value) for key, value in content.items()}
    return content.array if isinstance(content, _Array) else content


class _Array:
    """Stands in for numpy's array; takes bytes of uint8 and nothing else."""

    array: np.ndarray | None = None

    def __setstate__(self, state: Any) -> None:
        _, shape, dtype, fortran, data = state
        if not isinstance(dtype, _Type) or dtype.name != "u1" or not isinstance(data, bytes):
            raise pickle.UnpicklingError("an array that is not of bytes")
        flat = np.frombuffer(data, dtype=np.uint8)
        self.array = flat.reshape(shape, order="F" if fortran else "C")


class _Type:
    """Stands in for numpy's dtype."""

    def __init__(self, name: Any = "", *rest: Any) -> None:
        self.name = name.decode("latin1") if isinstance(name, bytes) else name

    def __setstate__(self, state: Any) -> None:
        return None


class _Reconstruct:
    """Stands in for numpy's function that makes an empty array to be filled."""

    __slots__ = ()

    def __call__(self, *arguments: Any) -> _Array:
        return _Array()


class _Encode:
    """Stands in for the way Python 3 writes bytes into an old pickle."""

    __slots__ = ()

    def __call__(self, text: Any, encoding: Any = "latin1") -> bytes:
        if not isinstance(text, str) or encoding not in ("latin1", b"latin1"):
            raise pickle.UnpicklingError("an encoding other than latin1")
        return text.encode("latin1")


class RestrictedUnpickler(pickle.Unpickler):
    """An unpickler that knows our stand-ins and no other class or function."""

    allowed: ClassVar[dict[tuple[str, str], Any]] = {
        ("numpy.core.multiarray", "_reconstruct"): _Reconstruct(),
        ("numpy._core.multiarray", "_reconstruct"): _Reconstruct(),
        ("numpy", "ndarray"): _Array,
        ("numpy", "dtype"): _Type,
        ("_codecs", "encode"): _Encode(),
    }

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self.allowed:
            return self.allowed[module, name]
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which is refused")

    def persistent_load(self, pid: Any) -> Any:
        raise pickle.UnpicklingError("it refers to an object outside of the file")
