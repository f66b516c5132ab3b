"""A torch module whose weights are to be stored in few bits: as ONNX, which has the kernels."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from pathlib import Path
from typing import Any

from lpot.backends import detect, get_backend
from lpot.core.batch import Inputs, split
from lpot.core.errors import DataError
from lpot.jobs.tune.request import Request

TOLD = (
    "the module was exported to ONNX ({path}), whose runtime multiplies weights in few bits: "
    "`evaluate` gets an ONNX model, and so do you"
)


def is_module(source: Any) -> bool:
    return not isinstance(source, str | Path) and detect(source) == "pytorch"


def as_onnx(request: Request, folder: Path) -> Request:
    """The same request for the module as an ONNX file in this folder."""
    batch, request = _first_batch(request)
    path = folder / "model.onnx"
    request.listener.phase("exporting the module to ONNX")
    get_backend("pytorch").load(request.model).export(path, batch)
    request.listener.note(TOLD.format(path=path))
    return replace(request, model=path, backend=get_backend("onnx"))


def _first_batch(request: Request) -> tuple[Inputs, Request]:
    """One batch to run the module with; nothing is taken from a loader that can be read once."""
    if request.calib is None:
        raise DataError(
            "a torch module is exported to ONNX for `weight_only`, which runs it once: give calib, "
            "batches of its inputs"
        )
    batches = iter(request.calib)
    raw = next(batches, None)
    if raw is None:
        raise DataError("the calibration loader yields no batches")
    if batches is request.calib:
        request = replace(request, calib=chain([raw], batches))
    return split(raw, None).inputs, request
