"""The end of a tuning: the best model on disk, its speed measured, and the verdict written down."""

from __future__ import annotations

import io
import json
import logging
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from lpot.core import words
from lpot.core.cpu import this_cpu
from lpot.core.errors import HistoryError, WorkspaceError
from lpot.core.evaluation.race import saving
from lpot.core.files.card import is_whole, read_card, write_text
from lpot.core.interrupt import was_interrupted
from lpot.core.model import Model
from lpot.core.recipe import Recipe
from lpot.core.results.result import Declined, Result
from lpot.core.trial import State
from lpot.core.tune import Outcome
from lpot.jobs.benchmark.contestant import bytes_on_disk
from lpot.jobs.finish.diagnosis import dump_tensors
from lpot.jobs.finish.doubts import shortfall, warn_about_scores, with_interval
from lpot.jobs.finish.held_out import with_held_out
from lpot.jobs.finish.speed import is_no_answer, with_speed
from lpot.jobs.report.write import write_report
from lpot.jobs.runtime.rivals import agreement, runtime_of
from lpot.jobs.tune.advice import advised, how_far
from lpot.jobs.tune.evaluation import plain
from lpot.jobs.tune.insight import Insight
from lpot.jobs.tune.job import Job

logger = logging.getLogger(__name__)


def finish(job: Job, outcome: Outcome, insight: Insight) -> Result:
    """The best of a search, or what is handed back in its place."""
    best = outcome.best
    if best is None:
        if outcome.trials or was_interrupted(outcome.stopped):
            return float_result(job, _why_nothing(outcome), outcome)
        job.add_note(
            f"not evaluated: {outcome.stopped} before a trial could be evaluated, so the accuracy "
            "of this all-INT8 model is unknown; allow more time, or use a smaller evaluation"
        )
        return not_evaluated(job, outcome.stopped, outcome)
    model = job.build(best.recipe)
    model.met, model.card = best.met, job.card(best)
    result = replace(_result(job, model, outcome.stopped, outcome), best=best, met=best.met)
    saved = saving(result.trials, result.baseline)
    if saved:
        job.add_note(saved)
    warn_about_scores(job, result)
    # A run that was broken off has not missed anything yet.
    if result.met is False and not result.interrupted:
        job.add_note(shortfall(job, result, insight))
    result = with_held_out(job, with_interval(job, result))
    return _concluded(job, result, insight)


def not_evaluated(job: Job, stopped: str, outcome: Outcome | None = None) -> Result:
    """What would have been tried first, unproved: all in low precision, as advised."""
    recipe = advised(job, job.space).default()
    model = job.build(recipe)
    if told := how_far(job, model, job.observe(recipe.samples)):
        job.add_note(told)
    model.card = job.card(None)
    return _concluded(job, _result(job, model, stopped, outcome))


def float_result(
    job: Job, why: str, outcome: Outcome | None = None, met: bool | None = False
) -> Result:
    """Nothing better than the model as given was found: it is handed back, flagged.

    `met` where there is nothing to find: FP32 holds its own bar.
    """
    job.add_note(f"{why}: the FP32 model is returned unchanged")
    model = job.backend.build(job.source, Recipe({}), None)
    model.met, model.card = met, job.card(None)
    stopped = why if outcome is None else outcome.stopped
    return _write(job, replace(_result(job, model, stopped, outcome), met=met))


def _result(job: Job, model: Model, stopped: str, outcome: Outcome | None) -> Result:
    """What is known of any result; the model is on disk then."""
    path = _on_disk(job, model)
    return Result(
        model=model,
        recipe=model.recipe or Recipe({}),
        goal=job.goal,
        baseline=None if outcome is None else outcome.baseline,
        trials=() if outcome is None else outcome.trials,
        stopped=stopped,
        sizes=(_bytes_as_given(job), bytes_on_disk(path, model)),
        precisions=precisions(job, model),
        float_ops=float_ops(job, model),
        left=job.capability.left,
        path=path,
        workspace=job.workspace.folder,
        runtime=runtime_of(job.backend),
        cpu=this_cpu().name,
        when=datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC"),
        for_size=any(word in ("modelsize", "footprint") for word in job.objectives.words),
        interrupted=outcome is not None and was_interrupted(outcome.stopped),
    )


def _concluded(job: Job, result: Result, insight: Insight | None = None) -> Result:
    if text := agreement(job, result):
        job.add_note(text)
    result = with_speed(job, result)
    if is_no_answer(job, result):
        result = _handed_back(job, result)
    if result.seems_slower:
        job.add_note(
            "a quick look at the clock says that it is slower than FP32: measure both "
            "(`lpot benchmark`) before you use it"
        )
    before, after = job.model.nbytes, result.model.nbytes  # like with like: no names, no padding
    if after > before and result.recipe.low_ops:
        job.add_note(
            f"it is larger than FP32 ({words.size_change(before, after)}): scales and zero points "
            "take more than small weights save"
        )
    dump_tensors(job, result.model)
    job.package(result)
    if job.request.measure_speed and result.recipe.low_ops:  # an offer is a measurement, too
        for text in job.backend.offers(result.model):
            job.add_note(text)
    return _write(job, result, insight)


def _handed_back(job: Job, result: Result) -> Result:
    """FP32 in the place of what is slower, which stays on disk under another name."""
    assert result.timed is not None
    low = result.model
    aside: Path | None = job.best_path.with_name(f"slower_{job.best_path.name}")
    try:
        aside = job.backend.save(low, job.best_path.with_name(f"slower_{job.best_path.name}"))
    except WorkspaceError as error:
        aside = None
        job.add_note(f"warning: {error}; the low-precision model is not kept")
    low.close()
    model = job.backend.build(job.source, Recipe({}), None)
    model.met, model.card = result.met, job.card(None)
    where = "" if aside is None else f"It is kept as {aside}; "
    found = result.timed
    job.add_note(
        f"the low-precision model is slower than FP32 here ({found.ratio:.2f} times its speed, "
        f"between {found.low:.2f} and {found.high:.2f}), so FP32 is returned: measure with the "
        f"batch size you will use (`lpot benchmark`). {where}{job.request.door.small} returns it "
        "whatever its speed"
    )
    path = _on_disk(job, model)
    return replace(
        result,
        model=model,
        recipe=Recipe({}),
        best=None,
        declined=Declined(result.best, result.timed, aside),
        speed=None,
        faster=None,
        timed=None,
        benchmark=None,
        sizes=(_bytes_as_given(job), bytes_on_disk(path, model)),
        precisions=precisions(job, model),
        float_ops=float_ops(job, model),
        path=path,
    )


def _bytes_as_given(job: Job) -> int:
    """Its file's, where that is of the form that is written here; else those of its weights."""
    given, alike = job.request.model, job.best_path.suffix
    is_file = isinstance(given, str | Path) and Path(given).is_file()
    comparable = is_file and alike and Path(given).suffix == alike
    return bytes_on_disk(Path(given) if comparable else None, job.model)


def precisions(job: Job, model: Model) -> dict[str, int]:
    """How many ops that could be low precision really run in which."""
    count: dict[str, int] = {}
    for info in job.capability.low():
        word = _precision(model, info.key)
        count[word] = count.get(word, 0) + 1
    return dict(sorted(count.items()))


def float_ops(job: Job, model: Model) -> tuple[str, ...]:
    """The ops that could pay for themselves in low precision and run in FP32."""
    return tuple(
        info.key.name
        for info in job.capability.low()
        if not info.follower and _precision(model, info.key) == "fp32"
    )


def _precision(model: Model, key: Any) -> str:
    if model.precisions:
        return model.precisions.get(key, "fp32")
    config = None if model.recipe is None else model.recipe.ops.get(key)
    return "fp32" if config is None else config.precision


def _on_disk(job: Job, model: Model) -> Path | None:
    """The best lies in the workspace already unless it was recalled from an earlier run."""
    try:
        if not _is_on_disk(job, model):
            job.save_best(model)
        return job.backend.save(model, job.request.output) if job.request.output else job.best_path
    except WorkspaceError as error:
        job.add_note(f"warning: {error}; the model is returned in memory only")
        return None


def _is_on_disk(job: Job, model: Model) -> bool:
    """Is the file there, whole, and of this very model, data and recipe?"""
    try:
        card = read_card(job.best_path)
        wanted = {**model.card, "recipe": None if model.recipe is None else model.recipe.to_json()}
        same = all(card.get(key) == json.loads(json.dumps(wanted[key])) for key in wanted)
        return same and is_whole(job.best_path, card)
    except (HistoryError, OSError):
        return False


def _why_nothing(outcome: Outcome) -> str:
    failed = [trial for trial in outcome.trials if trial.state is State.FAILED]
    if not failed:
        return f"no trial was finished ({outcome.stopped})"
    return f"all {len(failed)} trial(s) failed, the last with: {failed[-1].error}"


def _write(job: Job, result: Result, insight: Insight | None = None) -> Result:
    result = replace(result, notes=tuple(job.notes))
    raw = result.to_json()
    if result.path is not None:  # `output` is another copy, which may be moved
        raw["model"] = job.best_path.name
    try:
        write_text(job.workspace.result, json.dumps(raw, indent=1) + "\n")
        write_text(job.workspace.folder / "deploy.yaml", deploy_yaml(job))
        report = write_report(job, result, insight or Insight(job))
        job.listener.finished(report.to_json())
        result = replace(result, ops=report.ops)
    except OSError as error:
        logger.warning("%s: can't write the result (%s)", job.workspace.folder, error)
    return result


def deploy_yaml(job: Job) -> str:
    """What the original writes: model, device and evaluation, for `lpot benchmark`."""
    config = job.config
    raw = {
        "model": {
            **plain(config.model),
            "name": config.model.name,
            "framework": job.framework_word,
        },
        "device": config.device,
        "evaluation": json.loads(json.dumps(plain(config.evaluation), default=str)),
    }
    if not raw["evaluation"]:
        del raw["evaluation"]
    raw["model"] = json.loads(json.dumps(raw["model"], default=str))
    stream = io.StringIO()
    YAML().dump(raw, stream)
    return stream.getvalue()
