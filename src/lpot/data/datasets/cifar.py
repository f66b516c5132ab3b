"""CIFAR-10 and CIFAR-100 from their published files, python or binary version, packed or unpacked.

The python version is a pickle, read by `plain_pickle`, which can't run anything.
"""

from __future__ import annotations

import io
import pickle
import pickletools
import tarfile
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from lpot.core.errors import DataError, a_kind
from lpot.core.files.untrusted import unpacked
from lpot.data.datasets.base import FilterFunction, LabelledImages, TransformFunction, check_labels
from lpot.data.files import existing, existing_folder, not_found

PIXELS = 3 * 32 * 32


@dataclass(frozen=True)
class Edition:
    """How one version of the data lies on disk."""

    folder: str
    archive: str
    train: tuple[str, ...]
    test: tuple[str, ...]
    label_key: str = ""  # python version: the key of the labels
    label_bytes: int = 0  # binary version: label bytes before each image, the last one counts


CIFAR10_LAYOUTS = (
    Edition(
        "cifar-10-batches-py",
        "cifar-10-python.tar.gz",
        tuple(f"data_batch_{n}" for n in range(1, 6)),
        ("test_batch",),
        label_key="labels",
    ),
    Edition(
        "cifar-10-batches-bin",
        "cifar-10-binary.tar.gz",
        tuple(f"data_batch_{n}.bin" for n in range(1, 6)),
        ("test_batch.bin",),
        label_bytes=1,
    ),
)
CIFAR100_LAYOUTS = (
    Edition(
        "cifar-100-python",
        "cifar-100-python.tar.gz",
        ("train",),
        ("test",),
        label_key="fine_labels",
    ),
    Edition(
        "cifar-100-binary",
        "cifar-100-binary.tar.gz",
        ("train.bin",),
        ("test.bin",),
        label_bytes=2,
    ),
)


class CIFAR10(LabelledImages):
    """Small colour images in 10 classes, as published by Krizhevsky.

    Args:
        root: folder with cifar-10-batches-py, cifar-10-batches-bin or one of the tar.gz files.
        train: the training part instead of the test part.
        transform: applied to each (image, label).
        filter: keeps only samples for which it returns true.
        download: accepted for compatibility; nothing is downloaded.
    """

    classes = 10
    layouts = CIFAR10_LAYOUTS

    def __init__(
        self,
        root: str,
        train: bool = False,
        transform: TransformFunction | None = None,
        filter: FilterFunction | None = None,
        download: bool = True,
    ) -> None:
        super().__init__(transform, filter)
        parts = list(self._parts(self._folder(root), train, download))
        self.images = np.concatenate([images for images, _ in parts])
        self.labels = np.concatenate([labels for _, labels in parts])

    def _folder(self, root: str) -> Path:
        found = existing(root, "folder")
        if found.is_file() and found.name in [layout.archive for layout in self.layouts]:
            return found.parent  # the archive itself was named
        return existing_folder(found)

    def _parts(
        self, root: Path, train: bool, download: bool
    ) -> Iterator[tuple[np.ndarray, np.ndarray]]:
        for layout in self.layouts:
            names = layout.train if train else layout.test
            for origin, data in _files(root, layout, names):
                images, labels = _decode(data, layout, origin)
                check_labels(labels.tolist(), self.classes, origin)
                yield images, labels
            if _present(root, layout):
                return
        raise not_found(
            type(self).__name__,
            root,
            [item for layout in self.layouts for item in (f"{layout.folder}/", layout.archive)],
            "Get the archive from https://www.cs.toronto.edu/~kriz/cifar.html and put it there, "
            "packed or unpacked",
            download,
        )


class CIFAR100(CIFAR10):
    """Small colour images in 100 classes, as published by Krizhevsky.

    Args:
        root: folder with cifar-100-python, cifar-100-binary or one of the tar.gz files.
        train: the training part instead of the test part.
        transform: applied to each (image, label).
        filter: keeps only samples for which it returns true.
        download: accepted for compatibility; nothing is downloaded.
    """

    classes = 100
    layouts = CIFAR100_LAYOUTS


def _present(root: Path, layout: Edition) -> bool:
    return root.name == layout.folder or any(
        (root / item).exists() for item in (layout.folder, layout.archive)
    )


def _files(root: Path, layout: Edition, names: tuple[str, ...]) -> Iterator[tuple[str, bytes]]:
    """The wanted files' bytes: from the folder, or straight out of the archive.

    Nothing is unpacked to disk, so an archive's paths can't lead anywhere.
    """
    if not _present(root, layout):
        return
    folder = root if root.name == layout.folder else root / layout.folder
    if folder.is_dir():
        for name in names:
            path = folder / name
            if not path.is_file():
                raise DataError(f"{path}: missing; the folder should hold {', '.join(names)}")
            yield str(path), path.read_bytes()
        return
    archive = root / layout.archive
    try:
        with tarfile.open(archive) as packed:
            for name in names:
                member = packed.getmember(f"{layout.folder}/{name}")
                # A link could lead in circles; the published archive has none.
                stream = packed.extractfile(member) if member.isfile() else None
                if stream is None:
                    raise DataError(f"{archive}: {member.name} is not a file")
                with stream:
                    data = unpacked(stream)
                yield f"{archive}:{name}", data
    except (tarfile.TarError, KeyError, EOFError, OSError, ValueError, zlib.error) as error:
        said = str(error).partition("\n")[0]
        raise DataError(f"{archive}: can't be read as the published archive: {said}") from error


def _decode(data: bytes, layout: Edition, origin: str) -> tuple[np.ndarray, np.ndarray]:
    pixels, labels = (
        _from_pickle(data, layout.label_key, origin)
        if layout.label_key
        else _from_binary(data, layout.label_bytes, origin)
    )
    if len(pixels) != len(labels):
        raise DataError(f"{origin}: {len(pixels)} images but {len(labels)} labels")
    if not len(labels):
        raise DataError(f"{origin}: holds no images")
    images = pixels.reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1)
    return np.ascontiguousarray(images), labels


def _from_binary(data: bytes, label_bytes: int, origin: str) -> tuple[np.ndarray, np.ndarray]:
    row = label_bytes + PIXELS
    if not data or len(data) % row:
        raise DataError(f"{origin}: {len(data)} bytes is not a whole number of {row}-byte rows")
    rows = np.frombuffer(data, dtype=np.uint8).reshape(-1, row)
    return rows[:, label_bytes:], rows[:, label_bytes - 1].astype(np.int64)


def _from_pickle(data: bytes, label_key: str, origin: str) -> tuple[np.ndarray, np.ndarray]:
    content = load_plain(data, origin)
    if not isinstance(content, dict):
        raise DataError(f"{origin}: holds {a_kind(content)}, expected a dict")
    values = {k.decode("latin1") if isinstance(k, bytes) else k: v for k, v in content.items()}
    pixels, labels = values.get("data"), values.get(label_key)
    if not isinstance(pixels, np.ndarray) or pixels.ndim != 2 or pixels.shape[1] != PIXELS:
        raise DataError(f"{origin}: 'data' should be an array of rows of {PIXELS} bytes")
    if not isinstance(labels, list) or not all(type(item) is int for item in labels):
        raise DataError(f"{origin}: {label_key!r} should be a list of whole numbers")
    return pixels, np.asarray(labels, dtype=np.int64)


# -- Reads a pickle of plain values without running anything a forged file asks for.
#
# Known are lists, dicts, tuples, texts, numbers and arrays of bytes. Every opcode is checked
# before the first one is run; classes and functions are replaced by stand-ins of ours.


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
