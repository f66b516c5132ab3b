"""`lpot doctor`: what this machine has and what is missing."""

from __future__ import annotations

import click

from lpot.cli.output import OK, WRONG_CALL, Output, command


@click.command(short_help="Check this machine: what it has and what is missing.")
@command
def doctor(out: Output) -> int:
    """Show CPU features, frameworks and their versions, and what is missing."""
    from lpot.jobs.doctor import diagnose
    from lpot.report.table import checks

    with out.progress() as listener:
        listener.phase("checking this machine")
        found = diagnose()
    out.show(checks(found.rows()))
    out.show("ready" if found.ok else "not ready: see the failed checks above")
    out.tell(found.to_json())
    return OK if found.ok else WRONG_CALL
