"""`lpot dashboard`: a tuning in the browser while it runs."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import click

from lpot.cli.output import OK, Output, command


@click.command(short_help="Watch a tuning in the browser while it runs.")
@click.argument("workspace", type=click.Path(path_type=Path))
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    help="A free one when not given.",
    metavar="N",
)
@click.option("--open", "browse", is_flag=True, help="Open the browser, too.")
@command
def dashboard(out: Output, workspace: Path, port: int, browse: bool) -> int:
    """Serve the report of WORKSPACE on this machine alone, refreshed as trials land.

    The tuning is not disturbed: nothing is locked and nothing is written. The address holds a
    token; without it nothing is shown. Ctrl-C ends it.
    """
    from lpot.jobs.report.dashboard import serve

    server = serve(workspace, port)
    with contextlib.suppress(OSError, AttributeError):
        os.nice(10)  # a tuning on the same cores comes first
    out.show(f"watching {workspace} at {server.url}\nCtrl-C ends it")
    out.tell({"url": server.url, "workspace": str(workspace)})
    if browse:
        import webbrowser

        webbrowser.open(server.url)
    with server, contextlib.suppress(KeyboardInterrupt):
        server.serve_forever(poll_interval=0.2)
    return OK
