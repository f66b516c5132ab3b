"""The command line. Commands import what they need when they run: `lpot --version` is quick."""

from __future__ import annotations

import json
import os
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
from lpot.cli.output import INTERRUPTED, WRONG_CALL, failure, verbosity
from lpot.cli.report import dashboard, report
from lpot.cli.tune import tune
from lpot.cli.tune_all import tune_all, tune_row
from lpot.cli.unexpected import refuse_silent_exits, unexpected
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

    def main(self, args: Sequence[str] | None = None, *more: Any, **extra: Any) -> NoReturn:
        extra["standalone_mode"] = False
        words = [_at_home(word) for word in (sys.argv[1:] if args is None else args)]
        as_json = "--json" in words
        try:
            status = super().main(words, *more, **extra)
        except click.ClickException as error:
            error.show()
            status = WRONG_CALL
            _tell(as_json, error, error.format_message(), status)
        except click.Abort:
            status = INTERRUPTED
        except Exception as error:  # the last line: a user should not have to read a traceback
            text, status = unexpected(error, verbose=_is_verbose(words))
            _tell(as_json, error, text, status)
        sys.exit(status or 0)


def _tell(as_json: bool, error: Exception, text: str, status: int) -> None:
    """Whoever reads JSON reads why there is no result, too."""
    if as_json:
        sys.stdout.write(json.dumps(failure(error, text, status), indent=1) + "\n")


def _at_home(word: str) -> str:
    """`~` as the user's folder, where the shell has left it: in quotes, behind `--option=`."""
    option, equals, value = word.partition("=") if word.startswith("--") else ("", "", word)
    return f"{option}{equals}{os.path.expanduser(value)}"  # noqa: PTH111 - Path's may raise


def _is_verbose(words: Sequence[str]) -> bool:
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
    refuse_silent_exits()
    cli.main(prog_name="lpot")
