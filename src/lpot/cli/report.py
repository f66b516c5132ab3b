"""`lpot report`: what a tuning gave, again; or two of them side by side."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING

import click

from lpot.cli.output import OK, Output, command
from lpot.cli.place import READ

if TYPE_CHECKING:
    from lpot.core.results.report import Report
    from lpot.jobs.report.runs import Run

SHOWN = 15  # ops in the terminal; the page has all of them


@click.command(short_help="Show the report of a tuning, or compare two.")
@click.argument("workspace", type=READ)
@click.argument("other", type=READ, required=False)
@click.option(
    "--output", "target", type=click.Path(path_type=Path), help="Write the HTML page here."
)
@command
def report(out: Output, workspace: Path, other: Path | None, target: Path | None) -> int:
    """Show the report of a tuning: verdict, trials, and the most sensitive ops.

    WORKSPACE is the folder or URL of the tuning; its report.html shows the same in a browser. A
    tuning that is still running, or was interrupted, is shown as far as it got. With a second
    folder, OTHER, the two runs are compared; a folder of several workspaces is shown as a list.
    """
    from lpot.jobs.report.read import read_report
    from lpot.jobs.report.runs import Runs, is_run

    several = [] if other is not None or is_run(workspace) else Runs(workspace).all()
    if several:
        return _list(out, workspace, several, target)
    found = read_report(workspace)
    if other is not None:
        return _compare(out, (workspace, other), (found, read_report(other)), target)
    from lpot.jobs.report.write import PAGE
    from lpot.report.html import page
    from lpot.report.summary import summary

    place = target or workspace / PAGE
    if target is not None:
        write_page(target, page(found))
    out.show(summary(found, SHOWN))
    if place.is_file():
        out.show(f"page: {place}")
    out.tell(found.to_json())
    return OK


def _list(out: Output, folder: Path, runs: list[Run], target: Path | None) -> int:
    """All runs below a folder."""
    from lpot.report.runs import runs_page, runs_summary

    entries = [(run.name, "", run.found) for run in runs]
    if target is not None:
        write_page(target, runs_page(folder.name or str(folder), entries))
    out.show(runs_summary(entries))
    out.show(f"page: {target}" if target else "for an HTML page, use --output FILE.html")
    known = [(run.name, run.found) for run in runs]
    out.tell({n: {"error": r} if isinstance(r, str) else r.to_json() for n, r in known})
    return OK


def _compare(
    out: Output, places: tuple[Path, Path], both: tuple[Report, Report], target: Path | None
) -> int:
    from lpot.report.versus import versus, versus_page, versus_summary

    found = versus(*both)
    names = _names(places)
    if target is not None:
        write_page(target, versus_page(found, names))
    out.show(versus_summary(found, names, SHOWN))
    out.show(f"page: {target}" if target else "for an HTML page, use --output FILE.html")
    out.tell({**found.to_json(), "paths": [str(place) for place in places]})
    return OK


def _names(places: tuple[Path, Path]) -> tuple[str, str]:
    """Short names that differ."""
    first, second = (place.resolve() for place in places)
    if first.name != second.name:
        return first.name, second.name
    return str(places[0]), str(places[1])


def write_page(target: Path, text: str) -> None:
    from lpot.core.errors import WorkspaceError
    from lpot.core.files.card import write_text

    try:
        write_text(target, text)
    except OSError as error:
        raise WorkspaceError(f"{target}: can't write the page ({error.strerror})") from error


# -- `lpot dashboard`: a tuning in the browser while it runs.


@click.command(short_help="Watch a tuning in the browser while it runs.")
@click.argument("workspace", type=click.Path(path_type=Path))
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="A free port if omitted.",
    metavar="N",
)
@click.option("--open", "browse", is_flag=True, help="Open it in the browser.")
@command
def dashboard(out: Output, workspace: Path, port: int, browse: bool) -> int:
    """Serve the report of WORKSPACE on this machine only, updated as trials finish.

    Given a folder with several workspaces below it, such as ./lpot_workspace, all of them are
    listed and compared, each with its own page.

    The tuning is not disturbed: nothing is locked or written. The address contains a token; without
    it nothing is shown. Press Ctrl-C to stop.
    """
    from lpot.jobs.report.dashboard import serve

    server = serve(workspace, port)
    with contextlib.suppress(OSError, AttributeError):
        os.nice(10)  # a tuning on the same cores comes first
    if not workspace.is_dir():
        out.show(f"note: {workspace} does not exist yet: the page waits for it")
    out.show(f"watching {workspace} at {server.url}\npress Ctrl-C to stop")
    out.tell({"url": server.url, "workspace": str(workspace)})
    if browse:
        import webbrowser

        webbrowser.open(server.url)
    with server, contextlib.suppress(KeyboardInterrupt):
        server.serve_forever(poll_interval=0.2)
    return OK
