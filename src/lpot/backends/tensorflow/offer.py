"""What the same INT8 model would gain in ONNX Runtime: tried and timed, or not spoken of."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from lpot.backends.tensorflow.nodes import full_name
from lpot.backends.tensorflow.passes.feed_iterators import feed_iterators
from lpot.backends.tensorflow.run import feed
from lpot.core.cpu import give_back
from lpot.core.errors import LpotError
from lpot.core.measure import compare

if TYPE_CHECKING:
    from lpot.backends.tensorflow.model import TensorflowModel

logger = logging.getLogger(__name__)

NEEDS = ("tf2onnx", "onnxruntime")
LARGEST = 1 << 28  # bytes of a model that is converted just to see
TURNS, SECONDS = 8, 0.2
WORTH = 1.1  # how much faster it must be to be spoken of
FAR = 0.1  # relative error of outputs above which the two are not the same model


def offer(model: TensorflowModel) -> tuple[str, ...]:
    """By how much the ONNX export is faster here; nothing where it is not, or can't be made."""
    if model.drawn is None or model.probe is None or model.nbytes > LARGEST:
        return ()
    if any(find_spec(name) is None for name in NEEDS):
        return ()
    with tempfile.TemporaryDirectory(prefix="lpot-onnx-") as folder:
        try:
            ratio = _ratio(model, Path(folder) / "model.onnx")
        except (LpotError, RuntimeError, ValueError) as error:
            logger.info("the ONNX export is not offered: %s", error)
            return ()
        finally:
            model.close()
            give_back()  # what the conversion held
    if ratio is None:
        return ()
    return (
        "result.model.export_onnx('model.onnx') writes the same INT8 model for ONNX Runtime, where "
        f"it ran {ratio:.2f} times as fast as this one (measured here, in turns, on a calibration "
        "batch); `lpot benchmark` compares them thoroughly",
    )


def _ratio(model: TensorflowModel, path: Path) -> float | None:
    """How many times as fast it is; None where that is nothing, or not sure."""
    feeds = _feeds(model)
    give_back()  # converting holds the weights five times
    model.export_onnx(path)
    give_back()
    elsewhere = _opened(path, feeds)
    fetches = [full_name(name) for name in model.output_names]
    session, fed = model.engine, {tensor: value for tensor, value in feeds.values()}

    def here() -> list[Any]:
        return list(session.run(fetches, fed))

    for one, other in zip(here(), elsewhere(), strict=True):
        if one.dtype.kind == "f" and not _near(one, other):
            logger.info("the ONNX export gives different outputs: it is not offered")
            return None
    rounds: tuple[list[tuple[float, ...]], list[tuple[float, ...]]] = ([], [])
    for _ in range(TURNS):
        rounds[0].append(_timed(here))
        rounds[1].append(_timed(elsewhere))
    found = compare(*rounds)
    return found.ratio if found.verdict == "faster" and found.ratio > WORTH else None


def _feeds(model: TensorflowModel) -> dict[str, tuple[str, np.ndarray]]:
    """By input of the export: the tensor here that it stands for, and a batch of it."""
    assert model.probe is not None
    given = feed(model.inputs, model.probe)
    _, places = feed_iterators(model.net)
    if not places:
        return {name: (name, value) for name, value in given.items()}
    assert model.iterator is not None
    model.sess.run(model.iterator, given)
    read = model.sess.run(list(places.values()))
    return {
        full_name(name): (tensor, value)
        for (name, tensor), value in zip(places.items(), read, strict=True)
    }


def _opened(path: Path, feeds: dict[str, tuple[str, np.ndarray]]) -> Callable[[], list[Any]]:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = int(os.environ.get("LPOT_THREADS", "0"))
    options.log_severity_level = 4
    session = onnxruntime.InferenceSession(str(path), options, ["CPUExecutionProvider"])
    fed = {item.name: feeds[item.name][1] for item in session.get_inputs()}
    return lambda: list(session.run(None, fed))


def _near(one: np.ndarray, other: np.ndarray) -> bool:
    if one.shape != other.shape:
        return False
    exact = one.astype(np.float64)
    error = float(np.sqrt(((other - exact) ** 2).mean()))
    return error <= FAR * float(np.sqrt((exact**2).mean())) + 1e-6


def _timed(call: Callable[[], Any]) -> tuple[float, ...]:
    """Seconds of single runs, for a moment."""
    call()
    found: list[float] = []
    start = time.perf_counter()
    while time.perf_counter() - start < SECONDS or len(found) < 3:
        begun = time.perf_counter()
        call()
        found.append(time.perf_counter() - begun)
    return tuple(found)
