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
