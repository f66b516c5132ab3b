"""`lpot schema` and `lpot template`: the configuration for editors and for people."""

from __future__ import annotations

import json

import click


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
