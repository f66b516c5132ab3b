"""Trials in other processes: the same recipes, crashes that cost one trial, limits that hold."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("onnxruntime")

from lpot.core.errors import ConfigError, LpotError
from lpot.core.files.history import History
from lpot.core.results.result import Result
from lpot.core.trial import State
from lpot.jobs.execute.processes import Awake
from lpot.jobs.tune.api import tune
from patience import wait_until
from search import scoring


def run(
    folder: Path,
    evaluate: Callable[[Any], Any],
    executor: Mapping[str, Any] | str,
    measure_speed: bool = False,
    **tuning: Any,
) -> Result:
    torn = scoring.net()
    section = {
        "accuracy_criterion": {"absolute": 0.1},
        "strategy": "mse",
        "executor": executor,
        **tuning,
    }
    return tune(
        torn.model,
        torn.batches[:-1],
        evaluate,
        config={"tuning": section},
        workspace=folder,
        measure_speed=measure_speed,
    )


def recipes(result: Result) -> list[str]:
    return [trial.recipe.digest for trial in result.trials]


def test_the_same_trials_as_in_this_process(tmp_path: Path) -> None:
    here = run(tmp_path / "a", scoring.score, "serial")
    there = run(tmp_path / "b", scoring.score, "process")
    assert recipes(here) == recipes(there)
    assert [t.accuracy for t in here.trials] == [t.accuracy for t in there.trials]
    assert there.met and there.path is not None and there.path.exists()
    assert there.float_ops == here.float_ops == ("conv2",)


def test_side_by_side_propose_the_same(tmp_path: Path) -> None:
    limits = {"exit_policy": {"timeout": 300, "max_trials": 6}}
    here = run(tmp_path / "a", scoring.score, "serial", **limits)
    there = run(tmp_path / "b", scoring.score, {"name": "process", "workers": 2}, **limits)
    assert recipes(here) == recipes(there)
    assert there.float_ops == here.float_ops
    known = History.read(tmp_path / "b" / "history.jsonl")
    assert sorted(trial.number for trial in known.trials) == [1, 2, 3, 4, 5, 6]


def test_two_work_at_the_same_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LPOT_THREADS", raising=False)  # set in the children alone
    (tmp_path / "met").mkdir()
    evaluate = partial(scoring.meeting, folder=str(tmp_path / "met"))
    limits = {"exit_policy": {"timeout": 300, "max_trials": 4}}
    result = run(tmp_path / "w", evaluate, {"name": "process", "workers": 2}, **limits)
    assert all(trial.state is State.DONE for trial in result.trials)


def test_a_crash_costs_one_trial(tmp_path: Path) -> None:
    result = run(tmp_path, scoring.crashing, "process")
    first = result.trials[0]
    assert first.state is State.FAILED and "SIGSEGV" in (first.error or "")
    assert result.met and result.float_ops == ("conv2",)
    assert any("SIGSEGV" in note for note in result.notes)


def test_a_trial_that_hangs_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Time passes only while the one that hangs lives: no machine is too busy for the others."""
    mark = tmp_path / "mark"

    def look(clock: Awake) -> float:
        clock.seconds += mark.exists() and _runs(int(mark.read_text()))
        return clock.seconds

    monkeypatch.setattr(Awake, "look", look)
    evaluate = partial(scoring.hanging_with_a_mark, mark=str(mark))
    result = run(tmp_path / "w", evaluate, {"name": "process", "timeout": 3})
    assert "3 s" in (result.trials[0].error or "")
    assert result.met


def test_a_trial_that_takes_too_much_memory_is_ended(tmp_path: Path) -> None:
    if not Path("/proc/self/statm").exists():
        pytest.skip("this system does not tell what a process holds")
    result = run(tmp_path, scoring.greedy, {"name": "process", "memory": 600})
    assert "600 MiB" in (result.trials[0].error or "")
    assert result.met


def test_eval_func_may_start_processes_of_its_own(tmp_path: Path) -> None:
    result = run(tmp_path, scoring.with_processes, "process")
    assert [trial.error for trial in result.trials if trial.error] == []
    assert result.met


def test_a_process_that_dies_while_its_child_lives_is_noticed(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    evaluate = partial(scoring.dying_with_a_child, mark=str(mark))
    result = run(tmp_path / "w", evaluate, "process")
    assert "SIGKILL" in (result.trials[0].error or "")
    assert result.met
    child = int(mark.read_text())
    assert not _runs(child)  # it went with the process that had forked it


def test_sys_exit_in_a_process_is_a_failed_trial(tmp_path: Path) -> None:
    result = run(tmp_path, scoring.leaving, "process", exit_policy={"max_trials": 2})
    assert all("sys.exit(3)" in (trial.error or "") for trial in result.trials)


def test_a_process_ends_with_its_parent_in_the_middle_of_a_trial(tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    text = (
        "from functools import partial\nfrom pathlib import Path\nimport sys\n"
        "from jobs.execute.test_executor import run\nfrom search import scoring\n"
        "run(Path(sys.argv[1]), partial(scoring.sleeping, mark=sys.argv[2]), 'process')"
    )
    tests = Path(__file__).parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{tests}:{tests.parent / 'src'}"}
    parent = subprocess.Popen(
        [sys.executable, "-c", text, str(tmp_path / "w"), str(mark)], env=environment
    )
    wait_until(lambda: mark.exists() and mark.read_text(), parent)
    parent.kill()
    parent.wait()
    worker = int(mark.read_text())
    wait_until(lambda: not _runs(worker))


def _runs(pid: int) -> bool:
    """Zombies that nobody reaps here are not meant."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_what_can_not_be_sent_is_refused(tmp_path: Path) -> None:
    lock = __import__("threading").Lock()

    def unsendable(model: Any) -> float:
        with lock:
            return scoring.score(model)

    with pytest.raises(ConfigError, match="executor: serial"):
        run(tmp_path, unsendable, "process")


def test_a_process_that_can_not_load_tells_why(tmp_path: Path) -> None:
    torn = scoring.net()
    path = tmp_path / "net.onnx"
    path.write_bytes(torn.model.SerializeToString())

    def evaluate(model: Any) -> float:
        path.unlink(missing_ok=True)  # gone before the first child looks for it
        return scoring.score(model)

    config = {"tuning": {"accuracy_criterion": {"absolute": 0.1}, "executor": "process"}}
    with pytest.raises(LpotError, match="a trial process failed"):
        tune(
            str(path),
            torn.batches[:-1],
            evaluate,
            config=config,
            workspace=tmp_path / "w",
            measure_speed=False,
        )


def test_threads_are_shared_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LPOT_THREADS", raising=False)
    run(tmp_path, scoring.score, {"name": "process", "workers": 2})
    assert "LPOT_THREADS" not in os.environ


@pytest.mark.parametrize(
    "executor", ["serial", "process", {"name": "process", "workers": 2}], ids=str
)
def test_memory_is_measured_wherever_trials_are_made(
    tmp_path: Path, executor: Mapping[str, Any] | str
) -> None:
    limits = {"exit_policy": {"timeout": 300, "max_trials": 2}}
    result = run(tmp_path, scoring.score, executor, objective="footprint", **limits)
    assert result.baseline is not None and result.baseline.memory
    assert [bool(trial.score and trial.score.memory) for trial in result.trials] == [True, True]


@pytest.mark.parametrize(("workers", "timed"), [(1, True), (2, False)])
def test_time_is_measured_where_nothing_disturbs_it(
    tmp_path: Path, workers: int, timed: bool
) -> None:
    limits = {"exit_policy": {"timeout": 300, "max_trials": 2}}
    executor = {"name": "process", "workers": workers}
    result = run(tmp_path, scoring.score, executor, measure_speed=True, **limits)
    assert [bool(trial.score and trial.score.latency) for trial in result.trials] == [timed] * 2


@pytest.fixture(scope="module")
def cluster() -> Iterator[None]:
    ray = pytest.importorskip("ray")
    ray.init("local", num_cpus=2, include_dashboard=False, log_to_driver=False)
    yield
    ray.shutdown()


@pytest.mark.slow
@pytest.mark.usefixtures("cluster")
class TestRay:
    def test_the_same_trials_as_in_this_process(self, tmp_path: Path) -> None:
        here = run(tmp_path / "a", scoring.score, "serial")
        there = run(tmp_path / "b", scoring.score, "ray")
        assert recipes(here) == recipes(there)
        assert there.met and there.float_ops == here.float_ops

    def test_side_by_side_propose_the_same(self, tmp_path: Path) -> None:
        limits = {"exit_policy": {"timeout": 300, "max_trials": 4}}
        here = run(tmp_path / "a", scoring.score, "serial", **limits)
        there = run(tmp_path / "b", scoring.score, {"name": "ray", "workers": 2}, **limits)
        assert recipes(here) == recipes(there)

    def test_a_lost_workers_trial_is_repeated(self, tmp_path: Path) -> None:
        mark = tmp_path / "mark"
        result = run(tmp_path / "w", partial(scoring.leaving_a_mark, mark=str(mark)), "ray")
        assert mark.exists()
        assert result.trials[0].state is State.DONE

    def test_a_trial_that_always_kills_its_worker_fails(self, tmp_path: Path) -> None:
        result = run(tmp_path, scoring.crashing, "ray")
        assert result.trials[0].state is State.FAILED
        assert result.met and result.float_ops == ("conv2",)


@pytest.mark.slow
def test_a_cluster_that_is_gone_leaves_the_best_and_the_history(tmp_path: Path) -> None:
    pytest.importorskip("ray")
    if not Path("/proc/self/stat").exists():
        pytest.skip("this system does not tell whose child a process is")
    script = Path(__file__).with_name("ray_gone.py")
    paths = os.pathsep.join(path for path in sys.path if path)

    def call(executor: str) -> str:
        done = subprocess.run(
            [sys.executable, str(script), str(tmp_path), executor],
            env={**os.environ, "PYTHONPATH": paths},
            capture_output=True,
            text=True,
            check=True,
            timeout=300,
        )
        return done.stdout.strip().splitlines()[-1]

    assert call("ray").startswith("1 True the Ray cluster is gone")
    assert call("serial").startswith("4 True max_trials")
    known = History.read(tmp_path / "history.jsonl")
    assert [trial.state for trial in known.trials] == [State.DONE] * 4


def test_ray_that_is_missing_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ray", None)
    with pytest.raises(ConfigError, match="pip install ray"):
        run(tmp_path, scoring.score, "ray")
