"""The command line. Commands import what they need when they run: `lpot --version` is quick."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from lpot.cli.benchmark import benchmark
from lpot.cli.config import doctor, schema, template
from lpot.cli.demo import demo
from lpot.cli.export import export, generate, recover
from lpot.cli.inspect import inspect
from lpot.cli.output import INTERRUPTED, WRONG_CALL, verbosity
from lpot.cli.report import dashboard, report
from lpot.cli.tune import tune
from lpot.cli.tune_all import tune_all, tune_row
from lpot.cli.unexpected import unexpected
from lpot.core.errors import did_you_mean
from lpot.version import VERSION


class Commands(click.Group):
    """Click's group with our exit statuses, and the nearest name for a misspelt command."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        # In the order a person meets them.
        return [name for name, found in self.commands.items() if not found.hidden]

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if self.get_command(ctx, name) is None and not name.startswith("-"):
            known = self.list_commands(ctx)
            near = did_you_mean(name, known) or f"; there are: {', '.join(known)}"
            ctx.fail(f"no such command {name!r}{near}")
        return super().resolve_command(ctx, args)

    def main(self, *args: Any, **extra: Any) -> NoReturn:
        extra["standalone_mode"] = False
        try:
            status = super().main(*args, **extra)
        except click.ClickException as error:
            error.show()
            status = WRONG_CALL
        except click.Abort:
            status = INTERRUPTED
        except Exception as error:  # the last line: a user should not have to read a traceback
            status = unexpected(error, verbose=_is_verbose(extra.get("args")))
        sys.exit(status or 0)


def _is_verbose(args: Sequence[str] | None) -> bool:
    words = sys.argv[1:] if args is None else args
    return any(re.fullmatch(r"-v+|--verbose", word) for word in words)


EPILOG = """\b
Completion with the Tab key, in shells started from then on:
  bash  echo 'eval "$(_LPOT_COMPLETE=bash_source lpot)"' >> ~/.bashrc
  zsh   echo 'eval "$(_LPOT_COMPLETE=zsh_source lpot)"' >> ~/.zshrc
  fish  _LPOT_COMPLETE=fish_source lpot > ~/.config/fish/completions/lpot.fish
"""


@click.group(cls=Commands, epilog=EPILOG, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(VERSION, prog_name="lpot", message="%(prog)s %(version)s")
@verbosity
def cli(verbose: int, quiet: bool) -> None:
    """From an FP32 model to the fastest low-precision one that meets your accuracy bar.

    Try `lpot demo`; then `lpot tune --help`.
    """


for _command in (
    demo,
    tune,
    tune_all,
    tune_row,
    benchmark,
    inspect,
    generate,
    report,
    dashboard,
    recover,
    export,
    doctor,
    schema,
    template,
):
    cli.add_command(_command)


def main() -> NoReturn:
    """The `lpot` command."""
    cli.main(prog_name="lpot")
