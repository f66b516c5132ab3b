"""MNIST and Fashion-MNIST from the published idx files, or from Keras' npz."""

from __future__ import annotations

import gzip
import math
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from lpot.core.errors import DataError
from lpot.core.files.untrusted import check_archive, unpacked
from lpot.data.datasets.base import FilterFunction, LabelledImages, TransformFunction, check_labels
from lpot.data.files import existing_folder, not_found

IDX_BYTES = 8  # the idx code for unsigned bytes


class MNIST(LabelledImages):
    """Handwritten digits, 28x28, greyscale, 10 classes.

    Args:
        root: folder with the four idx files (packed or not), or with MNIST/, MNIST/raw/, mnist.npz.
        train: the training part instead of the test part.
        transform: applied to each (image, label).
        filter: keeps only samples for which it returns true.
        download: accepted for compatibility; nothing is downloaded.
    """

    folder = "MNIST"
    source = "Get the four files from https://ossci-datasets.s3.amazonaws.com/mnist/"

    def __init__(
        self,
        root: str,
        train: bool = False,
        transform: TransformFunction | None = None,
        filter: FilterFunction | None = None,
        download: bool = True,
    ) -> None:
        super().__init__(transform, filter)
        images, labels, origin = self._load(existing_folder(root), train, download)
        if images.ndim != 3 or labels.ndim != 1 or len(images) != len(labels):
            raise DataError(
                f"{origin}: images of shape {images.shape} and labels of shape {labels.shape}, "
                "expected (n, height, width) and (n,)"
            )
        if not len(labels):
            raise DataError(f"{origin}: holds no images")
        check_labels(labels.tolist(), 10, origin)
        self.images = images[..., np.newaxis]
        self.labels = labels.astype(np.int64)

    def _load(self, root: Path, train: bool, download: bool) -> tuple[np.ndarray, np.ndarray, str]:
        part = "train" if train else "t10k"
        names = (f"{part}-images-idx3-ubyte", f"{part}-labels-idx1-ubyte")
        for folder in (root, root / self.folder, root / self.folder / "raw"):
            found = [_either(folder, name) for name in names]
            if found[0] is not None and found[1] is not None:
                return read_idx(found[0], 3), read_idx(found[1], 1), str(found[1])
            packed = folder / f"{self.folder.lower()}.npz"
            if packed.is_file():
                return *_read_npz(packed, "train" if train else "test"), str(packed)
        raise not_found(
            self.folder,
            root,
            [f"{name}.gz" for name in names] + [f"{self.folder}/{name}.gz" for name in names],
            self.source,
            download,
        )


class FashionMNIST(MNIST):
    """Articles of clothing, 28x28, greyscale, 10 classes.

    Args:
        root: folder with the four idx files (packed or not), or with FashionMNIST/.
        train: the training part instead of the test part.
        transform: applied to each (image, label).
        filter: keeps only samples for which it returns true.
        download: accepted for compatibility; nothing is downloaded.
    """

    folder = "FashionMNIST"
    source = "Get the four files from https://github.com/zalandoresearch/fashion-mnist"


def _either(folder: Path, name: str) -> Path | None:
    return next((p for p in (folder / f"{name}.gz", folder / name) if p.is_file()), None)


def read_idx(path: Path, dimensions: int) -> np.ndarray:
    """An idx file of unsigned bytes: magic number, sizes, then the values."""
    try:
        with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as stream:
            data = unpacked(stream)
    except (OSError, EOFError, ValueError, zlib.error) as error:
        raise DataError(f"{path}: can't be unpacked: {error}") from error
    header = 4 + 4 * dimensions
    if len(data) < header or data[:4] != bytes([0, 0, IDX_BYTES, dimensions]):
        raise DataError(f"{path}: is not an idx file of bytes with {dimensions} dimension(s)")
    shape = [int(size) for size in np.frombuffer(data, ">u4", dimensions, 4)]
    if len(data) - header != math.prod(shape):
        raise DataError(
            f"{path}: has {len(data) - header} values, but its header says {math.prod(shape)}"
        )
    return np.frombuffer(data, np.uint8, offset=header).reshape(shape)


def _read_npz(path: Path, part: str) -> tuple[np.ndarray, np.ndarray]:
    try:
        check_archive(path)
        with np.load(path, allow_pickle=False) as content:
            return content[f"x_{part}"], content[f"y_{part}"]
    except (OSError, ValueError, KeyError, zipfile.BadZipFile, tokenize.TokenError) as error:
        raise DataError(f"{path}: should hold x_{part} and y_{part}: {error}") from error
