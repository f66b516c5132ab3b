"""The main job: from a request to a Result."""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial
from pathlib import Path

from lpot.core.errors import WorkspaceBusy
from lpot.core.evaluation.evaluate import Evaluator
from lpot.core.evaluation.identity import Identity
from lpot.core.evaluation.race import Race
from lpot.core.evaluation.recheck import Answer, Known, Recheck, compare, part_of
from lpot.core.evaluation.tally import MeanPieces
from lpot.core.files.history import History
from lpot.core.files.journal import is_of, question_of
from lpot.core.files.workspace import check_output
from lpot.core.interrupt import interruptible
from lpot.core.limits import BAR_IS_MET
from lpot.core.model import Model
from lpot.core.preference import recorded
from lpot.core.progress import Chorus, heard_by
from lpot.core.results.result import Result
from lpot.core.trial import Score, Trial
from lpot.core.trust import trusting
from lpot.core.tune import Executor, Outcome, Task, evaluated, score_baseline, serial, tune
from lpot.jobs.callbacks.aside import called_back
from lpot.jobs.execute.choose import chosen_executor
from lpot.jobs.finish.held_out import held_out_evaluator
from lpot.jobs.finish.result import finish, float_result, not_evaluated
from lpot.jobs.report.beacon import Beacon
from lpot.jobs.runtime.choose import fastest
from lpot.jobs.storage.workspace import fetched
from lpot.jobs.tune.evaluation import make_evaluator
from lpot.jobs.tune.insight import Insight, context
from lpot.jobs.tune.job import Job, Notes, begin
from lpot.jobs.tune.mode import mode_of
from lpot.jobs.tune.plan import Plan, make_plan
from lpot.jobs.tune.request import Request
from lpot.jobs.tune.sense import Sense, check_loss, proves
from lpot.strategy.fewest import keeps_many
from lpot.strategy.order import able

__all__ = ["Request", "quantize"]


def quantize(request: Request) -> Result:
    """Tune, and never come home empty."""
    if isinstance(request.model, str):
        request = replace(request, model=os.path.expanduser(request.model))  # noqa: PTH111
    if request.output is not None:
        output = Path(os.path.expanduser(request.output))  # noqa: PTH111 - Path's may raise
        check_output(output, request.model)
        request = replace(request, output=output.absolute())
    with trusting(request.config.model.trust):
        request = fastest(mode_of(request).prepared(request))
        beacon = Beacon()
        plan = make_plan(replace(request, listener=Chorus(request.listener, beacon)))
        plan.workspace.check(needed=2 * plan.source.nbytes + (1 << 20))
        notes = Notes(plan.request.listener)
        with plan.workspace.lock(notes.add), beacon.lit(plan.workspace.folder):
            return _carry_out(plan, notes)


def _carry_out(plan: Plan, notes: Notes) -> Result:
    with called_back(plan) as listener:
        job = begin(plan, listener, notes)
        with interruptible(job.watch, listener), heard_by(listener):
            evaluator = make_evaluator(plan.request, plan.source, job.add_note)
            job = replace(job, evaluator=evaluator, held_out=held_out_evaluator(job))
            if evaluator is not None:
                check_loss(plan.request)
            job = plan.mode.ready(job)
            if evaluator is None or plan.comes_to_nothing():
                opened(job)  # whose folder it is stands in the history, even if nothing else does
            if plan.comes_to_nothing():
                return float_result(job, plan.why_not(), met=evaluator is not None or None)
            return _build_once(job) if evaluator is None else _search(job, evaluator)


def _build_once(job: Job) -> Result:
    """Nothing to evaluate with: one all-INT8 model, and it is said that nobody checked it."""
    job = job.mode.trained(job)
    given = f"no {job.request.door.evaluate} function and no metric were given"
    job.add_note(f"not evaluated: {given}, so accuracy is unknown")
    return not_evaluated(job, "not evaluated")


def _search(job: Job, evaluator: Evaluator) -> Result:
    history = open_history(job, evaluator)
    job.request.pool.lend_baseline(job.baseline_key, history)
    if job.loop is not None and history.baseline is None:
        score_baseline(_task(job, evaluator, history))  # before hours of training: it may be wrong
    job = job.mode.trained(job)
    job.listener.plan(job.most_trials(), job.limits.timeout)
    insight = Insight(job)
    with chosen_executor(job, history) as executor:
        outcome = tune(_task(job, evaluator, history, insight, executor))
    if job.config.tuning.strategy.settle is False and outcome.stopped == BAR_IS_MET:
        _tell_what_was_cut_off(job, outcome)
    job.request.pool.take_baseline(job.baseline_key, history)
    return finish(job, outcome, insight)


def _tell_what_was_cut_off(job: Job, outcome: Outcome) -> None:
    ops = able(job.space)
    if outcome.best is not None and keeps_many(outcome.best.recipe, ops):
        kept = sum(outcome.best.recipe.ops[key].is_float for key in ops)
        job.add_note(
            f"`settle: false` ended the search at its first success, with {kept} of {len(ops)} ops "
            "in FP32: without it, or with `settle: true`, fewer may do"
        )


def opened(job: Job) -> History:
    """The history of the workspace, which may have been another's since the plan was made."""
    there = question_of(job.workspace.history)
    if there is not None and not is_of(there, job.question):
        raise WorkspaceBusy(
            f"{job.workspace.folder}: another tuning has just begun here: run again, and a folder "
            "of its own is chosen"
        )
    info = {
        "framework": job.backend.name,
        "name": job.config.model.name,
        "goal": job.goal.to_json(),
        "objectives": job.objectives.to_json(),
    }
    return History.open(job.workspace.history, job.fingerprint, info, job.workspace.copy_line)


def open_history(job: Job, evaluator: Evaluator) -> History:
    history = opened(job)
    resume = job.config.tuning.workspace.resume
    if resume:
        history.adopt(History.read(fetched(resume)))
    for text in history.notes:
        job.add_note(text)
    if history.baseline is not None:
        _check_evaluation(job, evaluator, history)
    evaluator.pieces.resume(history.pieces, history.intervals, history.record_interval)
    return history


def _check_evaluation(job: Job, evaluator: Evaluator, history: History) -> None:
    """Old scores are used for the evaluation that made them, and for no other."""
    assert history.baseline is not None
    done = sum(trial.score is not None for trial in history.trials)
    known = f"continuing from {history.path}: baseline and {done} trial(s) are known"
    before, now = history.evaluator or Identity(), evaluator.identity
    if job.config.tuning.workspace.trust_history:
        job.add_note(f"{known}, and used without a look at the evaluation (trust_history)")
        return
    if before.stated is not None and now.stated is not None:
        same = before.stated == now.stated
        told = f"the evaluation is the same by its own word ({now.stated})"
        if not same:
            told = f"the evaluation says that it is {now.stated}, and was {before.stated}"
        answer = Answer(same, told)
    elif before.differs_from(now):
        answer = Answer(False, "the evaluation uses other data than when this history was written")
    else:
        answer = _evaluated_again(job, history, before.looks_like(now))
    if answer.same:
        job.add_note(f"{known}; {answer.words}")
        return
    aside = history.begin_another()
    job.add_note(
        f"{answer.words}: the {done} score(s) known here are another evaluation's and kept as "
        f"{aside.name}; the search begins anew"
    )


def _evaluated_again(job: Job, history: History, looks_alike: bool) -> Answer:
    """FP32, and the best trial too where not all can be seen to be as it was; with an evaluator of
    its own, which learns nothing for the search."""
    assert history.baseline is not None
    fp32 = Known(history.baseline, history.pieces.get(""))
    enough = part_of(fp32) if looks_alike else None
    race = None if enough is None else Recheck(job.goal, history.baseline, enough=enough, seen=[])
    answer = compare(fp32, partial(_evaluate, job, history, job.model), race)
    answer = replace(answer, words=f"FP32 was evaluated again and {answer.words}")
    if not answer.same or looks_alike:
        return answer
    best = _best_whole(job, history)
    if best is None or best.score is None:
        return answer
    model = job.build(best.recipe)
    again = compare(
        Known(best.score, history.pieces.get(best.recipe.digest)),
        partial(_evaluate, job, history, model),
        None,
    )
    model.close()
    words = f"{answer.words}, and trial {best.number} {again.words}"
    return Answer(again.same, words if again.same else f"trial {best.number} {again.words} now")


def _evaluate(
    job: Job, history: History, model: Model, race: Race | None
) -> tuple[Score, MeanPieces | None]:
    evaluator = make_evaluator(job.request, job.source)
    assert evaluator is not None
    evaluator.remember(history.memory)
    job.listener.phase("evaluating again, to see that the evaluation is the same")
    score = evaluated(evaluator, model, race)
    pieces = evaluator.pieces.get(model.recipe)
    return score, pieces if isinstance(pieces, MeanPieces) else None


def _best_whole(job: Job, history: History) -> Trial | None:
    """The best trial that was evaluated on everything, and can be built without a training."""
    if job.loop is not None:
        return None
    whole = [
        trial
        for trial in history.trials
        if trial.score is not None
        and not trial.score.raced_out
        and trial.recipe.repairs.pruning is None
        and all(config.mode != "weight_only" for config in trial.recipe.ops.values())
    ]
    return recorded(history.info, history.baseline).best(whole)


def _task(
    job: Job,
    evaluator: Evaluator,
    history: History,
    insight: Insight | None = None,
    executor: Executor = serial,
) -> Task:
    insight = insight or Insight(job)
    return Task(
        backend=job.backend,
        model=job.model,
        space=job.space,
        strategy=job.policy,
        settles=job.policy.goes_on(job.config.tuning.strategy.settle),
        evaluate=evaluator,
        goal=job.goal,
        observe=job.observe,
        history=history,
        watch=job.watch,
        objectives=job.objectives,
        measure=job.measure,
        keep=job.keep,
        prefer=insight.prefer,
        context=context(insight),
        executor=executor,
        has_budget=job.limits.timeout > 0,
        listener=job.listener,
        note=job.add_note,
        baseline_runs=job.config.tuning.accuracy_criterion.baseline_runs,
        sense=Sense(job),
        proves=partial(proves, job),
    )
