"""Rounded weights on disk, one file each: a run that was killed goes on where it was."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import tempfile
import tokenize
import zipfile
import zlib
from pathlib import Path

import numpy as np

from lpot.backends.onnx.weight_only.emit import Stored
from lpot.core.files.draft import write_bytes
from lpot.core.files.untrusted import check_archive
from lpot.core.weight_only.grid import Format, Rounded
from lpot.core.weight_only.pack import pack_bits, unpack_bits

PACKED = (2, 4, 8)


class WeightStore:
    """Files by op and format. Without a folder of its own it uses one that goes with it."""

    def __init__(self, folder: Path | None = None) -> None:
        self._own = tempfile.TemporaryDirectory(prefix="lpot-weights-") if folder is None else None
        self.folder = Path(self._own.name) if self._own is not None else folder
        assert self.folder is not None
        self.folder.mkdir(parents=True, exist_ok=True)

    def has(self, op: str, word: str) -> bool:
        return self._path(op, word).is_file()

    def put(self, op: str, word: str, stored: Stored, loss: float) -> None:
        """`loss` is the squared error of the outputs that this rounding makes."""
        rounded = stored.rounded
        fmt = rounded.format
        arrays = {
            "codes": pack_bits(rounded.codes, fmt.bits) if fmt.bits in PACKED else rounded.codes,
            "columns": np.array(rounded.codes.shape[1]),
            "scales": rounded.scales,
            "facts": np.array([fmt.bits, fmt.group_size, fmt.symmetric, loss], np.float64),
        }
        if rounded.zeros is not None:
            arrays["zeros"] = rounded.zeros
        if stored.input_scales is not None:
            arrays["input_scales"] = stored.input_scales
        stream = io.BytesIO()
        np.savez(stream, **arrays)  # type: ignore[arg-type]
        write_bytes(self._path(op, word), stream.getvalue())

    def get(self, op: str, word: str) -> Stored:
        with np.load(self._path(op, word), allow_pickle=False) as found:
            bits, size, symmetric, _ = found["facts"]
            fmt = Format(int(bits), int(size), bool(symmetric))
            columns = int(found["columns"])
            packs = fmt.bits in PACKED
            codes = unpack_bits(found["codes"], fmt.bits, columns) if packs else found["codes"]
            zeros = found["zeros"] if "zeros" in found.files else None
            scales = found["input_scales"] if "input_scales" in found.files else None
            return Stored(Rounded(fmt, codes, found["scales"], zeros), scales)

    def loss(self, op: str, word: str) -> float:
        with np.load(self._path(op, word), allow_pickle=False) as found:
            return float(found["facts"][3])

    def put_error(self, op: str, word: str, error: float) -> None:
        """What this rounding does to the answer."""
        with self._errors.open("a", encoding="utf-8") as stream:
            stream.write(json.dumps([op, word, error]) + "\n")

    def errors(self) -> dict[tuple[str, str], float]:
        """By op and format; lines that were cut off are passed over."""
        found: dict[tuple[str, str], float] = {}
        with contextlib.suppress(OSError):
            for line in self._errors.read_text("utf-8").splitlines():
                with contextlib.suppress(ValueError, TypeError):
                    op, word, error = json.loads(line)
                    found[str(op), str(word)] = float(error)
        return found

    @property
    def _errors(self) -> Path:
        assert self.folder is not None
        return self.folder / "errors.jsonl"

    def drop_damaged(self) -> None:
        """Files that an earlier run, or a disk, left unreadable are made again."""
        for path in self.folder.glob("*.npz") if self.folder is not None else ():
            if not _is_whole(path):
                with contextlib.suppress(OSError):
                    path.unlink()

    def _path(self, op: str, word: str) -> Path:
        assert self.folder is not None
        key = hashlib.sha256(op.encode()).hexdigest()[:16]
        return self.folder / f"{key}-{word}.npz"


def _is_whole(path: Path) -> bool:
    """Are all its arrays there, as they were written?"""
    try:
        check_archive(path)
        with zipfile.ZipFile(path) as archive:  # every piece has a checksum
            if archive.testzip() is not None:
                return False
        with np.load(path, allow_pickle=False) as found:
            _, _, _, _ = found["facts"]
            rows, _ = found["codes"].shape
            return int(found["columns"]) > 0 and len(found["scales"]) == rows
    except (OSError, ValueError, KeyError, TypeError, EOFError, NotImplementedError):
        return False
    except (
        RuntimeError,
        zipfile.BadZipFile,
        zlib.error,
        tokenize.TokenError,
    ):  # encrypted, it says
        return False
