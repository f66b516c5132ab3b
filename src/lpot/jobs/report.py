"""Putting a report together and on disk: report.json for machines, report.html for people."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import TYPE_CHECKING

from ruamel.yaml import YAML

from lpot.config.identity import public
from lpot.core.card import write_text
from lpot.core.cpu import this_cpu
from lpot.core.errors import HistoryError
from lpot.core.report import Report, op_rows, trial_row
from lpot.core.result import Result
from lpot.jobs.evaluation import plain
from lpot.report.html import page
from lpot.version import VERSION

if TYPE_CHECKING:
    from lpot.jobs.quantize import Job

DATA, PAGE = "report.json", "report.html"


def make_report(job: Job, result: Result) -> Report:
    baseline = result.baseline
    cpu = this_cpu()
    real = getattr(result.model, "precisions", None)
    chosen = {key: config.precision for key, config in result.recipe.ops.items()}
    environment = {
        "lpot": VERSION,
        **job.backend.versions(),
        "CPU": f"{cpu.name}, {cpu.cores} core(s): {' '.join(cpu.features)}",
        "seed": job.config.tuning.random_seed,
        "calibration samples": ", ".join(str(size or "all") for size in job.space.samples),
        "model hash": job.fingerprint_of_model,
        "recipe": result.recipe.digest,
    }
    return Report(
        name=job.config.model.name,
        framework=job.framework_word,
        result=result.to_json(),
        bar=None if baseline is None else job.goal.bar(baseline.accuracy),
        trials=tuple(trial_row(trial) for trial in result.trials),
        ops=op_rows(job.capability, result, real or chosen, job.harm),
        environment=environment,
        config=_yaml(job),
    )


def write_report(job: Job, result: Result) -> None:
    report = make_report(job, result)
    write_text(job.workspace.folder / DATA, json.dumps(report.to_json(), indent=1) + "\n")
    write_text(job.workspace.folder / PAGE, page(report))


def read_report(workspace: str | Path) -> Report:
    """The report of a finished tuning, from its workspace."""
    path = Path(workspace)
    path = path / DATA if path.is_dir() else path
    if not path.is_file():
        raise HistoryError(
            f"{path}: no report here: a finished tuning leaves {DATA} in its workspace"
        )
    try:
        return Report.from_json(json.loads(path.read_text("utf-8")))
    except (ValueError, KeyError, TypeError) as error:
        raise HistoryError(f"{path}: not a report of this lpot ({error})") from error


def _yaml(job: Job) -> str:
    raw = json.loads(json.dumps(public(plain(job.config)), default=str))
    stream = io.StringIO()
    YAML().dump(raw, stream)
    return stream.getvalue() if raw else ""
