"""eval_func: plain, a generator, or with a limit; racing is exact for all of them."""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lpot.core.errors import EvaluationError
from lpot.core.evaluation.evaluate import FunctionEvaluator
from lpot.core.evaluation.race import Race
from lpot.core.evaluation.tally import Part, is_part, read_part
from lpot.core.goal import Goal

COUNT = 100


def model(right: int) -> Any:
    """Its first COUNT - right answers are wrong."""
    native = (np.arange(COUNT) >= COUNT - right).astype(np.float64)
    return SimpleNamespace(native=native, runner=None, recipe=None)


class Steps:
    """A generator eval_func that counts its batches and tells when it was closed."""

    def __init__(self, part: Callable[[np.ndarray], Any]) -> None:
        self.part = part
        self.given = 0
        self.closed = False

    def __call__(self, scores: np.ndarray) -> Iterator[Any]:
        try:
            for at in range(0, COUNT, 5):
                self.given += 1
                yield self.part(scores[at : at + 5])
        finally:
            self.closed = True


PARTS: dict[str, Callable[[np.ndarray], Any]] = {
    "sum and count": lambda scores: (scores.sum(), len(scores)),
    "scores": lambda scores: scores,
    "booleans": lambda scores: scores > 0.5,
    "ints": lambda scores: (int(scores.sum()), len(scores)),
}


@pytest.mark.parametrize("part", PARTS.values(), ids=PARTS)
def test_generator_is_raced(part: Callable[[np.ndarray], Any]) -> None:
    steps = Steps(part)
    evaluate = FunctionEvaluator(steps)
    baseline = evaluate(model(95))
    assert (baseline.accuracy, baseline.samples) == (0.95, COUNT)
    race = Race(Goal(absolute=0.1), baseline)
    steps.given, steps.closed = 0, False
    lost = evaluate(model(60), race)
    assert lost.bounds == (0.0, 0.8), "after 20 wrong ones 0.85 is out of reach"
    assert (lost.samples, steps.given) == (20, 4)
    assert steps.closed, "files and sessions of the generator are let go"
    assert evaluate(model(85), race).accuracy == 0.85, "on the bar: never given up"


def test_usual_bounds_count_only_after_a_whole_evaluation() -> None:
    """Gone on from history, FP32 is not evaluated again: nobody has seen its scores."""
    evaluate = FunctionEvaluator(Steps(PARTS["scores"]))
    race = Race(Goal(absolute=0.1), FunctionEvaluator(Steps(PARTS["scores"]))(model(95)))
    assert evaluate(model(60), race).samples == COUNT
    assert evaluate(model(60), race).samples == 20


def test_an_end_that_fp32_passes_is_given_up() -> None:
    doubled = FunctionEvaluator(Steps(lambda scores: scores * 2))
    race = Race(Goal(absolute=0.1), doubled(model(95)))
    assert doubled(model(60), race).samples == COUNT, "scores above 1: nothing is certain"
    loss = FunctionEvaluator(Steps(lambda scores: (1 - scores) * 5))
    race = Race(Goal(absolute=0.1, higher_is_better=False), loss(model(95)))
    lost = loss(model(60), race)
    assert lost.samples == 10, "a loss has no upper end, but it is not negative: 0.5 is over 0.35"
    assert lost.accuracy == 0.5


def test_declared_bounds() -> None:
    steps = Steps(lambda scores: scores * 100)
    steps.bounds = (0, 100)  # type: ignore[attr-defined]
    evaluate = FunctionEvaluator(steps)
    race = Race(Goal(relative=0.1), evaluate(model(95)))
    assert evaluate(model(60), race).samples == 15
    steps.bounds = (0, 1)  # type: ignore[attr-defined]
    with pytest.raises(EvaluationError, match="gave the score 100, but its bounds are 0 to 1"):
        FunctionEvaluator(steps)(model(95))
    for wrong in ((1, 0), 5, ("a", "b")):
        steps.bounds = wrong  # type: ignore[attr-defined]
        with pytest.raises(EvaluationError, match="bounds is"):
            FunctionEvaluator(steps)


class Limited:
    def __init__(self) -> None:
        self.limits: list[int | None] = []

    def __call__(self, scores: np.ndarray, limit: int | None = None) -> Any:
        self.limits.append(limit)
        return scores[:limit].sum(), len(scores[:limit])


def test_limit_is_looked_at_first_where_it_can_decide() -> None:
    function = Limited()
    evaluate = FunctionEvaluator(function)
    baseline = evaluate(model(95))
    race = Race(Goal(absolute=0.02), baseline)
    lost = evaluate(model(60), race)
    assert lost.raced_out and lost.samples == 16
    assert lost.bounds == (0.0, 0.84)
    assert evaluate(model(94), race).accuracy == 0.94
    assert function.limits == [None, 16, 16, None], "eight wrong ones lose it: a sixth is seen"


def test_a_dear_look_is_not_taken() -> None:
    function = Limited()
    evaluate = FunctionEvaluator(function)
    race = Race(Goal(absolute=0.02), evaluate(model(60)))
    assert evaluate(model(20), race).samples == COUNT
    assert function.limits == [None, None]


def test_limit_of_a_function_that_returns_a_plain_number_is_its_own() -> None:
    seen: list[int] = []

    def evaluate(scores: np.ndarray, limit: int = 50) -> float:
        seen.append(limit)
        return float(scores[:limit].mean())

    made = FunctionEvaluator(evaluate)
    baseline = made(model(95))
    assert baseline.samples is None
    made(model(60), Race(Goal(absolute=0.02), baseline))
    assert seen == [50, 50]


def test_limit_that_is_not_kept() -> None:
    def evaluate(scores: np.ndarray, limit: int | None = None) -> tuple[float, int]:
        return scores.sum(), len(scores)

    made = FunctionEvaluator(evaluate)
    race = Race(Goal(absolute=0.02), made(model(95)))
    with pytest.raises(EvaluationError, match="asked for the first 16 samples and scored 100"):
        made(model(60), race)


def test_a_generator_with_a_limit_needs_no_look() -> None:
    def evaluate(scores: np.ndarray, limit: int | None = None) -> Iterator[Any]:
        yield from Steps(PARTS["scores"])(scores)

    made = FunctionEvaluator(evaluate)
    race = Race(Goal(absolute=0.02), made(model(95)))
    assert made(model(60), race).samples == 10


def test_generator_that_also_returns() -> None:
    def evaluate(scores: np.ndarray) -> Any:
        yield scores
        return 0.5

    with pytest.raises(EvaluationError, match=r"yielded scores and also returned 0\.5"):
        FunctionEvaluator(evaluate)(model(95))


def test_generator_without_scores() -> None:
    def evaluate(scores: np.ndarray) -> Any:
        yield from ()

    with pytest.raises(EvaluationError, match="yielded no score"):
        FunctionEvaluator(evaluate)(model(95))


@pytest.mark.parametrize(
    "value",
    [0.5, None, "text", [1, 0], (1, 2, 3), (0.5,), (1, 0), (1, 2.5), np.zeros((2, 2)), {"a": 1}],
    ids=repr,
)
def test_what_is_no_part(value: Any) -> None:
    with pytest.raises(EvaluationError, match="expected \\(sum of scores, number of samples\\)"):
        read_part(value, "eval_func f")


def test_parts_may_be_tensors() -> None:
    torch = pytest.importorskip("torch")
    assert read_part((torch.tensor(3.0), torch.tensor(4)), "f") == Part(4, 3.0, 0.75, 0.75)
    assert read_part(torch.tensor([True, False]), "f") == Part(2, 1.0, 0.0, 1.0)
    assert not is_part(torch.tensor(0.5))


def test_nan_is_told() -> None:
    with pytest.raises(EvaluationError, match="finite"):
        read_part(np.array([0.5, np.nan]), "eval_func f")


def test_the_page_is_true(tmp_path: Path) -> None:
    """docs/evaluation.md: both functions tune to the same model, and stop bad ones early."""
    pytest.importorskip("onnxruntime")
    import lpot
    from lpot.demo import demo_data, demo_model_path

    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text("utf-8")
    blocks = re.findall(r"```python\n(.*?)```", page, flags=re.DOTALL)
    (block,) = [block for block in blocks if "yield" in block]
    names: dict[str, Any] = {}
    exec(compile(block, "evaluation.md", "exec"), names)
    images = demo_data().calib_images
    found = [
        lpot.tune(
            demo_model_path(),
            calib=[images[at : at + 50] for at in range(0, 500, 50)],
            evaluate=names[name],
            workspace=tmp_path / name,
            measure_speed=False,
        )
        for name in ("accuracy", "percent")
    ]
    for result in found:
        assert result.met is True
        raced = [one for one in result.trials if one.score is not None and one.score.raced_out]
        assert raced, "the demo's first model is far off"
        assert all(one.score.samples < result.baseline.samples for one in raced)
        assert any("out of reach" in note for note in result.notes)
    assert found[0].recipe == found[1].recipe
    assert found[0].accuracy * 100 == pytest.approx(found[1].accuracy)


@pytest.mark.parametrize("block", range(2))
def test_the_yaml_of_the_page_is_right(block: int) -> None:
    from ruamel.yaml import YAML

    from lpot.config import load

    page = (Path(__file__).parents[2] / "docs" / "evaluation.md").read_text("utf-8")
    text = re.findall(r"```yaml\n(.*?)```", page, flags=re.DOTALL)[block]
    section = load(YAML(typ="safe").load(io.StringIO(text))).evaluation.accuracy
    assert section.metric is not None or section.multi_metrics is not None
