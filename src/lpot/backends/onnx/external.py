"""Weights kept in files beside a model: found, checked, and never followed out of its folder."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper

from lpot.core.errors import UnsupportedModel

# What numpy has no dtype for; such tensors travel as they are.
OPAQUE = {
    getattr(TensorProto, name)
    for name in [
        "STRING",
        "BFLOAT16",
        "FLOAT8E4M3FN",
        "FLOAT8E4M3FNUZ",
        "FLOAT8E5M2",
        "FLOAT8E5M2FNUZ",
        "FLOAT8E8M0",
        "UINT4",
        "INT4",
        "FLOAT4E2M1",
        "UINT2",
        "INT2",
    ]
    if hasattr(TensorProto, name)
}


def embed(
    nodes: Iterable[onnx.NodeProto],
    folder: Path | None,
    what: str,
    tensors: Iterable[TensorProto] = (),
) -> None:
    """Bring in, after every check, what Constants and subgraphs keep in files: the runtime would
    look for it beside the process, not beside the model."""
    held = list(tensors)
    for node in nodes:
        for item in node.attribute:
            held += [item.t, *item.tensors]
            for below in (item.g, *item.graphs):
                embed(below.node, folder, what, below.initializer)
    for tensor in held:
        if tensor.data_location == TensorProto.EXTERNAL:
            fetch(tensor, folder, what)


def fetch(tensor: TensorProto, folder: Path | None, what: str) -> None:
    path, offset, length = external_file(tensor, folder, what)
    with path.open("rb") as stream:
        stream.seek(offset)
        tensor.raw_data = stream.read(length)
    del tensor.external_data[:]
    tensor.data_location = TensorProto.DEFAULT


def external_file(tensor: TensorProto, folder: Path | None, what: str) -> tuple[Path, int, int]:
    """Where an external tensor lies, after every check: no way out of the model's folder."""
    entry = {item.key: item.value for item in tensor.external_data}
    place = entry.get("location", "")
    name = f"{what}: external data of {tensor.name!r}"
    if folder is None:
        raise UnsupportedModel(
            f"{name} lies in {place!r}, but the model was given without a path: "
            "onnx.load(path) it with external data, or give the path"
        )
    relative = Path(place)
    if (
        not place
        or relative.is_absolute()
        or ".." in relative.parts
        or "\\" in place
        or "\0" in place
    ):
        raise UnsupportedModel(
            f"{name}: location {place!r} must be a relative path inside the folder"
        )
    base = folder.resolve()
    path = base / relative
    # Every part is checked, not only the last: a linked parent folder leads out as well.
    step = base
    for part in relative.parts:
        step = step / part
        if step.is_symlink():
            raise UnsupportedModel(
                f"{name}: {place!r} goes through a symbolic link, which is refused"
            )
    if not path.exists():
        raise UnsupportedModel(f"{name}: file {place!r} is missing beside the model")
    if not path.resolve().is_relative_to(base):
        raise UnsupportedModel(f"{name}: {place!r} leads out of the model's folder")
    status = path.stat()
    if not path.is_file() or status.st_nlink != 1:
        raise UnsupportedModel(f"{name}: {place!r} must be a regular file with one link")
    offset, length = _extent(entry, tensor, name)
    if offset < 0 or length < 0 or offset + length > status.st_size:
        raise UnsupportedModel(
            f"{name}: {length} bytes at offset {offset} do not fit into {place!r} "
            f"of {status.st_size} bytes"
        )
    return path, offset, length


def _extent(entry: dict[str, str], tensor: TensorProto, name: str) -> tuple[int, int]:
    try:
        offset = int(entry.get("offset") or 0)
        given = entry.get("length")
        length = None if given in (None, "") else int(given)
    except ValueError as error:
        raise UnsupportedModel(f"{name}: offset or length is not a number") from error
    if any(dim < 0 for dim in tensor.dims):
        raise UnsupportedModel(f"{name}: negative dimension")
    if tensor.data_type not in OPAQUE:
        count = 1
        for dim in tensor.dims:
            count *= dim
        needed = count * np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
        if length is not None and length != needed:
            raise UnsupportedModel(f"{name}: length {length}, but its shape needs {needed} bytes")
        length = needed
    if length is None:
        raise UnsupportedModel(f"{name}: no length given")
    return offset, length
