"""Hard samples come first, each with its own label, and the score stays what it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from lpot.core.evaluation.evaluate import MetricEvaluator
from lpot.core.evaluation.race import Race
from lpot.core.goal import Goal
from lpot.core.recipe import OpConfig, OpKey, Recipe, TensorConfig
from lpot.data import DataLoader
from lpot.data.postprocess import LabelShift, as_postprocess
from lpot.metric import get_metric

COUNT = 60
RNG = np.random.default_rng(3)
LABELS = RNG.integers(0, 4, COUNT)
# What FP32 says: right but for every tenth sample, some of them narrowly.
SCORES = np.eye(4)[np.where(np.arange(COUNT) % 10 == 7, (LABELS + 1) % 4, LABELS)]
SCORES = (SCORES * RNG.uniform(0.01, 5, COUNT)[:, None]).astype(np.float32)


class Samples:
    """Sample n is the number n; its label is LABELS[n]."""

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, number: int) -> tuple[np.ndarray, int]:
        return np.asarray([number], dtype=np.float32), int(LABELS[number])


class Looker:
    """A backend and a model in one: looks the scores up, and notes what it was asked."""

    input_names = ("x",)

    def tries(self) -> None:
        """Its inputs are known by name."""

    def __init__(self, scores: np.ndarray = SCORES, mode: str | None = None) -> None:
        self.scores = scores
        self.backend = self
        self.asked: list[list[int]] = []
        config = None if mode is None else OpConfig(TensorConfig("uint8"), mode=mode)  # type: ignore[arg-type]
        self.recipe = None if config is None else Recipe({OpKey("op", "MatMul"): config})

    def run_all(self, model: Any, inputs: Any) -> list[np.ndarray]:
        numbers = inputs[0][:, 0].astype(int)
        self.asked.append(numbers.tolist())
        return [self.scores[numbers]]

    @property
    def order(self) -> list[int]:
        return [number for batch in self.asked for number in batch]


def evaluator(loader: Any = None, **options: Any) -> MetricEvaluator:
    options = {"metric": get_metric("topk"), **options}
    made = DataLoader(Samples(), batch_size=7) if loader is None else loader
    return MetricEvaluator(made, **options)


def broken(wrong: int) -> np.ndarray:
    """FP32's answers, but for so many of its narrowest right ones."""
    right = np.flatnonzero(SCORES.argmax(1) == LABELS)
    narrow = right[np.argsort(SCORES[right].max(1))][:wrong]
    scores = SCORES.copy()
    scores[narrow] = np.roll(scores[narrow], 1, axis=1)
    return scores


def test_fp32_comes_in_order_then_wrong_and_narrow_ones_first() -> None:
    evaluate = evaluator()
    first, second = Looker(), Looker()
    baseline = evaluate(first)
    assert first.order == list(range(COUNT))
    assert baseline.samples == COUNT
    again = evaluate(second)
    assert again.accuracy == baseline.accuracy == pytest.approx(0.9)
    assert sorted(second.order) == list(range(COUNT)), "each sample once"
    wrong = [number for number in range(COUNT) if number % 10 == 7]
    assert set(second.order[: len(wrong)]) == set(wrong)
    rest = second.order[len(wrong) :]
    gaps = SCORES[rest].max(1)
    assert (np.diff(gaps) >= 0).all(), "then by their margin"
    assert [len(batch) for batch in second.asked] == [len(batch) for batch in first.asked]


def test_a_bad_model_is_out_after_the_hard_ones() -> None:
    evaluate = evaluator(DataLoader(Samples(), batch_size=1))
    baseline = evaluate(Looker())
    race = Race(Goal(absolute=0.05), baseline)
    bad = Looker(broken(4))
    lost = evaluate(bad, race)
    assert lost.raced_out
    assert lost.samples == 6 + 4, "what FP32 got wrong, and one more than the three allowed"
    low, high = lost.bounds or (1, 0)
    full = evaluator()(Looker(broken(4)))
    assert low <= full.accuracy <= high < race.goal.bar(baseline.accuracy)
    good = evaluate(Looker(broken(3)), race)
    assert not good.raced_out
    assert good.accuracy == evaluator()(Looker(broken(3))).accuracy


def test_shuffled_loaders_and_samplers_keep_their_samples() -> None:
    for loader in (
        DataLoader(Samples(), batch_size=8, shuffle=True, seed=5),
        DataLoader(Samples(), batch_size=8, sampler=list(range(30, 60))),
        DataLoader(Samples(), batch_size=8, last_batch="discard"),
    ):
        evaluate = evaluator(loader)
        first, second = Looker(), Looker()
        assert evaluate(first).accuracy == evaluate(second).accuracy
        assert first.order != second.order
        assert sorted(first.order) == sorted(second.order)


def test_iteration_limits_what_is_visited_not_where_it_begins() -> None:
    evaluate = evaluator(iteration=3)
    first, second = Looker(), Looker()
    evaluate(first)
    evaluate(second)
    assert sorted(first.order) == sorted(second.order) == list(range(21))


def together(batches: list[list[int]]) -> set[frozenset[int]]:
    return {frozenset(batch) for batch in batches}


def test_batches_stay_together_where_their_samples_meet() -> None:
    evaluate = evaluator()
    first, dynamic, static = Looker(), Looker(mode="dynamic"), Looker(mode="static")
    for model in (first, dynamic, static):
        evaluate(model)
    assert together(dynamic.asked) == together(first.asked)
    assert dynamic.asked != first.asked, "the harder batches come first"
    assert together(static.asked) != together(first.asked)


def test_batches_of_an_own_collate_stay_together() -> None:
    def mine(samples: list[Any]) -> tuple[np.ndarray, np.ndarray]:
        return np.stack([x for x, _ in samples]), np.asarray([y for _, y in samples])

    evaluate = evaluator(DataLoader(Samples(), batch_size=7, collate_fn=mine))
    first, second = Looker(), Looker()
    evaluate(first)
    evaluate(second)
    assert together(first.asked) == together(second.asked)
    assert first.asked != second.asked


def test_lists_are_led_by_batch() -> None:
    evaluate = evaluator(list(DataLoader(Samples(), batch_size=7)))
    first, second = Looker(), Looker()
    assert evaluate(first).accuracy == evaluate(second).accuracy
    assert together(first.asked) == together(second.asked)
    assert first.asked != second.asked


@pytest.mark.parametrize(
    "options",
    [
        {"metric": get_metric("F1", average="macro")},
        {"postprocess": lambda sample: sample},
        {"postprocess": as_postprocess([lambda sample: sample])},
    ],
    ids=["no mean", "own function", "own step"],
)
def test_order_is_kept_where_it_may_matter(options: dict[str, Any]) -> None:
    evaluate = evaluator(**options)
    models = [Looker(), Looker()]
    for model in models:
        evaluate(model)
    assert models[0].order == models[1].order == list(range(COUNT))


def test_our_own_steps_do_not_mind() -> None:
    evaluate = evaluator(postprocess=as_postprocess([LabelShift(0)]))
    models = [Looker(), Looker()]
    for model in models:
        evaluate(model)
    assert models[0].order != models[1].order


class Endless:
    """Iterates for ever in an order of its own."""

    def __iter__(self) -> Any:
        while True:
            yield from DataLoader(Samples(), batch_size=7)


def test_loaders_without_numbers_are_read_as_they_come() -> None:
    evaluate = evaluator(Endless(), iteration=4)
    models = [Looker(), Looker()]
    for model in models:
        assert evaluate(model).samples == 28
    assert models[0].order == models[1].order


def test_random_orders_of_a_sampler_are_pinned() -> None:
    class Fresh:
        """Another order each time it is asked, as torch's RandomSampler."""

        rng = np.random.default_rng(0)

        def __len__(self) -> int:
            return COUNT

        def __iter__(self) -> Any:
            return iter(self.rng.permutation(COUNT).tolist())

    evaluate = evaluator(DataLoader(Samples(), batch_size=7, sampler=Fresh()))
    baseline = evaluate(Looker())
    lost = evaluate(Looker(broken(20)), Race(Goal(absolute=0.05), baseline))
    assert lost.raced_out
    assert baseline.accuracy == evaluate(Looker()).accuracy
