"""`lpot inspect`: every op of a model, what it can be, and why not more."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lpot.cli.output import OK, Output, command
from lpot.cli.place import READ
from lpot.core.errors import ConfigError

if TYPE_CHECKING:
    from lpot.core.space import Capability, OpInfo


@click.command(short_help="List every op and the precisions it supports.")
@click.argument("model", metavar="FILE|PKG.MOD:FACTORY")
@click.option("--framework", help="Detected from the model if omitted.")
@click.option(
    "--approach",
    type=click.Choice(["static", "dynamic", "auto"]),
    help="Kind of quantization.  [static, or as the framework's name implies]",
)
@click.option(
    "--target",
    type=click.Choice(["this", "avx2", "vnni", "amx"]),
    default="this",
    help="CPU the model will run on.",
)
@click.option("--tensors", is_flag=True, help="Compare FP32 and low precision, op by op.")
@click.option(
    "--against",
    type=READ,
    metavar="WORKSPACE|MODEL",
    help="With --tensors: the workspace of the tuning, or the tuned model.",
)
@click.option(
    "--calib", metavar="PKG.MOD:NAME", help="With --tensors: data loader; one batch is used."
)
@click.option("--op", "ops", multiple=True, help="With --tensors: only this op; repeatable.")
@click.option(
    "--trial",
    type=click.IntRange(min=1),
    metavar="N",
    help="With --tensors: trial N instead of the best.",
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    help="With --tensors: write an HTML page with histograms.",
)
@command
def inspect(
    out: Output,
    model: str,
    framework: str | None,
    approach: Any,
    target: Any,
    tensors: bool,
    **options: Any,
) -> int:
    """List every op of a model: the precisions it supports, and why not more.

    With --tensors: how far each op's output and weight are from FP32 after tuning, worst first.
    """
    from lpot.backends import detect, get_backend, implied_approach
    from lpot.cli.resolve import model_source, run_elsewhere
    from lpot.report.table import listing

    status = run_elsewhere(framework, model)
    if status is not None:
        return status
    if tensors:
        from lpot.cli.inspect import show_tensors

        return show_tensors(out, model, framework, **options)
    given = [name for name, value in options.items() if value]
    if given:
        raise ConfigError("can only be used with --tensors", f"--{given[0].removesuffix('s')}")
    with out.progress() as listener:
        listener.phase("loading the model")
        source = model_source(model)
        backend = get_backend(framework or detect(source))
        loaded = backend.load(source)
        approach = approach or implied_approach(framework) or "static"
        capability = backend.inspect(loaded, approach, target)
    rows = [(i.key.name, i.key.kind, can_be(i), i.reason) for i in capability.ops.values()]
    out.show(listing(("op", "kind", "supports", "reason"), rows))
    low = len(capability.low())
    out.show(f"{low} of {len(rows)} ops can run in low precision ({approach}, target {target})")
    for note in capability.notes:
        out.show(f"note: {note}")
    out.tell(_json(capability, backend.name, approach, target))
    return OK


def can_be(info: OpInfo) -> str:
    """A few words for a table: precisions and modes, the most wanted first."""
    if not info.can_be_low:
        return "fp32"
    if info.follower:
        return "int8 next to int8"
    modes = dict.fromkeys(
        f"{choice.mode} {choice.precision}" for choice in info.choices if not choice.is_float
    )
    return ", ".join(modes)


def _json(capability: Capability, framework: str, approach: str, target: str) -> dict[str, Any]:
    ops = [
        {
            "name": info.key.name,
            "kind": info.key.kind,
            "can_be_low": info.can_be_low,
            "follower": info.follower,
            "reason": info.reason,
            "choices": [choice.to_json() for choice in info.choices],
        }
        for info in capability.ops.values()
    ]
    return {
        "framework": framework,
        "approach": approach,
        "target": target,
        "ops": ops,
        "low": len(capability.low()),
        "notes": list(capability.notes),
    }


# -- `lpot inspect --tensors`: how far each op is from FP32, the worst first.


SHOWN = 40  # lines; the page and --json have all of them


def show_tensors(
    out: Output,
    model: str,
    framework: str | None,
    *,
    against: Path | None,
    calib: str | None,
    ops: tuple[str, ...],
    trial: int | None,
    output: Path | None,
) -> int:
    from lpot.cli.resolve import calibration_source, model_source
    from lpot.core.progress import heard_by
    from lpot.core.results.report import finite
    from lpot.jobs.inspect_tensors import compare_tensors
    from lpot.report.tensors import tensor_page, tensor_table

    if against is None:
        raise ConfigError(
            "missing: give the workspace of the tuning, or the model it saved", "--against"
        )
    if calib is None:
        raise ConfigError("missing: outputs are compared on a batch of real data", "--calib")
    with out.progress() as listener, heard_by(listener):
        listener.phase("comparing FP32 and low precision op by op")
        found = compare_tensors(
            model_source(model),
            against,
            calibration_source(calib),
            ops=ops,
            trial=trial,
            framework=framework,
        )
    if output is not None:
        from lpot.cli.report import write_page

        write_page(output, tensor_page(model, found))
    out.show(tensor_table(found, SHOWN))
    if len(found) > SHOWN:
        out.show(f"and {len(found) - SHOWN} more: use --json or --output FILE.html")
    if output is not None:
        out.show(f"page: {output}")
    out.tell({"model": model, "tensors": finite([item.to_json() for item in found])})
    return OK
