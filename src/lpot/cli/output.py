"""What every command shares: -v, -q, --json, where text goes, and what an error exits with."""

from __future__ import annotations

import contextlib
import errno
import functools
import io
import json
import logging
import sys
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, TextIO

import click

from lpot.core.errors import ConfigError, LpotError

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from lpot.core.progress import Listener

Progress = Literal["auto", "plain", "json", "none"]

OK, INTERNAL, WRONG_CALL, BEST_EFFORT, INTERRUPTED = 0, 1, 2, 3, 130
WIDE = 1000  # columns of a pipe: what is piped is not folded


@dataclass(frozen=True, eq=False)
class Output:
    """Results go to stdout, everything else to stderr."""

    stdout: TextIO
    verbose: int = 0
    quiet: bool = False
    as_json: bool = False

    @functools.cached_property
    def console(self) -> Console:
        from lpot.report.console import SafeConsole

        width = None if self.stdout.isatty() else WIDE
        return SafeConsole(file=self.stdout, width=width, highlight=False)

    @functools.cached_property
    def errors(self) -> Console:
        from lpot.report.console import SafeConsole

        return SafeConsole(stderr=True, highlight=False)

    def show(self, what: RenderableType) -> None:
        """For people; nothing under --json."""
        if self.as_json:
            return
        if self.console.is_terminal:
            self.console.print(what, markup=False)
            return
        with self.console.capture() as page:
            self.console.print(what, soft_wrap=isinstance(what, str), markup=False)
        # Tables pad their last column: of use on a screen, not in a file.
        lines = (line.rstrip() for line in page.get().splitlines())
        self.stdout.write("".join(f"{line}\n" for line in lines))
        self.stdout.flush()

    def tell(self, value: Any) -> None:
        """The one JSON object of --json; nothing without it."""
        if self.as_json:
            self.stdout.write(json.dumps(value, indent=1, default=str) + "\n")
            self.stdout.flush()

    def warn(self, text: str) -> None:
        """On stderr, like the lines of a log."""
        self.errors.print(f"warning: {text}", markup=False, soft_wrap=True)

    @contextlib.contextmanager
    def progress(self, kind: Progress = "auto") -> Iterator[Listener]:
        """A listener for a stretch of work; log lines go through the same console meanwhile."""
        listener = self._listener(kind)
        try:
            yield listener
        finally:
            listener.close()

    def _listener(self, kind: Progress) -> Listener:
        from lpot.core.progress import Listener

        if kind == "json":
            from lpot.report.jsonlines import JsonLinesListener

            return JsonLinesListener()
        if kind == "none" or self.quiet:
            return Listener()
        from lpot.report.terminal import TerminalListener

        return TerminalListener(self.errors, live=False if kind == "plain" else None)


class ConsoleHandler(logging.Handler):
    """Log lines through rich's console, so that they don't tear a live view."""

    def __init__(self, output: Output) -> None:
        super().__init__()
        self._output = output

    def emit(self, record: logging.LogRecord) -> None:
        line = f"{record.levelname.lower()}: {self.format(record)}"
        self._output.errors.print(line, markup=False, soft_wrap=True)


@contextlib.contextmanager
def logging_to(output: Output) -> Iterator[None]:
    """Our handler on the root logger while a command runs; library use sets none."""
    levels = {0: logging.WARNING, 1: logging.INFO}
    root, ours = logging.getLogger(), logging.getLogger("lpot")
    before = ours.level
    handler = ConsoleHandler(output)
    handler.setLevel(logging.ERROR if output.quiet else logging.NOTSET)
    root.addHandler(handler)
    ours.setLevel(levels.get(output.verbose, logging.DEBUG))
    try:
        yield
    finally:
        root.removeHandler(handler)
        ours.setLevel(before)


Command = Callable[..., int | None]


def verbosity(function: Callable[..., Any]) -> Callable[..., Any]:
    """-v and -q, before or after the command's name."""
    quiet = click.option("-q", "--quiet", is_flag=True, help="No progress, only the verdict.")
    verbose = click.option("-v", "--verbose", count=True, help="More output; repeat for debug.")
    return verbose(quiet(function))


def command(function: Command) -> Callable[..., int]:
    """A command's body, given an Output: its errors become messages and exit statuses."""

    @verbosity
    @click.option("--json", "as_json", is_flag=True, help="Print one JSON object to stdout.")
    @functools.wraps(function)
    def run(verbose: int, quiet: bool, as_json: bool, **options: Any) -> int:
        before = click.get_current_context().find_root().params
        verbose += before.get("verbose", 0)
        quiet = quiet or before.get("quiet", False)
        _never_choke(sys.stdout)
        output = Output(sys.stdout, verbose, quiet and not verbose, as_json)
        # What the user's functions print must not get into the JSON.
        aside = contextlib.redirect_stdout(sys.stderr) if as_json else contextlib.nullcontext()
        with logging_to(output), aside:
            return _run(function, output, options)

    return run


def _never_choke(stream: TextIO) -> None:
    """A terminal without Unicode gets a '?' for an arrow rather than an error."""
    known = (stream.encoding or "").lower().startswith("utf")
    if not known and isinstance(stream, io.TextIOWrapper):
        stream.reconfigure(errors="replace")


def _run(function: Command, output: Output, options: dict[str, Any]) -> int:
    try:
        return function(output, **options) or OK
    except LpotError as error:
        if output.verbose:
            output.errors.print(traceback.format_exc(), markup=False, soft_wrap=True)
        return _fail(output, error, WRONG_CALL)
    except OSError as error:
        if error.errno != errno.ENAMETOOLONG:
            raise
        name = max(Path(str(error.filename)).parts, key=len, default="")
        too_long = f"{name[:40]}… is longer than a file's name may be ({len(name)} characters)"
        return _fail(output, ConfigError(too_long), WRONG_CALL)
    except KeyboardInterrupt as error:
        return _fail(output, error, INTERRUPTED)


def _fail(output: Output, error: BaseException, status: int) -> int:
    text = str(error)
    if status == INTERRUPTED:
        text = "stopped. Finished trials are kept: run the same command again to resume"
    output.errors.print(f"error: {text}", style="red", markup=False, soft_wrap=True)
    output.tell(failure(error, text, status))
    return status


def failure(error: BaseException, text: str, status: int) -> dict[str, Any]:
    """What --json tells of a command that failed."""
    return {"error": {"kind": type(error).__name__, "message": text}, "exit": status}
