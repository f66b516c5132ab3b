"""Tensors on their way to another process: their storages as plain buffers, shared ones once."""

from __future__ import annotations

from pickle import PickleBuffer
from typing import Any

import torch
from torch.storage import TypedStorage, UntypedStorage


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
