"""The demo's model and data, inside the package: a small digit classifier, and the digits.

The images are scikit-learn's copy of "Optical Recognition of Handwritten Digits" (E. Alpaydin and
C. Kaynak, UCI Machine Learning Repository, CC BY 4.0), 8x8 pixels in 17 grey levels. The first
1000, in the order of the file, are for training and calibration, the other 797 for evaluation. The
model has one op, `mix`, that INT8 spoils whatever range is chosen: see `tools/make_demo_model.py`.
"""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

_MODEL = "digits.onnx"
_DATA = "digits.npz"
_CALIBRATION = 1000
_WHITE = 16.0

Array = npt.NDArray[Any]


@dataclass(frozen=True, eq=False)
class DemoData:
    """Images are float32 [n, 1, 8, 8] in 0 to 1, labels int64 [n]."""

    calib_images: Array
    calib_labels: Array
    images: Array
    labels: Array


def demo_model_path() -> Path:
    """The FP32 ONNX file.

    >>> demo_model_path().name
    'digits.onnx'
    """
    return Path(str(files(__name__).joinpath(_MODEL)))


def demo_data() -> DemoData:
    """Calibration and evaluation digits.

    >>> demo_data().images.shape
    (797, 1, 8, 8)
    """
    with np.load(str(files(__name__).joinpath(_DATA)), allow_pickle=False) as stored:
        images = stored["images"].astype(np.float32)[:, None] / np.float32(_WHITE)
        labels = stored["labels"].astype(np.int64)
    return DemoData(
        calib_images=images[:_CALIBRATION],
        calib_labels=labels[:_CALIBRATION],
        images=images[_CALIBRATION:],
        labels=labels[_CALIBRATION:],
    )
