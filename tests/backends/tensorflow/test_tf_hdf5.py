"""HDF5 files of strangers: read for ever by their library, or leading elsewhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

h5py = pytest.importorskip("h5py")
pytest.importorskip("tensorflow")

from lpot.backends.tensorflow.reading import freeze_keras as hdf5  # noqa: E402
from lpot.core.errors import UnsupportedModel  # noqa: E402


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "net.h5"
    with h5py.File(place, "w") as file:
        file.attrs["names"] = ["dense", "relu"]
        file["layer/kernel"] = np.ones((4, 2), np.float32)
        file["layer/itself"] = file["layer"]
    return place


def test_a_sound_file_passes(path: Path) -> None:
    hdf5.check_hdf5(path)


def test_one_that_is_read_for_ever_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hdf5, "SECONDS", 2)
    raw = bytearray(path.read_bytes())
    size = raw.index(b"GCOL") + 24  # of the first object in the heap of texts
    raw[size : size + 8] = bytes(8)
    path.write_bytes(raw)
    with pytest.raises(
        UnsupportedModel, match=r"net\.h5: damaged, the HDF5 library .* hangs on it"
    ):
        hdf5.check_hdf5(path)


@pytest.mark.parametrize("kind", ("external", "soft", "data"))
def test_one_that_leads_out_of_itself_is_refused(path: Path, kind: str) -> None:
    secret = path.with_name("secret")
    secret.write_bytes(bytes(32))
    with h5py.File(path, "a") as file:
        if kind == "data":
            file.create_dataset("out", (8,), "f4", external=[(str(secret), 0, 32)])
        else:
            file["out"] = h5py.SoftLink("/layer") if kind == "soft" else h5py.ExternalLink("x", "/")
    with pytest.raises(UnsupportedModel, match=r"out (is a link|has its data in other files)"):
        hdf5.check_hdf5(path)


def test_a_bomb_is_refused(path: Path) -> None:
    with h5py.File(path, "a") as file:
        file.create_dataset("vast", (1 << 40,), "f4", chunks=(1 << 16,), compression="gzip")
    with pytest.raises(UnsupportedModel, match="vast would unpack to 4194304 MiB"):
        hdf5.check_hdf5(path)
