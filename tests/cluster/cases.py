"""A small search, and scores with faults that workers of a cluster can import."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import onnx

from lpot.core.results.result import Result
from lpot.jobs.tune.api import tune
from search import scoring

MOST = 5


def run(
    folder: Path | str, evaluate: Callable[[Any], Any], executor: Mapping[str, Any] | str
) -> Result:
    """All in INT8, then a batch of recipes that do not depend on each other."""
    torn = scoring.net()
    return tune(
        torn.model,
        torn.batches[:-1],
        evaluate,
        config={
            "tuning": {
                "accuracy_criterion": {"absolute": 0.1},
                "strategy": "mse",
                "executor": executor,
                "exit_policy": {"timeout": 600, "max_trials": MOST},
            }
        },
        workspace=folder,
        measure_speed=False,
    )


def recipes(result: Result) -> list[str]:
    return [trial.recipe.digest for trial in result.trials]


def logged(model: onnx.ModelProto, folder: str, seconds: float = 0.0) -> float:
    """Leaves a file for each evaluation: `begun-<n>` with the process, `ended-<n>` after it."""
    place = Path(folder)
    place.mkdir(exist_ok=True)
    mark = f"{time.time_ns()}-{os.getpid()}"
    is_worker = scoring.is_low(model)
    if is_worker:
        (place / f"begun-{mark}").write_text(str(os.getpid()))
        time.sleep(seconds)
    found = scoring.score(model)
    if is_worker:
        (place / f"ended-{mark}").touch()
    return found


def slow_once(model: onnx.ModelProto, folder: str) -> float:
    """The second evaluation hangs; made again elsewhere it does not."""
    place = Path(folder)
    place.mkdir(exist_ok=True)
    if scoring.is_low(model) and not scoring.is_all_low(model):
        mark = place / "slow"
        if not mark.exists():
            mark.touch()
            time.sleep(300)
    return scoring.score(model)


def begun(folder: Path) -> list[int]:
    """The processes that have begun evaluations, in their order."""
    files = sorted(folder.glob("begun-*")) if folder.exists() else []
    return [int(text) for file in files if (text := file.read_text())]


def main(folder: str, log: str, address: str = "") -> None:
    """A driver of its own, that can be killed."""
    on_ray = {"name": "ray", "workers": 2, "address": address}
    evaluate = partial(logged, folder=log, seconds=1.0)
    result = run(folder, evaluate, on_ray if address else "serial")
    print(len(result.trials), sum(trial.recalled for trial in result.trials))


if __name__ == "__main__":
    import sys

    main(*sys.argv[1:])
