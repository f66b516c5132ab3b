"""`lpot benchmark`: models against each other, in turns, each in a process of its own."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lpot.cli.output import OK, WRONG_CALL, Output, command
from lpot.core.errors import ConfigError

if TYPE_CHECKING:
    from lpot.core.progress import Listener
    from lpot.jobs.benchmark.order import Order

EPILOG = """\b
Examples:
  lpot benchmark net.onnx net_int8.onnx
  lpot benchmark net.onnx net_int8.onnx --shape image=1,3,224,224 --threads 4
  lpot benchmark net.onnx --layouts 1x2,2x1      one instance on two cores, or two on one each
  lpot benchmark net.onnx net_int8.onnx --profile
  lpot benchmark deploy.yaml --mode accuracy     a tuned model, with the metric of its yaml
  lpot benchmark deploy.yaml --mode accuracy --eval my_eval:accuracy
  lpot benchmark net_int8.onnx --runtimes
"""


@click.command(epilog=EPILOG, short_help="Compare the speed of models.")
@click.argument("models", nargs=-1, required=True, metavar="MODEL...")
@click.option(
    "--config",
    type=click.Path(path_type=Path),
    help="Yaml whose `evaluation` section has the settings; options override it.",
)
@click.option(
    "--mode",
    type=click.Choice(["performance", "accuracy"]),
    default="performance",
    help="What to measure.  [performance]",
)
@click.option(
    "--shape",
    "shapes",
    multiple=True,
    metavar="NAME=N,N,…",
    help="Shape of an input with dynamic dimensions; repeatable.",
)
@click.option("--batch-size", type=click.IntRange(min=1), help="Size of a dynamic first dimension.")
@click.option(
    "--eval",
    "evaluate",
    metavar="PKG.MOD:FUNC",
    help="With --mode accuracy: FUNC(model) returns the score, as in the tuning.",
)
@click.option("--threads", type=click.IntRange(min=1), help="Threads per operator.")
@click.option("--warmup", type=click.IntRange(min=0), help="Warm-up runs before timing.")
@click.option("--iteration", type=click.IntRange(min=1), help="Timed runs, over all rounds.")
@click.option(
    "--rounds", type=click.IntRange(min=1), help="Turns per model; 8 or more to compare several."
)
@click.option("--seconds", type=float, help="Seconds to time each model, over all rounds.")
@click.option("--instances", type=click.IntRange(min=1), help="Processes per model.")
@click.option(
    "--cores-per-instance", type=click.IntRange(min=1), help="Pin each process to this many cores."
)
@click.option(
    "--layouts",
    metavar="NxC,NxC,…",
    help="Compare ways to split the cores: N instances of C cores each.",
)
@click.option(
    "--profile",
    is_flag=True,
    help="Time per op: give the FP32 model first, then the low-precision one.",
)
@click.option(
    "--runtimes",
    is_flag=True,
    help="Compare its framework, ONNX Runtime and OpenVINO on the same recipe.",
)
@command
def benchmark(
    out: Output,
    models: tuple[str, ...],
    config: Path | None,
    mode: str,
    shapes: tuple[str, ...],
    batch_size: int | None,
    evaluate: str | None,
    layouts: str | None,
    profile: bool,
    runtimes: bool,
    **settings: Any,
) -> int:
    """Measure models in turns, each in its own process, and compare them with the first one.

    MODEL is a file, a tuning's workspace or its deploy.yaml (the tuned model with its settings), or
    pkg.mod:factory, which returns a callable and its InputSpecs. "No significant difference" is a
    possible result. The exit status is 2 if a model, or one of its instances, failed.
    """
    from lpot.cli.resolve import look_here, run_elsewhere
    from lpot.jobs.benchmark.order import Order

    look_here()
    for model in models:
        if (status := run_elsewhere(None, model)) is not None:
            return status
    if profile and runtimes:
        raise ConfigError("cannot be combined with --profile", "--runtimes")
    order = Order.read(
        models,
        config=config,
        mode=mode,
        shapes=parse_shapes(shapes),
        batch_size=batch_size,
        layouts=layouts,
        evaluate=_function(evaluate, mode),
        changes={name: value for name, value in settings.items() if value is not None},
    )
    if profile:
        return _profile(out, order)
    if runtimes:
        return _runtimes(out, order)
    return _accuracy(out, order) if order.mode == "accuracy" else _performance(out, order)


def _function(reference: str | None, mode: str) -> Any:
    from lpot.cli.resolve import resolve
    from lpot.core.evaluation.eval_func import check_function

    if reference is None:
        return None
    if mode != "accuracy":
        raise ConfigError("goes with --mode accuracy", "--eval")
    found = resolve(reference, "--eval")
    check_function(found, "--eval")
    return found


def _performance(out: Output, order: Order) -> int:
    from lpot.report.table import benchmark_table

    with out.progress() as listener:
        listener.phase("starting one process per model")
        found = order.measure(_bar(listener))
    out.show(benchmark_table(found))
    status = OK if found.ok else WRONG_CALL
    out.tell({**found.to_json(), "exit": status})
    return status


def _accuracy(out: Output, order: Order) -> int:
    from lpot.report.table import listing

    with out.progress() as listener:
        scores = order.score(listener)
    rows = [
        (label, f"{score.accuracy:.6g}", str(score.samples or ""), f"{score.seconds:.3g}")
        for label, score in scores.items()
    ]
    out.show(listing(("model", "accuracy", "samples", "seconds"), rows))
    told = {label: score.to_json() for label, score in scores.items()}
    out.tell({"mode": "accuracy", "models": told, "exit": OK})
    return OK


def _profile(out: Output, order: Order) -> int:
    from lpot.core.results.profile import COLUMNS
    from lpot.report.table import listing

    with out.progress() as listener:
        listener.phase("starting one process per model")
        found = order.profile(_bar(listener))
    out.show(listing(COLUMNS, found.table()))
    out.show(found.summary())
    for note in found.notes:
        out.show(f"note: {note}")
    out.tell({**found.to_json(), "exit": OK})
    return OK


def _runtimes(out: Output, order: Order) -> int:
    from lpot.report.table import benchmark_table

    with out.progress() as listener:
        listener.phase("exporting the model to each runtime")
        found = order.runtimes(_bar(listener))
    out.show(benchmark_table(found.result))
    out.show(found.sentence)
    status = OK if found.result.ok else WRONG_CALL
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
                f"given {text!r}, expected NAME=N,N,…, e.g. image=1,3,224,224", "--shape"
            )
        found[name] = [int(word) for word in words]
    return found or None


def _bar(listener: Listener) -> Callable[[int, int], None]:
    def told(done: int, total: int) -> None:
        if done == 1:
            listener.phase("measuring in turns", total)
        listener.step(done)

    return told
