"""`lpot report`: what a finished tuning gave, again."""

from __future__ import annotations

from pathlib import Path

import click

from lpot.cli.output import OK, Output, command

SHOWN = 15  # ops in the terminal; the page has all of them


@click.command(short_help="Show the report of a finished tuning.")
@click.argument("workspace", type=click.Path(path_type=Path))
@click.option(
    "--output", "target", type=click.Path(path_type=Path), help="Write the page here as well."
)
@command
def report(out: Output, workspace: Path, target: Path | None) -> int:
    """Show the report of a finished tuning: verdict, trials, and the ops that hurt.

    WORKSPACE is the folder of the tuning; its report.html is the same for a browser.
    """
    from lpot.core.card import write_text
    from lpot.jobs.report import PAGE, read_report
    from lpot.report.html import page
    from lpot.report.summary import summary

    found = read_report(workspace)
    if target is not None:
        write_text(target, page(found))
    out.show(summary(found, SHOWN))
    out.show(f"page: {target or workspace / PAGE}")
    out.tell(found.to_json())
    return OK
