"""The peer: ONNX Runtime's own quantizer and calibrator, and plain sessions to time any file."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
from models import CACHE, Net
from onnxruntime.quantization import (
    CalibrationDataReader,
    CalibrationMethod,
    QuantFormat,
    QuantType,
    create_calibrator,
    quantize_dynamic,
    quantize_static,
)
from onnxruntime.quantization.shape_inference import quant_pre_process

from lpot.core.batch import InputSpec
from lpot.core.cpu import VNNI, probe

logger = logging.getLogger(__name__)

_DTYPES = {"tensor(float)": "float32", "tensor(int64)": "int64"}


def session(path: str) -> tuple[Callable[[Mapping[str, np.ndarray]], object], list[InputSpec]]:
    """A contestant: the file in a plain session; all are timed through the same few lines."""
    options = ort.SessionOptions()
    options.intra_op_num_threads = int(os.environ["LPOT_THREADS"])
    options.log_severity_level = 3
    made = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    specs = [
        InputSpec(node.name, _DTYPES[node.type], tuple(node.shape)) for node in made.get_inputs()
    ]
    return (lambda feed: made.run(None, dict(feed))), specs


class Reader(CalibrationDataReader):  # type: ignore[misc]
    """Samples in the form the peer asks for."""

    def __init__(self, feeds: Iterator[dict[str, np.ndarray]]) -> None:
        self._feeds = feeds

    def get_next(self) -> dict[str, np.ndarray] | None:
        return next(self._feeds, None)


def prepared(net: Net) -> Path:
    """The net after the peer's own preparation."""
    path = CACHE / f"{net.name}.prepared.onnx"
    if not path.exists():
        logger.info("preparing %s", net.name)
        quant_pre_process(str(net.path), str(path), skip_symbolic_shape=True)
    return path


def quantized(net: Net) -> Path:
    """The peer's best for this net: static QDQ per channel, or dynamic for text."""
    reduce_range = not probe().has(*VNNI)
    word = "dynamic" if net.is_text else "static"
    path = CACHE / f"{net.name}.peer-{word}{'-7bit' if reduce_range else ''}.onnx"
    if path.exists():
        return path
    source = prepared(net)
    logger.info("the peer quantizes %s", net.name)
    common: dict[str, Any] = {
        "per_channel": True,
        "reduce_range": reduce_range,
        "weight_type": QuantType.QInt8,
    }
    partial = path.with_suffix(".part.onnx")
    if net.is_text:
        quantize_dynamic(str(source), str(partial), **common)
    else:
        quantize_static(
            str(source),
            str(partial),
            Reader(net.feeds(20)),
            quant_format=QuantFormat.QDQ,
            activation_type=QuantType.QUInt8,
            calibrate_method=CalibrationMethod.MinMax,
            **common,
        )
    partial.rename(path)
    return path


def calibrate(net: Net, samples: int, folder: Path) -> int:
    """The peer's percentile calibration; the number of ranges found."""
    calibrator = create_calibrator(
        str(prepared(net)),
        augmented_model_path=str(folder / "augmented.onnx"),
        calibrate_method=CalibrationMethod.Percentile,
    )
    calibrator.collect_data(Reader(net.feeds(samples)))
    return len(calibrator.compute_data().data)
