"""`lpot recover`: a trial of an earlier tuning, built again."""

from __future__ import annotations

from pathlib import Path

import click

from lpot.cli.output import OK, Output, command
from lpot.cli.place import READ


@click.command(short_help="Rebuild a trial of an earlier tuning.")
@click.argument("model", metavar="MODEL")
@click.argument("history", type=READ)
@click.argument("number", type=click.IntRange(min=1), metavar="N")
@click.option(
    "--output",
    "target",
    required=True,
    type=click.Path(path_type=Path),
    help="Where to write the model.",
)
@command
def recover(out: Output, model: str, history: Path, number: int, target: Path) -> int:
    """Rebuild trial N of an earlier tuning of MODEL; no data or evaluation needed.

    HISTORY is a workspace or its history.jsonl.
    """
    from lpot.cli.resolve import model_source, run_elsewhere
    from lpot.core.workspace import check_output
    from lpot.jobs.recover import recover as rebuild

    status = run_elsewhere(None, model)
    if status is not None:
        return status
    source = model_source(model)
    check_output(target, source)
    with out.progress() as listener:
        listener.phase(f"rebuilding trial {number}")
        built = rebuild(source, history, number)
        path = built.save(target)
    met = {True: "bar met", False: "bar missed", None: "not evaluated"}[built.met]
    floats = [] if built.recipe is None else [key.name for key in built.recipe.float_ops]
    out.show(f"trial {number} ({met}) written to {path}")
    out.tell({"model": str(path), "trial": number, "met": built.met, "fp32_ops": floats})
    return OK
