"""Whose scores are these? What an evaluation states, what is seen of it, and what it does."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("onnxruntime")

import lpot
import onnx_models
from lpot.core.errors import EvaluationError
from lpot.core.evaluation.identity import Identity, data_digest, of_function, values_digest
from lpot.core.evaluation.recheck import Known, compare, part_of
from lpot.core.evaluation.tally import MeanPieces
from lpot.core.files.history import History
from lpot.core.trial import Score

OPTIONS: dict[str, Any] = {"measure_speed": False, "progress": False, "goal": 0.1, "max_trials": 2}
MODEL = onnx_models.mlp(layers=1)
FEEDS = onnx_models.feeds(MODEL)


class Samples:
    """Right or wrong for each of so many samples, in batches; counts how many were evaluated."""

    def __init__(self, count: int, seed: int = 0, wrong: float = 0.1) -> None:
        self.right = np.random.default_rng(seed).random(count) >= wrong
        self.counter = Counter()

    def function(self) -> Callable[[Any], Any]:
        right, seen = self.right, self.counter

        def by_sample(model: Any) -> Any:
            for start in range(0, len(right), 100):
                seen.add(len(right[start : start + 100]))
                yield right[start : start + 100].astype(float)

        return by_sample

    def number(self) -> Callable[[Any], Any]:
        right, seen = self.right, self.counter

        def accuracy(model: Any) -> float:
            seen.add(len(right))
            return float(right.mean())

        return accuracy


class Counter:
    """Is the same value whatever it has counted."""

    digest = "counter"
    count = 0

    def add(self, number: int) -> None:
        self.count += number


def tuned(evaluate: Any, folder: Path, **options: Any) -> Any:
    return lpot.tune(MODEL, FEEDS, evaluate, workspace=folder, **{**OPTIONS, **options})


def said(result: Any) -> str:
    return "\n".join(result.notes)


# -- what a rerun costs, and what it finds --------------------------------------------------------


def test_a_fifth_of_the_samples_is_enough_where_all_that_is_seen_is_the_same(
    tmp_path: Path,
) -> None:
    data = Samples(10_000)
    first = tuned(data.function(), tmp_path)
    data.counter.count = 0
    again = tuned(data.function(), tmp_path)
    assert data.counter.count <= 0.3 * 10_000
    assert "scores as before in 2000 of 10000 samples" in said(again)
    assert (again.met, again.proven, again.interval) == (first.met, first.proven, first.interval)
    assert again.interval is not None and all(trial.recalled for trial in again.trials)


@pytest.mark.parametrize("kind", ["function", "number"])
def test_other_data_begin_anew_and_old_scores_are_kept(kind: str, tmp_path: Path) -> None:
    tuned(getattr(Samples(400), kind)(), tmp_path)
    old = (tmp_path / "history.jsonl").read_bytes()
    evaluate = getattr(Samples(900, seed=1), kind)()
    other = tuned(evaluate, tmp_path)
    fresh = tuned(evaluate, tmp_path / "fresh")
    assert "the search begins anew" in said(other)
    assert other.baseline.accuracy == fresh.baseline.accuracy
    assert (other.accuracy, other.interval) == (fresh.accuracy, fresh.interval)
    (aside,) = tmp_path.glob("history-*-other-evaluation.jsonl")
    assert aside.read_bytes() == old
    assert len(History.read(tmp_path / "history.jsonl").trials) == len(other.trials)


def test_data_that_only_grew_are_noticed(tmp_path: Path) -> None:
    tuned(Samples(1200).function(), tmp_path)
    longer = Samples(1500)
    longer.right[:1200] = Samples(1200).right
    assert "the search begins anew" in said(tuned(longer.function(), tmp_path))


def test_a_score_that_says_little_has_the_best_trial_evaluated_as_well(tmp_path: Path) -> None:
    """FP32 gets everything right on either data."""

    def judged(low: float) -> Callable[[Any], float]:
        return lambda model: 1.0 if len(model.graph.node) == len(MODEL.graph.node) else low

    tuned(judged(0.99), tmp_path)
    other = tuned(judged(0.95), tmp_path)
    assert "the search begins anew" in said(other)
    assert other.accuracy == 0.95
    assert "and trial 1 scores as before" in said(
        tuned(functools.partial(lambda low, model: judged(low)(model), 0.95), tmp_path)
    )


def test_noise_does_not_lose_a_history(tmp_path: Path) -> None:
    scores = iter([0.9, 0.9, 0.902, 0.899, 0.901, *[0.9] * 8])
    first = tuned(lambda model: next(scores), tmp_path, max_trials=1)
    again = tuned(lambda model: next(scores), tmp_path, max_trials=1)
    assert "within its own spread" in said(again)
    assert again.baseline.accuracy == first.baseline.accuracy == 0.9
    assert again.trials[0].recalled


def test_more_than_noise_is_a_change(tmp_path: Path) -> None:
    scores = iter([0.9, 0.9, 0.702, 0.699, 0.701, *[0.7] * 8])
    tuned(lambda model: next(scores), tmp_path, max_trials=1)
    again = tuned(lambda model: next(scores), tmp_path, max_trials=1)
    assert "more than its spread" in said(again)
    assert again.baseline.accuracy == 0.7


def test_one_that_states_what_it_is_is_not_evaluated_again(tmp_path: Path) -> None:
    data = Samples(300)
    named = lpot.evaluation(version="val-1")
    tuned(named(data.function()), tmp_path)
    data.counter.count = 0
    assert "the same by its own word (version val-1)" in said(
        tuned(named(data.function()), tmp_path)
    )
    assert data.counter.count == 0
    other = tuned(lpot.evaluation(version="val-2")(data.function()), tmp_path)
    assert "says that it is version val-2, and was version val-1" in said(other)
    assert not any(trial.recalled for trial in other.trials)


def test_history_can_be_trusted(tmp_path: Path) -> None:
    tuned(Samples(300).number(), tmp_path)
    trusted = tuned(Samples(300, seed=5).number(), tmp_path, trust_history=True)
    assert all(trial.recalled for trial in trusted.trials)
    assert "without a look at the evaluation" in said(trusted)


def test_a_loader_with_a_digest(tmp_path: Path) -> None:
    class Data:
        def __init__(self, seed: int, digest: str) -> None:
            random = np.random.default_rng(seed)
            self.digest = digest
            self.batches = [
                (random.normal(size=(20, 8)).astype("float32"), random.integers(0, 4, 20))
                for _ in range(3)
            ]
            self.reads = 0

        def __iter__(self) -> Any:
            self.reads += 1
            return iter(self.batches)

    def run(data: Data) -> Any:
        return tuned(None, tmp_path, eval_loader=data, metric="topk", goal=0.9, really=True)

    run(Data(0, "one"))
    known = Data(0, "one")
    assert "by its own word (data one" in said(run(known))
    assert known.reads == 0
    assert "the search begins anew" in said(run(Data(1, "two")))


def test_versions_are_texts() -> None:
    with pytest.raises(EvaluationError, match="expected a text"):
        lpot.evaluation(version="")


# -- values -----------------------------------------------------------------------------------


def test_values_that_functions_use_are_seen() -> None:
    def made(array: Any) -> Any:
        def score(model: Any) -> float:
            return float(np.mean(array))

        return score

    one, same, other = made(np.arange(3)), made(np.arange(3)), made(np.arange(4))
    assert of_function(one).looks_like(of_function(same))
    assert not of_function(one).looks_like(of_function(other))
    partial = functools.partial(lambda limit, model: limit, 3)
    assert not of_function(partial).looks_like(of_function(functools.partial(partial.func, 4)))


@pytest.mark.parametrize("value", [object(), iter([1]), (x for x in "ab")])
def test_what_can_not_be_seen_is_not_taken_for_the_same(value: Any) -> None:
    assert values_digest(value) is None
    assert not Identity("a").looks_like(Identity("a"))


def test_values_that_hold_themselves() -> None:
    ring: list[Any] = [1]
    ring.append(ring)
    assert values_digest(ring) is not None
    assert values_digest(list(range(100_000))) is None


# -- comparing ----------------------------------------------------------------------------------


def known(scores: list[float]) -> Known:
    found = MeanPieces(list(range(len(scores))), np.array(scores))
    return Known(Score(float(np.mean(scores)), samples=len(scores)), found)


def test_one_last_bit_in_ten_thousand_is_no_other_evaluation() -> None:
    before = known([1.0, 0.0] * 2500)
    after = known([*before.pieces.scores.tolist()])  # type: ignore[union-attr]
    after.pieces.scores[3] = 1.0  # type: ignore[union-attr, index]
    assert compare(before, lambda race: (after.score, after.pieces), None).same
    after.pieces.scores[:100] = 1.0  # type: ignore[union-attr, index]
    assert not compare(before, lambda race: (after.score, after.pieces), None).same


def test_how_many_are_enough() -> None:
    assert part_of(known([1.0, 0.0] * 5000)) == 2000
    assert part_of(known([1.0, 0.0] * 500)) is None
    assert part_of(known([1.0] * 10_000)) is None  # which says nothing


def test_scores_by_sample_come_back_from_a_history() -> None:
    for keys in ([3, 1, 2], [(0, 0), (0, 1), (1, 0)]):
        pieces = MeanPieces(keys, np.array([0.1, 0.2, 1 / 3]))
        raw = pieces.to_json()
        back = MeanPieces.from_json(raw)
        assert list(back.keys) == keys and back.scores.tolist() == pieces.scores.tolist()
    assert MeanPieces(["a"], np.array([1.0])).to_json() is None
    with pytest.raises(ValueError):
        MeanPieces.from_json({"keys": "AAAA", "scores": "AAAA"})


def test_training_data_count_and_what_counts_does_not() -> None:
    class Task:
        def __init__(self, data: Any) -> None:
            self.data, self.calls, self.log = data, 0, [0.5]

        def train(self, model: Any) -> None: ...

    task, other = Task(np.arange(3)), Task(np.arange(4))
    before = data_digest(task.train)
    task.calls, task.log = 7, [0.5, 0.4]
    assert data_digest(task.train) == before != data_digest(other.train)
