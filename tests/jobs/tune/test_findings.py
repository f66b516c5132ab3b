"""What a run found out about its ops comes back as it was, or not at all."""

from __future__ import annotations

import math
from collections.abc import Mapping
from pathlib import Path

import pytest

import lpot
import onnx_models
from lpot.backends.onnx import OnnxBackend
from lpot.core.recipe import FP32, OpConfig, OpKey, Recipe, TensorConfig
from lpot.core.space import TuningSpace
from lpot.core.strategy import Proposals, StrategyContext, Tradeoff
from lpot.jobs.tune.job import Findings

CONV, DENSE = OpKey("conv", "Conv"), OpKey("dense", "MatMul")
INT8 = OpConfig(TensorConfig("uint8", "asym"), TensorConfig("int8", "sym", bits=8))
RECIPE = Recipe({CONV: INT8, DENSE: INT8})


def never() -> Mapping[OpKey, float]:
    raise AssertionError("it is known already")


def test_numbers_and_tradeoffs_come_back_to_the_last_digit(tmp_path: Path) -> None:
    numbers = {CONV: 1 / 3, DENSE: math.inf}
    tradeoffs = {CONV: (Tradeoff(FP32, 0.0, 0.7, 400), Tradeoff(INT8, 0.1, 0.3, 100, (0.2, 0.5)))}
    place = tmp_path / "findings.json"
    assert Findings(place).numbers("gains", RECIPE, lambda: numbers) == numbers
    assert Findings(place).tradeoffs(RECIPE, lambda: tradeoffs) == tradeoffs
    again = Findings(place)
    assert again.numbers("gains", RECIPE, never) == numbers
    assert again.tradeoffs(RECIPE, dict) == tradeoffs


def test_another_question_or_recipe_is_asked_anew(tmp_path: Path) -> None:
    findings = Findings(tmp_path / "findings.json")
    findings.numbers("gains", RECIPE, lambda: {CONV: 1.0})
    assert findings.numbers("rank", RECIPE, lambda: {CONV: 2.0}) == {CONV: 2.0}
    other = RECIPE.with_float([DENSE])
    assert findings.numbers("gains", other, lambda: {CONV: 3.0}) == {CONV: 3.0}


def test_nothing_known_is_no_finding(tmp_path: Path) -> None:
    findings = Findings(tmp_path / "findings.json")
    assert findings.numbers("gains", RECIPE, dict) == {}
    assert findings.numbers("gains", RECIPE, lambda: {CONV: 1.0}) == {CONV: 1.0}


@pytest.mark.parametrize("text", ("", "[]", '{"gains', '{"gains %s": [["conv", "Conv", "much"]]}'))
def test_a_damaged_file_is_asked_anew(tmp_path: Path, text: str) -> None:
    place = tmp_path / "findings.json"
    place.write_text(text.replace("%s", RECIPE.digest))
    assert Findings(place).numbers("gains", RECIPE, lambda: {CONV: 1.0}) == {CONV: 1.0}
    assert Findings(place).numbers("gains", RECIPE, never) == {CONV: 1.0}


def test_a_folder_that_can_not_be_written_is_no_failure(tmp_path: Path) -> None:
    findings = Findings(tmp_path / "missing" / "findings.json")
    assert findings.numbers("gains", RECIPE, lambda: {CONV: 1.0}) == {CONV: 1.0}


@pytest.mark.parametrize(("verb", "question"), [("rank", "ranking"), ("gains", "gains")])
def test_a_search_that_goes_on_measures_nothing_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: str, question: str
) -> None:
    model = onnx_models.mlp(layers=3)
    told = getattr(OnnxBackend, verb)
    measured, answers = [], []

    def counting(*given: object) -> dict[OpKey, float]:
        measured.append(verb)
        return dict(told(*given))

    def asking(space: TuningSpace, context: StrategyContext) -> Proposals:
        answers.append(getattr(context, question)())
        yield [space.default()]

    monkeypatch.setattr(OnnxBackend, verb, counting)
    for _ in range(2):
        lpot.tune(
            model,
            onnx_models.feeds(model),
            lambda given: 0.5 + 0.1 * len(given.graph.node),
            strategy=asking,
            really=True,  # a made-up score
            workspace=tmp_path / "run",
            measure_speed=False,
        )
    assert measured == [verb]
    assert answers[0] and answers[0] == answers[1]
