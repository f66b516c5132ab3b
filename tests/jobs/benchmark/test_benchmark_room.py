"""Models that do not fit into memory side by side are timed all the same, one process at a time."""

from __future__ import annotations

from pathlib import Path

import pytest

from lpot.core.measure import rounds_needed
from lpot.core.results.benchmark import Settings
from lpot.jobs.benchmark import api as room
from lpot.jobs.benchmark.api import benchmark
from lpot.jobs.benchmark.contestant import Contestant

TOY = '''
import os, time
from pathlib import Path
from lpot.core.batch import InputSpec

def watcher(folder, seconds):
    """Takes so long by its own clock, and notes how many processes of its kind there are."""
    from lpot.core import measure
    now, folder = [0.0], Path(folder)
    measure.latency.__kwdefaults__["clock"] = lambda: now[0]
    (folder / f"{os.getpid()}.pid").touch()
    def call(feed):
        alive = [path for path in folder.glob("*.pid") if Path("/proc", path.stem).exists()]
        (folder / "alive").open("a").write(f"{len(alive)} ")
        now[0] += seconds
    return call, [InputSpec("x", "float32", (None, 2))]
'''
FEW = rounds_needed()


@pytest.fixture(autouse=True)
def toy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "modules"
    folder.mkdir()
    (folder / "lpot_room_toy.py").write_text(TOY)
    monkeypatch.syspath_prepend(str(folder))


def watchers(folder: Path) -> list[Contestant]:
    return [
        Contestant(
            "lpot_room_toy:watcher",
            "callable",
            label,
            arguments={"folder": str(folder), "seconds": seconds},
        )
        for label, seconds in (("slow", 0.02), ("fast", 0.001))
    ]


def alive(folder: Path) -> list[int]:
    return [int(word) for word in (folder / "alive").read_text().split()]


@pytest.mark.skipif(not Path("/proc/self").exists(), reason="counts processes in /proc")
@pytest.mark.parametrize(("free", "crowded"), [(1 << 20, True), (1 << 50, False), (0, False)])
def test_models_share_memory_or_take_turns_in_it(
    free: int, crowded: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(room, "available_memory", lambda: free)
    settings = Settings(warmup=1, rounds=FEW + 4, seconds=1.0, iteration=4 * FEW)
    result = benchmark(watchers(tmp_path), settings=settings)
    assert result.ok and result.models[1].comparison.verdict == "faster"
    assert result.models[1].comparison.ratio == pytest.approx(20)
    rounds = FEW if crowded else FEW + 4
    assert [len(model.timing.rounds) for model in result.models] == [rounds, rounds]
    assert result.settings.turns == rounds
    assert any("not enough memory" in note for note in result.notes) == crowded
    # Both are loaded at first; once the second was let in, one of them is there at a time.
    assert set(alive(tmp_path)[-2 * rounds :]) == ({1} if crowded else {2})
    # Two turns of one model that follow each other are those of one process.
    assert len(list(tmp_path.glob("*.pid"))) == (3 + FEW if crowded else 2)


def test_a_model_alone_has_all_the_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "available_memory", lambda: 1 << 20)
    result = benchmark(watchers(tmp_path)[:1], settings=Settings(warmup=1, rounds=9, iteration=9))
    assert len(result.models[0].timing.rounds) == 9 and len(list(tmp_path.glob("*.pid"))) == 1


def test_a_tuning_says_that_its_models_were_timed_one_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime")
    import lpot
    from lpot.demo import demo_data, demo_model_path

    monkeypatch.setattr(room, "available_memory", lambda: 1 << 20)
    batches = [demo_data().images[:8]]
    result = lpot.tune(
        demo_model_path(), batches, lambda model: 1.0, workspace=tmp_path, strategy="basic"
    )
    assert result.speed is not None and result.benchmark.settings.turns == FEW
    assert any(f"timed in fresh processes, in {FEW} rounds" in note for note in result.notes)
