"""`lpot benchmark`: models against each other, in turns, each in a process of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from lpot.cli.output import OK, WRONG_CALL, Output, command
from lpot.core.errors import ConfigError

if TYPE_CHECKING:
    from lpot.core.progress import Listener

EPILOG = """\b
Examples:
  lpot benchmark net.onnx net_int8.onnx
  lpot benchmark net.onnx net_int8.onnx --shape image=1,3,224,224 --threads 4
"""


@click.command(epilog=EPILOG, short_help="Measure models against the first one.")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=N,N,…",
    help="Sizes of an input, where the model leaves them open; repeat it.",
)
@click.option("--batch-size", type=click.IntRange(min=1), help="Size of an open first dimension.")
@click.option("--threads", type=click.IntRange(min=1), help="Threads of one operator.")
@click.option("--warmup", type=click.IntRange(min=0), help="Runs before the timed ones.")
@click.option("--iteration", type=click.IntRange(min=1), help="Timed runs over all rounds.")
@click.option("--rounds", type=click.IntRange(min=1), help="Turns each model gets.")
@click.option("--seconds", type=float, help="Timed seconds of each model over all rounds.")
@click.option("--instances", type=click.IntRange(min=1), help="Processes of each model.")
@click.option("--cores-per-instance", type=click.IntRange(min=1), help="Pin each to so many.")
@command
def benchmark(
    out: Output,
    models: tuple[str, ...],
    shapes: tuple[str, ...],
    batch_size: int | None,
    **settings: Any,
) -> int:
    """Measure models against the first one, interleaved, with threads set.

    MODEL is a file, or pkg.mod:factory that returns a callable and its InputSpecs. "No
    significant difference" is a possible answer.
    """
    from lpot.cli.resolve import look_here
    from lpot.core.benchmark import Settings
    from lpot.jobs.benchmark import benchmark as measure
    from lpot.report.table import benchmark_table

    look_here()
    chosen = Settings(**{name: value for name, value in settings.items() if value is not None})
    with out.progress() as listener:
        listener.phase("starting a process for each model")
        found = measure(
            models,
            shapes=parse_shapes(shapes),
            batch_size=batch_size,
            settings=chosen,
            progress=_bar(listener),
        )
    out.show(benchmark_table(found))
    status = OK if found.ok else WRONG_CALL
    out.tell({**found.to_json(), "exit": status})
    return status


def parse_shapes(texts: tuple[str, ...]) -> dict[str, list[int]] | None:
    """
    >>> parse_shapes(("image=1,3,224,224", "ids=1x128"))
    {'image': [1, 3, 224, 224], 'ids': [1, 128]}
    """
    found: dict[str, list[int]] = {}
    for text in texts:
        name, equals, sizes = text.rpartition("=")
        words = re.split(r"[,x\s]+", sizes.strip())
        if not equals or not name or not all(word.isdigit() for word in words):
            raise ConfigError(
                f"given {text!r}, expected NAME=N,N,… as image=1,3,224,224", "--shape"
            )
        found[name] = [int(word) for word in words]
    return found or None


def _bar(listener: Listener) -> Callable[[int, int], None]:
    def told(done: int, total: int) -> None:
        if done == 1:
            listener.phase("measuring in turns", total)
        listener.step(done)

    return told
