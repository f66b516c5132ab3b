"""What makes a score doubtful: one that ignores the model, a gain too good to be true, failures."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from typing import Any

from lpot.core.eval_func import FunctionEvaluator
from lpot.core.recipe import Recipe
from lpot.core.result import Result
from lpot.core.trial import Score, State
from lpot.core.tune import guarded
from lpot.jobs.tune.job import Job


class _NoModel:
    """Handed to an eval_func in a model's place: whoever uses it can't but notice."""

    recipe = Recipe({})  # not None: that is the baseline's
    native: Any = object()
    runner: Any = native


def warn_about_scores(job: Job, result: Result) -> None:
    if result.baseline is None:
        return
    failed = [trial for trial in result.trials if trial.state is State.FAILED]
    if failed:
        job.add_note(
            f"{len(failed)} of {len(result.trials)} trial(s) failed, the last with: "
            f"{failed[-1].error}"
        )
    if _ignores_its_model(job, result):
        job.add_note(
            f"warning: every INT8 trial scored exactly the same as FP32 "
            f"({result.baseline.accuracy!r}), and so did an object that is not a model: "
            f"is {job.request.door.evaluate} using the model it is given?"
        )
    _warn_about_gain(job, result)


def _ignores_its_model(job: Job, result: Result) -> bool:
    """Ties are common and honest. What scores the same without any model is not."""
    assert result.baseline is not None
    evaluator, accuracy = job.evaluator, result.baseline.accuracy
    scored = [t for t in result.trials if t.accuracy is not None and t.recipe.low_ops]
    if not isinstance(evaluator, FunctionEvaluator) or result.interrupted:
        return False
    if all(trial.recalled for trial in scored):  # nothing was evaluated: nothing new to doubt
        return False
    # A trial that scores otherwise proves that eval_func looks at its model.
    if any(trial.accuracy != accuracy for trial in scored):
        return False
    blind: Any = _NoModel()
    with _finalizers_unheard():
        found = guarded(lambda: evaluator(blind))
        same = isinstance(found, Score) and found.accuracy == accuracy
        del found  # with what its traceback holds
    return same


@contextlib.contextmanager
def _finalizers_unheard() -> Iterator[None]:
    """TensorFlow's sessions without a graph raise once more when they are collected."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: None
    try:
        yield
    finally:
        sys.unraisablehook = hook


def _warn_about_gain(job: Job, result: Result) -> None:
    if result.baseline is None or result.accuracy is None:
        return
    goal, before, after = job.goal, result.baseline.accuracy, result.accuracy
    if not goal.is_implausible(after, before):
        return
    other = "a loss, or an error" if goal.higher_is_better else "an accuracy"
    word = "false" if goal.higher_is_better else "true"
    job.add_note(
        f"warning: the score goes from {before:.6g} in FP32 to {after:.6g}: quantization does not "
        f"gain that much. If the score is {other}, set "
        f"`accuracy_criterion: {{higher_is_better: {word}}}`; the verdict is wrong without it"
    )
