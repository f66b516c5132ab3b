"""One writer at a time, wherever it runs: leases that are held, released, expire and are lost."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from threading import Barrier, Thread

import pytest

pytest.importorskip("fsspec", reason="fsspec is not installed: pip install 'lpot[remote]'")

from lpot.core.errors import WorkspaceBusy, WorkspaceError
from lpot.jobs.storage import lease as leases
from lpot.jobs.storage.lease import Lease, is_held
from lpot.jobs.storage.segments import Segments, read_segments
from lpot.jobs.storage.store import ObjectStore
from patience import wait_until


@dataclass
class Clock:
    """Time that passes where somebody waits for it, and what others do meanwhile."""

    now: float = 1000.0
    meanwhile: Callable[[], object] = lambda: None

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        self.meanwhile()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    made = Clock()
    monkeypatch.setattr(leases, "time", made)
    monkeypatch.setattr(leases, "BEAT", 3600.0)  # no renewal but those of the test
    return made


@pytest.fixture
def store(request: pytest.FixtureRequest) -> ObjectStore:
    return ObjectStore(f"memory://{request.node.name}")


def elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "host", lambda: "another-machine")


def stop_renewing(lease: Lease) -> None:
    """As when a machine is cut off, or asleep."""
    lease._over.set()
    assert lease._thread is not None
    lease._thread.join()


def test_held_by_one(store: ObjectStore, clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    first = Lease(store)
    first.hold()
    clock.meanwhile = first._renew
    assert is_held(store)
    elsewhere(monkeypatch)
    with pytest.raises(WorkspaceBusy, match="process"):
        Lease(store).hold()
    first.check()
    first.release()
    assert not is_held(store)
    second = Lease(store)
    second.hold()
    assert second.generation == first.generation + 1
    second.release()


def test_of_many_one_succeeds(
    store: ObjectStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    start, outcomes, held = Barrier(8), [], []

    def wait(seconds: float) -> None:
        wait_until(lambda: held)
        held[0]._renew()

    monkeypatch.setattr(clock, "sleep", wait)

    def try_it() -> None:
        start.wait()
        lease = Lease(store)
        try:
            lease.hold()
            outcomes.append("held")
            held.append(lease)
        except WorkspaceBusy:
            outcomes.append("busy")

    threads = [Thread(target=try_it) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert outcomes.count("held") == 1 and len(outcomes) == 8
    held[0].release()


def test_one_that_is_not_renewed_ends(
    store: ObjectStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    asleep, told = Lease(store), []
    asleep.hold()
    stop_renewing(asleep)
    elsewhere(monkeypatch)
    awake = Lease(store, told.append)
    awake.hold()
    assert "waiting up to" in told[0]
    asleep._good_until = 0.0  # it wakes up, and looks before it writes
    with pytest.raises(WorkspaceError, match="another run has taken over"):
        asleep.check()
    awake.check()
    awake.release()


def test_a_holder_that_died_here_is_known_at_once(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead, told = Lease(store), []
    dead.hold()
    stop_renewing(dead)
    monkeypatch.setattr(leases, "_held", set())  # as in a process that has just started
    again = Lease(store, told.append)
    again.hold()
    assert not told
    again.release()


def test_a_store_whose_clock_was_set_back_is_not_waited_for(
    store: ObjectStore, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    dead = Lease(store)
    dead.hold()
    stop_renewing(dead)
    elsewhere(monkeypatch)
    now = ObjectStore.modified
    late = {"lease/00000001.beat": 3600.0}  # as written an hour from now
    monkeypatch.setattr(
        ObjectStore, "modified", lambda self, name: now(self, name) + late.get(name, 0.0)
    )
    start = clock.now
    again = Lease(store)
    again.hold()
    passed = clock.now - start
    assert leases.LASTS < passed <= leases.LASTS + leases.LOOK, "it had the time to renew"
    again.release()


def test_what_a_late_writer_writes_is_not_read(
    store: ObjectStore, clock: Clock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    journal = tmp_path / "history.jsonl"
    journal.write_bytes(b"one\n")
    late = Lease(store)
    late.hold()
    old = Segments(store, late)
    old.append(b"one\n", journal)
    stop_renewing(late)
    elsewhere(monkeypatch)
    lease = Lease(store)
    lease.hold()
    journal.write_bytes(b"one\ntwo\n")
    Segments(store, lease).append(b"two\n", journal)
    monkeypatch.setattr(Lease, "check", lambda self: None)  # it was past the check already
    old.append(b"late\n", journal)
    assert read_segments(store) == (b"one\ntwo\n", 0)
    lease.release()
