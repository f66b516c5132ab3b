"""Made-up scores, trials and results, for whatever draws them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from lpot.core.cpu import Cpu
from lpot.core.goal import Goal
from lpot.core.measure import Timing, compare
from lpot.core.model import Model
from lpot.core.recipe import FP32, OpConfig, OpKey, Recipe, TensorConfig
from lpot.core.results.benchmark import BenchmarkResult, Measured, Settings
from lpot.core.results.result import Result
from lpot.core.trial import Score, State, Trial

INT8 = OpConfig(TensorConfig("uint8", "asym"), TensorConfig("int8", "sym"))
KEYS = [OpKey(f"conv{index}", "Conv") for index in range(12)]
MakeTrial = Callable[..., Trial]
MakeResult = Callable[..., Result]


class Nothing(Model):
    """A model that is never looked at."""

    native = property(lambda self: None)  # type: ignore[assignment]
    input_names = property(lambda self: None)  # type: ignore[assignment]
    nbytes = property(lambda self: 0)  # type: ignore[assignment]

    def fingerprint(self) -> str:
        return ""


def recipe_of(floats: int) -> Recipe:
    return Recipe({key: FP32 if at < floats else INT8 for at, key in enumerate(KEYS)})


def make_trial(number: int, accuracy: float | None, floats: int = 0, **more: Any) -> Trial:
    recipe = recipe_of(floats)
    if accuracy is None:
        return Trial(number, recipe, State.FAILED, error="ValueError: no\nkernel", seconds=0.5)
    met = accuracy >= 0.891
    score = Score(accuracy, 1.0, size=1000)
    return Trial(number, recipe, State.DONE, score, met, seconds=2.0, **more)


@pytest.fixture
def trial() -> MakeTrial:
    return make_trial


@pytest.fixture
def measured() -> Callable[[float], BenchmarkResult]:
    """Two models, the second so many times as fast as the first."""

    def make(times: float) -> BenchmarkResult:
        rounds = [[0.010 * (1 + 0.001 * at)] * 3 for at in range(15)]
        other = [[sample / times for sample in turn] for turn in rounds]
        cpu = Cpu("a CPU", "x86_64", ("avx2",), 2, 2, 0, 0)
        models = (
            Measured("FP32", "onnx", Timing(tuple(map(tuple, rounds)), 4)),
            Measured(
                "best",
                "onnx",
                Timing(tuple(map(tuple, other)), 4),
                comparison=compare(rounds, other),
            ),
        )
        return BenchmarkResult(models, (), 4, Settings(), cpu, ("the machine was busy",))

    return make


@pytest.fixture
def result(measured: Callable[[float], BenchmarkResult], tmp_path: Path) -> MakeResult:
    """A result whose best trial scored `accuracy` against 0.9 under a bar of 1 %."""

    def make(accuracy: float | None = 0.895, times: float | None = 2.0, **more: Any) -> Result:
        best = None if accuracy is None else make_trial(2, accuracy, floats=11)
        trials = (make_trial(1, 0.5), *([] if best is None else [best]))
        bench = None if times is None else measured(times)
        found = None if bench is None else bench.models[1].comparison
        judged = {"faster": True, "slower": False}
        values: dict[str, Any] = {
            "model": Nothing(),
            "recipe": recipe_of(11),
            "goal": Goal(relative=0.01),
            "baseline": None if best is None else Score(0.9, 1.0),
            "best": best,
            "met": None if best is None else best.met,
            "trials": trials if best is not None else (),
            "stopped": "the bar is met",
            "speed": None if found is None else found.ratio,
            "faster": None if found is None else judged.get(found.verdict),
            "sizes": (4000, 1000),
            "precisions": {"fp32": 11, "int8": 1},
            "float_ops": tuple(key.name for key in KEYS[:11]),
            "notes": ("a note", "another"),
            "path": tmp_path / "best_model.onnx",
            "workspace": tmp_path,
            "benchmark": bench,
            "timed": found,
        }
        return Result(**{**values, **more})

    return make
