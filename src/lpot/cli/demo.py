"""`lpot demo`: a whole tuning in seconds, with a model and data that come with the package."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from lpot.cli.output import BEST_EFFORT, INTERRUPTED, OK, Output, command

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
    from lpot.jobs.demo import demo_folder, demo_request
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
