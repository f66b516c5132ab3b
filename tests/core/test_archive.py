"""Archives that unpack to far more than they are."""

from __future__ import annotations

import zipfile
from pathlib import Path

import numpy as np
import pytest

from lpot.core import archive
from lpot.core.archive import check_archive
from lpot.core.errors import HistoryError
from lpot.core.store import load_observations


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
