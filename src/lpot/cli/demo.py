"""`lpot demo`: a whole tuning in seconds, with a model and data that come with the package."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lpot.cli.output import BEST_EFFORT, INTERRUPTED, OK, Output, command
from lpot.config.load import load
from lpot.core.evaluation.evaluate import takes_session
from lpot.core.files.workspace import ROOT, fresh_folder
from lpot.core.progress import Listener
from lpot.demo import DemoData, demo_data, demo_model_path
from lpot.jobs.tune.request import Request

if TYPE_CHECKING:
    from lpot.core.results.result import Result

STORY = (
    "A small classifier of handwritten digits goes from FP32 to INT8. The bar: lose at most 1 % of "
    "its accuracy.\nPlain INT8 misses it; the search finds the fewest ops to keep in FP32.\n"
)


@click.command(short_help="Watch a complete tuning in seconds.")
@click.option(
    "--workspace", type=click.Path(path_type=Path), help="Folder for history and results."
)
@click.option("--resume", is_flag=True, help="Resume the last demo instead of starting a new one.")
@command
def demo(out: Output, workspace: Path | None, resume: bool) -> int:
    """Tune a small digit classifier that ships with lpot: takes seconds, downloads nothing."""
    from lpot.cli.demo import demo_folder, demo_request
    from lpot.jobs.tune.quantize import quantize

    if not out.quiet:
        out.show(STORY)
    folder = workspace or demo_folder(resume)
    with out.progress() as listener:
        result = quantize(demo_request(folder, listener))
    return _show(out, result)


def _show(out: Output, result: Result) -> int:
    from lpot.cli.tune import as_json
    from lpot.report.table import contrast
    from lpot.report.verdict import facts, headline

    status = OK if result.met is not False else BEST_EFFORT
    status = INTERRUPTED if result.interrupted else status
    out.show(headline(result))
    if not out.quiet:
        out.show("")
        out.show(contrast(result))
        out.show("")
        out.show(facts(result, leave_out=("speed", "size", "ops")))
        out.show(f"\nNext: lpot benchmark {_source()} {result.path}   and   lpot tune --help")
    out.tell({**as_json(result), "exit": status})
    return status


def _source() -> Path:
    from lpot.demo import demo_model_path

    return demo_model_path()


# -- The demo as a request like any other.


NAME = "demo"
BATCH = 50
CONFIG = {
    "model": {"name": "digits", "framework": "onnx"},
    "tuning": {"accuracy_criterion": {"relative": 0.01}},
}


def demo_request(workspace: Path, listener: Listener) -> Request:
    """What a user would write: a model, calibration batches, an evaluation, a bar."""
    images = _data().calib_images
    return Request(
        config=load(CONFIG),
        model=demo_model_path(),
        calib=[images[at : at + BATCH] for at in range(0, len(images), BATCH)],
        eval_func=accuracy,
        workspace=workspace,
        listener=listener,
    )


@takes_session
def accuracy(session: Any) -> float:
    """The share of digits read correctly."""
    data = _data()
    (logits,) = session.run(None, {"image": data.images})
    return float((logits.argmax(axis=1) == data.labels).mean())


@cache
def _data() -> DemoData:
    return demo_data()


def demo_folder(resume: bool) -> Path:
    """A folder that nobody used yet, or the last one."""
    first = ROOT / NAME
    if not first.exists():
        return first
    if not resume:
        return fresh_folder(first)
    runs = {
        int(found[1]): path
        for path in ROOT.glob(f"{NAME}-run*")
        if (found := re.fullmatch(rf"{NAME}-run(\d+)", path.name))
    }
    return runs[max(runs)] if runs else first
