"""Values written for processes of our own, never for a file that stays.

What is large in them (arrays, tensors, protos) is not pickled: it stays where it lies in memory and
travels as plain buffers beside a small pickle that says what they are (PEP 574).
"""

from __future__ import annotations

import importlib.util
import io
import pickle
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

DUMP_ERRORS = (
    pickle.PicklingError,
    TypeError,
    AttributeError,
    NotImplementedError,
    RuntimeError,
)
CHUNK = 64 << 20  # bytes of one object: what a node must have room for in its object store
Reduce = Callable[[Any], Any]  # as `reducer_override` of a pickler


def not_reduced(value: Any) -> Any:
    """For frameworks whose values need no help."""
    return NotImplemented


@dataclass(frozen=True)
class Shipment:
    """A value on its way: what it is, and its large parts as they lie in memory."""

    head: bytes
    parts: tuple[memoryview, ...] = ()

    @property
    def sizes(self) -> list[int]:
        return [part.nbytes for part in self.parts]

    def chunks(self) -> Iterator[np.ndarray]:
        """The parts, one after the other, in pieces of at most CHUNK bytes; small ones together."""
        small: list[np.ndarray] = []
        room = CHUNK
        for part in self.parts:
            left = np.frombuffer(part, np.uint8)
            while left.size:
                small.append(left[:room])
                left, room = left[room:], room - small[-1].size
                if not room:
                    yield small[0] if len(small) == 1 else np.concatenate(small)
                    small, room = [], CHUNK
        if small:
            yield np.concatenate(small)


def ship(value: Any, reduced: Reduce = not_reduced) -> Shipment:
    """Raises one of DUMP_ERRORS for what can't be sent. `reduced` knows a framework's values."""
    stream, parts = io.BytesIO(), list[pickle.PickleBuffer]()
    _pickler(reduced)(stream, protocol=5, buffer_callback=parts.append).dump(value)
    return Shipment(stream.getvalue(), tuple(part.raw() for part in parts))


def unship(head: bytes, sizes: Sequence[int], chunks: Iterable[Any]) -> Any:
    """The value, of our own parent process. Its buffers belong to it, and may be written to."""
    parts = [bytearray(size) for size in sizes]
    waiting = iter(chunks)
    rest = np.empty(0, np.uint8)
    for part in parts:
        done = 0
        while done < len(part):
            rest = rest if rest.size else np.frombuffer(next(waiting), np.uint8)
            taken = min(rest.size, len(part) - done)
            np.frombuffer(part, np.uint8)[done : done + taken] = rest[:taken]
            rest, done = rest[taken:], done + taken
    return pickle.loads(head, buffers=parts)


def dump(value: Any) -> bytes:
    """All in one. Raises one of DUMP_ERRORS for what can't be sent."""
    dumped: bytes = _module().dumps(value)
    return dumped


def _module() -> Any:
    # Functions of a notebook, and those inside others, need more than the standard library does.
    found = importlib.util.find_spec("cloudpickle")
    return pickle if found is None else importlib.import_module("cloudpickle")


def _pickler(reduced: Reduce) -> Any:
    base: Any = _module().Pickler

    class Shipper(base):  # type: ignore[misc]
        def reducer_override(self, value: Any) -> Any:
            for attempt in (reduced, _reduced):
                made = attempt(value)
                if made is not NotImplemented:
                    return made
            known = getattr(super(), "reducer_override", not_reduced)
            return known(value)

    return Shipper


def _reduced(value: Any) -> Any:
    """Protos of any framework, and files in memory, in which Keras packs its models."""
    if isinstance(value, io.BytesIO):
        return _file, (pickle.PickleBuffer(value.getbuffer()), value.tell())
    kind = type(value)
    if kind.__module__ != "builtins" and hasattr(kind, "FromString"):
        return _proto, (kind, pickle.PickleBuffer(value.SerializeToString()))
    return NotImplemented


def _file(raw: Any, position: int) -> io.BytesIO:
    made = io.BytesIO(raw)
    made.seek(position)
    return made


def _proto(kind: Any, raw: Any) -> Any:
    return kind.FromString(bytes(raw))
