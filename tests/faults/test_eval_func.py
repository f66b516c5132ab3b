"""What eval_func may return, and what happens when it returns or does something else."""

from __future__ import annotations

import decimal
import functools
import gc
import sys
from typing import Any

import numpy as np
import pytest

import onnx_models
from lpot import LpotError, takes_session
from lpot.core.errors import DataError, EvaluationError
from lpot.core.evaluation.evaluate import as_number, source_hash
from lpot.core.trial import State
from lpot.jobs.tune import sense


class Tensor:
    """What torch's tensors have in common with nothing else."""

    def __init__(self, *values: float) -> None:
        self.values = values

    def detach(self) -> Tensor:
        return self

    def numel(self) -> int:
        return len(self.values)

    def item(self) -> float:
        (value,) = self.values
        return value

    def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray:
        return np.array(self.values)


ACCEPTED = {
    "a dict of one": {"accuracy": 0.5},
    "a dict in a dict": {"accuracy": {"top1": 0.5}},
    "a numpy scalar": np.float32(0.5),
    "an array of one": np.array([[0.5]]),
    "a list of one": [0.5],
    "a tuple of one": (0.5,),
    "a tensor": Tensor(0.5),
    "a decimal": decimal.Decimal("0.5"),
    "half precision": np.float16(0.5),
}
REFUSED = {
    "None": (None, "returned None.*return"),
    "a dict of two": ({"top1": 0.5, "top5": 0.9}, r"2 numbers \(top1, top5\)"),
    "an empty dict": ({}, "0 numbers"),
    "a dict of None": ({"accuracy": None}, "returned None"),
    "text": ("0.5", "the string '0.5'"),
    "bytes": (b"0.5", "the string b'0.5'"),
    "text in a list": (["0.5"], "not a number"),
    "two in a tuple": ((0.5, 0.9), "2 numbers in a tuple"),
    "an array of many": (np.zeros((3, 4)), "12 numbers"),
    "an empty array": (np.zeros(0), "0 numbers"),
    "a tensor of two": (Tensor(0.5, 0.6), "2 numbers"),
    "NaN": (float("nan"), "returned nan.*finite"),
    "infinity": (-np.inf, "returned -inf.*finite"),
    "a complex": (0.5 + 0j, "complex, which is not a number"),
    "a numpy complex": (np.complex64(0.5), "complex64, which is not a number"),
    "a date": (np.datetime64("2020-01-01"), "not a number"),
    "a function": (lambda: 0.5, "function, which is not a number"),
    "a generator": ((n for n in [0.5]), r"gave 0\.5: expected \(sum of scores"),
    "ragged lists": ([[1.0], [1.0, 2.0]], "not a number"),
    "a number too large": (10**400, "not a number"),
}


@pytest.mark.parametrize("value", ACCEPTED.values(), ids=ACCEPTED)
def test_one_number_in_any_wrapping_is_a_score(tune: Any, value: Any) -> None:
    result = tune(evaluate=lambda model: value)
    assert result.baseline.accuracy == 0.5
    assert result.met is True


def test_a_verdict_is_a_score_too(tune: Any) -> None:
    assert tune(evaluate=lambda model: np.bool_(True)).baseline.accuracy == 1.0


@pytest.mark.parametrize(("value", "message"), REFUSED.values(), ids=REFUSED)
def test_all_else_is_refused_at_the_baseline(tune: Any, value: Any, message: str) -> None:
    calls = []

    def my_accuracy(model: Any) -> Any:
        calls.append(model)
        return value

    with pytest.raises(EvaluationError, match=message) as caught:
        tune(evaluate=my_accuracy)
    assert len(calls) == 1  # before any tuning
    assert "FP32 baseline" in str(caught.value)
    assert "my_accuracy" in str(caught.value)


def test_what_it_raises_at_the_baseline_is_told_with_its_name(tune: Any) -> None:
    def my_accuracy(model: Any) -> float:
        raise KeyError("labels")

    with pytest.raises(EvaluationError, match="my_accuracy raised KeyError: 'labels'") as caught:
        tune(evaluate=my_accuracy)
    assert isinstance(caught.value.__cause__, KeyError)


@pytest.mark.parametrize("wrong", [0.5, "accuracy", [1]])
def test_it_must_be_callable(tune: Any, wrong: Any) -> None:
    with pytest.raises(EvaluationError, match="evaluate must be a function"):
        tune(evaluate=wrong)


def test_it_must_take_one_model(tune: Any) -> None:
    def my_accuracy() -> float:
        return 0.5

    with pytest.raises(EvaluationError, match=r"my_accuracy\(\).* can't be called with one model"):
        tune(evaluate=my_accuracy)


@pytest.mark.parametrize("bad", [float("nan"), None, "0.5", ValueError("kernel missing")])
def test_a_trial_that_fails_is_written_down_and_the_next_one_tried(tune: Any, bad: Any) -> None:
    calls = []

    def my_accuracy(model: Any) -> Any:
        calls.append(model)
        if len(calls) != 2:
            return 1.0 if len(calls) == 1 else 0.999
        if isinstance(bad, Exception):
            raise bad
        return bad

    result = tune(evaluate=my_accuracy)
    first, second = result.trials[:2]
    assert first.state is State.FAILED
    assert first.error and ("my_accuracy" in first.error or "kernel missing" in first.error)
    assert second.state is State.DONE
    assert result.met is True
    assert any("trial(s) failed, the last with" in note for note in result.notes)


def test_failures_in_a_row_end_the_search_and_hand_back_fp32(tune: Any) -> None:
    calls = []

    def my_accuracy(model: Any) -> float:
        calls.append(model)
        if len(calls) > 1:
            raise RuntimeError("no such kernel")
        return 1.0

    model = onnx_models.mlp(layers=6)
    result = tune(model, evaluate=my_accuracy, strategy="random", max_trials=50)
    assert len(calls) == 6  # the baseline and five
    assert result.stopped == "5 trials failed in a row"
    assert result.met is False
    assert not result.recipe.low_ops
    assert any("all 5 trial(s) failed" in n and "no such kernel" in n for n in result.notes)
    feed = onnx_models.feeds(model)[0]
    expected = onnx_models.run(model, feed)
    assert np.array_equal(onnx_models.run(result.model.native, feed)[0], expected[0])


def test_failures_that_are_not_in_a_row_do_not_end_it(tune: Any) -> None:
    calls = []

    def my_accuracy(model: Any) -> float:
        calls.append(model)
        if len(calls) == 1:
            return 1.0
        if len(calls) % 2:
            raise RuntimeError("every other one")
        return 0.5

    model = onnx_models.mlp(layers=6)
    result = tune(model, evaluate=my_accuracy, strategy="random", max_trials=15)
    assert len(result.trials) == 15
    assert result.best is not None and result.best.accuracy == 0.5


def test_what_is_left_half_made_without_a_model_is_not_heard_of(
    tune: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As TensorFlow's sessions, which raise when they were given no graph, and when they go."""

    class Session:
        def __init__(self, model: Any) -> None:
            self.graph = model.graph

        def __del__(self) -> None:
            assert self.graph

    heard: list[Any] = []
    monkeypatch.setattr(sys, "unraisablehook", heard.append)
    monkeypatch.setattr(sense, "BLIND", True)

    def judge(model: Any) -> float:
        return float(Session(model).graph is not None)

    assert tune(evaluate=judge).met
    gc.collect()
    assert heard == [] and sys.unraisablehook == heard.append


def test_a_model_that_eval_func_ruins_is_no_loss(tune: Any) -> None:
    model = onnx_models.mlp()
    before = model.SerializeToString(deterministic=True)
    judge = onnx_models.fidelity(model, onnx_models.feeds(model))

    def vandal(given: Any) -> float:
        score = judge(given)
        for tensor in given.graph.initializer:
            tensor.Clear()
        del given.graph.node[:]
        given.graph.name = "ruined"
        return score

    result = tune(model, evaluate=vandal, goal=1e-4)
    assert model.SerializeToString(deterministic=True) == before
    assert judge(result.model.native) == result.accuracy
    assert judge(str(result.path)) == result.accuracy


def test_a_marked_function_gets_the_session(tune: Any) -> None:
    feed = onnx_models.feeds(onnx_models.mlp())[0]

    @takes_session
    def my_accuracy(session: Any) -> float:
        return float(np.isfinite(session.run(None, feed)[0]).all())

    assert tune(evaluate=my_accuracy).met is True


def test_a_method_a_partial_and_an_object_will_do(tune: Any) -> None:
    class Judge:
        def accuracy(self, model: Any) -> float:
            return 0.5

        def __call__(self, model: Any, bonus: float = 0.0) -> float:
            return 0.5 + bonus

    for function in (Judge().accuracy, Judge(), functools.partial(Judge(), bonus=0.25)):
        assert tune(evaluate=function, new_run=True).met is True


def test_lambdas_without_source_are_told_apart_by_their_constants() -> None:
    made: list[Any] = []
    for text in ("lambda m: 0.5", "lambda m: 0.6", "lambda m: 0.5"):
        scope: dict[str, Any] = {}
        exec(f"f = {text}", scope)
        made.append(scope["f"])
    first, other, again = map(source_hash, made)
    assert first == again != other
    assert source_hash(functools.partial(made[0], 1)) == first


def test_errors_are_of_one_tree() -> None:
    with pytest.raises(LpotError):
        as_number("nothing", "eval_func f")


class Right:
    """A metric: the share of batches that came with labels of one."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.seen: list[float] = []

    def update(self, preds: Any, labels: Any) -> None:
        self.seen.append(float(np.mean(labels)))

    def result(self) -> float:
        return float(np.mean(self.seen))


def test_an_evaluation_loader_that_can_be_read_once_is_refused(tune: Any) -> None:
    feeds = onnx_models.feeds(onnx_models.mlp())
    with pytest.raises(DataError, match=r"read only once.*give a list"):
        tune(eval_loader=((feed, 1) for feed in feeds), metric=Right())
    assert tune(eval_loader=[(feed, 1) for feed in feeds], metric=Right()).baseline.samples == 32


def test_an_evaluation_loader_without_labels_or_batches_is_refused(tune: Any) -> None:
    feeds = onnx_models.feeds(onnx_models.mlp())
    with pytest.raises(DataError, match="no labels"):
        tune(eval_loader=feeds, metric=Right())
    with pytest.raises(DataError, match="yielded no batch"):
        tune(eval_loader=[], metric=Right())


def runs_it(model: Any) -> float:
    return float(model.run(None, {})[0])


def calls_it(model: Any) -> float:
    return float(model(1.0))


def yields_of_it(model: Any) -> Any:
    yield model.run(None, {}), 1


@pytest.mark.parametrize("function", [runs_it, calls_it, yields_of_it])
def test_a_model_taken_for_a_session_is_told_what_it_is(tune: Any, function: Any) -> None:
    with pytest.raises(EvaluationError, match=r"ModelProto, which .*InferenceSession.* runs"):
        tune(evaluate=function)


def test_a_mistake_elsewhere_is_told_as_it_is(tune: Any) -> None:
    with pytest.raises(EvaluationError, match="has no attribute 'shpe'") as told:
        tune(evaluate=lambda model: np.zeros(2).shpe)
    assert "ModelProto" not in str(told.value)
