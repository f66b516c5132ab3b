"""Archives that unpack to far more than they are."""

from __future__ import annotations

import gzip
import io
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pytest

from lpot.core.errors import DataError, HistoryError
from lpot.core.files import untrusted as archive
from lpot.core.files.store import load_observations
from lpot.core.files.untrusted import check_archive
from lpot.data import get_dataset


def packed(path: Path, size: int) -> Path:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as made:
        made.writestr("index.npy", bytes(size))
    return path


def test_a_bomb_is_refused_before_it_is_unpacked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bomb = packed(tmp_path / "observations-x.npz", 5 << 20)
    check_archive(bomb)  # small, whatever its ratio
    monkeypatch.setattr(archive, "LARGE", 1 << 20)
    with pytest.raises(ValueError, match="would unpack from"):
        check_archive(bomb)
    with pytest.raises(HistoryError, match=r"observations-x\.npz: damaged .*would unpack"):
        load_observations(bomb)


def test_what_is_no_bomb_passes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(archive, "LARGE", 1 << 10)
    noise = np.random.default_rng(1).integers(0, 255, 1 << 16, np.uint8)
    np.savez_compressed(tmp_path / "a.npz", noise=noise)
    check_archive(tmp_path / "a.npz")
    (tmp_path / "b.npz").write_bytes(b"no archive at all")
    check_archive(tmp_path / "b.npz")


def test_streams_without_an_end_are_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """gz and tar do not say beforehand how much they hold."""
    monkeypatch.setattr(archive, "LARGEST_FILE", 1 << 20)
    for name in ("t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"):
        (tmp_path / f"{name}.gz").write_bytes(gzip.compress(bytes(2 << 20)))
    with pytest.raises(DataError, match=r"gz: can't be unpacked: .* more than 1 MiB"):
        get_dataset("MNIST", root=str(tmp_path), train=False)[0]
    with tarfile.open(tmp_path / "cifar-10-python.tar.gz", "w:gz") as made:
        member = tarfile.TarInfo("cifar-10-batches-py/test_batch")
        member.size = 2 << 20
        made.addfile(member, io.BytesIO(bytes(member.size)))
    with pytest.raises(DataError, match="more than 1 MiB"):
        get_dataset("CIFAR10", root=str(tmp_path), train=False)[0]


def test_an_archive_whose_end_is_damaged_is_told(tmp_path: Path) -> None:
    """zipfile raises on it where it should only say whether it is an archive."""
    place = packed(tmp_path / "net.keras", 100)
    raw = place.read_bytes()
    locator = b"PK\x06\x07" + (0).to_bytes(4, "little") + (0).to_bytes(8, "little")
    end = raw.rindex(b"PK\x05\x06")
    place.write_bytes(raw[:end] + locator + (9).to_bytes(4, "little") + raw[end:])
    with pytest.raises(ValueError, match="it is damaged: zipfiles that span multiple disks"):
        check_archive(place)
