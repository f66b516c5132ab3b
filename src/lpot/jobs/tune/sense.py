"""Can bar and evaluation mean what was meant? Asked before a search is spent on them.

A bar that lets most of the score go is always met, and so is one on a loss that is taken for a
score, or on an evaluation that does not look at its model. `accuracy_criterion.really` says that it
is meant all the same.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from lpot.core import words
from lpot.core.errors import ConfigError, EvaluationError
from lpot.core.evaluation.eval_func import FunctionEvaluator
from lpot.core.numerics.resample import paired_interval
from lpot.core.recipe import Recipe
from lpot.core.trial import Score, Trial
from lpot.core.tune import guarded
from lpot.jobs.tune.job import Job
from lpot.jobs.tune.request import SCRIPT, Request

MOST_RELATIVE = 0.2  # of FP32's score: what may be lost without a question
MOST_OF_RANGE = 0.5  # of the range of scores
BLIND = True  # are evaluations tried without a model?


def check_loss(request: Request) -> None:
    """What can be told of the bar before the first evaluation."""
    criterion, door = request.config.tuning.accuracy_criterion, request.door
    executor = request.config.tuning.executor.name
    if criterion.proven and executor != "serial":
        raise ConfigError(
            f"scores of single samples stay in the processes of `executor: {executor}`: a bar that "
            "must be proven needs `serial`",
            "tuning.accuracy_criterion.proven",
        )
    share = criterion.relative
    if criterion.really or share is None or share <= MOST_RELATIVE:
        return
    raise ConfigError(
        f"{share:.4g} would allow FP32's score to fall by {share:.0%}, and nearly any model meets "
        f"that. It is the share that may be lost, such as 0.01; what is to be kept is given by "
        f"{door.bar}. If it is meant, say so: {door.really}",
        door.loss,
    )


@dataclass(eq=False)
class Sense:
    """Looks at FP32's score, then at each trial that was evaluated; raises where one must ask."""

    job: Job
    looked: bool = field(default=False, init=False)

    def __call__(self, baseline: Score, trial: Trial | None) -> None:
        if self.job.goal.proven and trial is None and baseline.samples is None:
            raise EvaluationError(
                f"{self._who} returns one number, and nothing can be proven by one: yield a score "
                "per sample (docs/evaluation.md), or do without `proven`"
            )
        if self.job.config.tuning.accuracy_criterion.really:
            return
        if trial is None:
            self._check_range(baseline.accuracy)
        elif trial.score is not None and trial.recipe.low_ops:
            self._check_model(baseline, trial.score)
            self._check_direction(baseline, trial)

    @property
    def _blind(self) -> bool:
        return BLIND or self.job.request.door is SCRIPT

    @property
    def _who(self) -> str:
        return "the evaluation" if self.job.evaluator is None else self.job.evaluator.name

    def _check_range(self, score: float) -> None:
        """An absolute bar, once the kind of score is known: a share, a percentage, or neither."""
        allowed, door = self.job.goal.absolute, self.job.request.door
        whole = next((end for end in (1.0, 100.0) if 0 < score <= end), 2 * abs(score))
        if allowed is None or not whole or allowed <= MOST_OF_RANGE * whole:
            return  # a score of 0, as of a distance, tells nothing of others
        raise ConfigError(
            f"{allowed:.4g} may be lost, but FP32 itself scores {words.accuracy(score)}: nearly "
            "any model meets that. It is a loss in the score's own unit, such as "
            f"{0.01 * whole:g}. If it is meant, say so: {door.really}",
            door.absolute,
        )

    def _check_model(self, baseline: Score, score: Score) -> None:
        """Ties are common and honest. What scores the same without any model is not."""
        evaluator = self.job.evaluator
        tied = score.accuracy == baseline.accuracy
        if self.looked or not self._blind or not isinstance(evaluator, FunctionEvaluator):
            return
        self.looked = True  # a trial that scores otherwise has shown that the model is looked at
        if not tied:
            return
        blind: Any = _NoModel()
        with _finalizers_unheard():
            found = guarded(lambda: evaluator(blind))
            same = isinstance(found, Score) and found.accuracy == baseline.accuracy
            del found  # with what its traceback holds
        if same and self.job.request.door is SCRIPT:  # as one of LPOT's own tutorials does
            self.job.add_note(
                f"warning: INT8 scored exactly the same as FP32 ({baseline.accuracy!r}), and so "
                f"did an object that is not a model: is {self.job.request.door.evaluate} using "
                "the model it is given?"
            )
        elif same:
            raise EvaluationError(
                f"{evaluator.name} gives {baseline.accuracy!r} for FP32, for INT8, and for an "
                "object that is not a model: it must score the model that it is given, not "
                f"another one. If it is meant, say so: {self.job.request.door.really}"
            )

    def _check_direction(self, baseline: Score, trial: Trial) -> None:
        """What gains surely more than may be lost is better the other way round."""
        goal, door = self.job.goal, self.job.request.door
        assert trial.score is not None
        before, after = baseline.accuracy, trial.score.accuracy
        if trial.score.raced_out or not trial.met:
            return
        if not goal.is_implausible(after, before) and not self._surely_gains(trial.recipe):
            return
        seen = "a loss, or an error" if goal.higher_is_better else "an accuracy"
        better = "lower" if goal.higher_is_better else "higher"
        raise EvaluationError(
            f"{self._who} gives {before:.6g} for FP32 and {after:.6g} in low precision, and "
            f"quantization does not gain that much. Is it {seen}, of which {better} is better? "
            f"Then say so: {door.lower if goal.higher_is_better else door.higher}; if the gain is "
            f"meant, {door.really}"
        )

    def _surely_gains(self, recipe: Recipe) -> bool:
        """By its single samples, where these are known."""
        job = self.job
        pieces = None if job.evaluator is None else job.evaluator.pieces
        before = None if pieces is None else pieces.get(None)
        after = None if pieces is None else pieces.get(recipe)
        if before is None or after is None:
            return False
        found = paired_interval(before, after, job.goal, job.config.tuning.random_seed)
        return found is not None and found.high < -max(job.goal.allows, 1e-9)


def proves(job: Job, recipe: Recipe) -> bool:
    """Do the samples prove that the bar holds? Those of FP32 are evaluated again if forgotten."""
    evaluator = job.evaluator
    assert evaluator is not None
    if evaluator.pieces.get(None) is None:
        evaluator(job.source)
        job.source.close()
    before, after = evaluator.pieces.get(None), evaluator.pieces.get(recipe)
    if before is None or after is None:
        raise EvaluationError(
            f"{evaluator.name} tells no scores of single samples: nothing can be proven by it"
        )
    found = paired_interval(before, after, job.goal, job.config.tuning.random_seed)
    return found is not None and found.holds(job.goal.allows) is True


class _NoModel:
    """Handed to an evaluation in a model's place: whoever uses it can't but notice."""

    recipe = Recipe({})  # not None: that is the baseline's
    native: Any = object()
    runner: Any = native


@contextlib.contextmanager
def _finalizers_unheard() -> Iterator[None]:
    """TensorFlow's sessions without a graph raise once more when they are collected."""
    hook = sys.unraisablehook
    sys.unraisablehook = lambda unraisable: None
    try:
        yield
    finally:
        sys.unraisablehook = hook
