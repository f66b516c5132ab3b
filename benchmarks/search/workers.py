"""Two trials side by side against one after the other, one thread each: `python …/workers.py`."""

from __future__ import annotations

import os
import tempfile
import time
from functools import cache
from typing import Any

TRIALS = 12
os.environ["LPOT_THREADS"] = "1"  # before any session: the serial run has one thread as well

from race import Race, make_session, model_path  # noqa: E402

import lpot  # noqa: E402
from lpot.core.progress import Listener  # noqa: E402


@cache
def data() -> Race:
    return Race()


def score(model: Any) -> float:
    import onnxruntime as ort

    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    session = ort.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return data().score(session)


def seconds(executor: dict[str, Any]) -> tuple[float, list[str]]:
    """Of the batch of op-wise trials alone: baseline and ranking come before it in both."""
    began: list[float] = []

    class Clock(Listener):
        def begin(self, number: int, recipe: Any) -> None:
            began.append(time.perf_counter())

    with tempfile.TemporaryDirectory() as folder:
        result = lpot.tune(
            str(model_path("resnet20")),
            calib=[(batch,) for batch in data().calibration()],
            evaluate=score,
            config={
                "tuning": {
                    "accuracy_criterion": {"absolute": 0.0},
                    "strategy": "mse",
                    "executor": executor,
                    "exit_policy": {"timeout": 900, "max_trials": TRIALS},
                }
            },
            workspace=folder,
            measure_speed=False,
            listener=Clock(),
        )
        end = time.perf_counter()
    # The first trial, all in INT8, is no part of the batch.
    return end - began[1], [trial.recipe.digest for trial in result.trials]


def main() -> None:
    make_session(model_path("resnet20"))
    alone, first = seconds({"name": "serial"})
    beside, second = seconds({"name": "process", "workers": 2})
    print(f"serial {alone:.1f} s, two workers {beside:.1f} s: {beside / alone:.2f} of it")
    print("same recipes" if first == second else "OTHER RECIPES")


if __name__ == "__main__":
    main()
