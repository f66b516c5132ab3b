"""A model's files reach each node once, whole, and without being pickled."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cluster.conftest import Nodes
from lpot.jobs.execute import parcel as parcels
from lpot.jobs.execute.parcel import Parcel


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def files(folder: Path) -> Path:
    folder.mkdir()
    (folder / "net.onnx").write_bytes(b"graph")
    (folder / "net.onnx.data").write_bytes(np.arange(1000, dtype=np.uint16).tobytes())
    (folder / "network.onnx").write_bytes(b"another model")
    (folder / "empty").touch()
    return folder / "net.onnx"


def elsewhere(parcel: Parcel) -> Parcel:
    """As another machine sees it, which has no such folder."""
    return replace(parcel, source=str(Path("/no/such/folder") / Path(parcel.source).name))


def test_nothing_is_sent_where_the_files_are(tmp_path: Path) -> None:
    parcel = Parcel.of(files(tmp_path / "m"))
    assert parcel is not None and parcel.is_here()
    assert parcel.unpack(iter(()), print) == parcel.source
    assert Parcel.of(object()) is None and Parcel.of("no-such-file.onnx") is None


@pytest.mark.parametrize("folder", [False, True], ids=["file", "folder"])
def test_pieces_arrive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, folder: bool) -> None:
    monkeypatch.setattr(parcels, "CHUNK", 300)
    path = files(tmp_path / "m")
    parcel = Parcel.of(path.parent if folder else path)
    assert parcel is not None
    names = {piece.name for piece in parcel.pieces}
    assert names == {"net.onnx", "net.onnx.data"} | ({"network.onnx", "empty"} if folder else set())
    told: list[str] = []
    place = Path(elsewhere(parcel).unpack(parcel.chunks(), told.append))
    root = place if folder else place.parent
    for piece in parcel.pieces:
        assert (root / piece.name).read_bytes() == (path.parent / piece.name).read_bytes()
    again = elsewhere(parcel).unpack(iter(()), told.append)  # needs nothing more
    assert again == str(place) and len(told) == 1


def test_what_was_changed_on_its_way_is_refused(tmp_path: Path) -> None:
    parcel = Parcel.of(files(tmp_path / "m"))
    assert parcel is not None
    bad = (np.zeros_like(chunk) for chunk in parcel.chunks())
    with pytest.raises(OSError, match="arrived corrupted"):
        elsewhere(parcel).unpack(bad, print)
    place = elsewhere(parcel).unpack(parcel.chunks(), print)
    assert Path(place).read_bytes() == b"graph"


def receive(parcel: Parcel, chunks: list[Any]) -> tuple[int, int]:
    """On a node: how often something was received here, and how large the file is."""
    import ray

    told: list[str] = []
    place = parcel.unpack((ray.get(chunk) for chunk in chunks), told.append)
    return len(told), Path(place).stat().st_size


@pytest.mark.slow
def test_a_large_model_goes_to_each_node_once(nodes: Nodes, tmp_path: Path) -> None:
    """Larger than the object stores of all nodes together."""
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install 'lpot[ray]'")
    size = 300 << 20
    path = tmp_path / "big.onnx"
    with path.open("wb") as stream:
        stream.truncate(size)
        stream.write(b"head")
    parcel = Parcel.of(path)
    assert parcel is not None
    second = nodes.add(2)
    assert second is not None
    ray.init(address=nodes.address, log_to_driver=False)
    try:
        import sys

        paths = ":".join(item for item in sys.path if item)
        chunks = [ray.put(chunk) for chunk in parcel.chunks()]
        ids = [node["NodeID"] for node in ray.nodes()]
        found = {}
        for node in ids:
            from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

            variables = {"PYTHONPATH": paths, "XDG_CACHE_HOME": str(tmp_path / node)}
            task = ray.remote(receive).options(
                num_cpus=0.1,
                runtime_env={"env_vars": variables},
                scheduling_strategy=NodeAffinitySchedulingStrategy(node, soft=False),
            )
            found[node] = [task.remote(elsewhere(parcel), chunks) for _ in range(3)]
        for node in ids:
            received = ray.get(found[node])
            assert sum(count for count, _ in received) == 1
            assert all(arrived == size for _, arrived in received)
    finally:
        ray.shutdown()
