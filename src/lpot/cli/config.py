"""`lpot schema` and `lpot template`: the configuration for editors and for people."""

from __future__ import annotations

import json

import click

from lpot.cli.output import OK, WRONG_CALL, Output, command


@click.command()
def schema() -> None:
    """Print the JSON Schema of the yaml file, for editors."""
    from lpot.config import json_schema

    click.echo(json.dumps(json_schema(), indent=2))


@click.command()
def template() -> None:
    """Print a yaml file with every key, its default and what it does."""
    from lpot.config.template import template as text

    click.echo(text(), nl=False)


# -- `lpot doctor`: what this machine has and what is missing.


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
