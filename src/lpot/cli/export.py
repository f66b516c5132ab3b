"""`lpot export`: a tuned model as a file for another runtime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lpot.cli.output import OK, Output, command

if TYPE_CHECKING:
    from lpot.core.model import Model


@click.command(short_help="Write a tuned model as ONNX.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT.onnx", type=click.Path(path_type=Path))
@click.option(
    "--module",
    metavar="PKG.MOD:FACTORY",
    help="PyTorch: creates the architecture; not needed for transformers models.",
)
@click.option(
    "--calib",
    metavar="PKG.MOD:NAME",
    help="Data loader; one batch defines the form of the inputs.  [as in calibration]",
)
@command
def export(out: Output, run: Path, target: Path, module: str | None, calib: str | None) -> int:
    """Write a tuned model to OUT.onnx: the same recipe, with Q/DQ pairs.

    RUN is the workspace of a tuning, or a model saved by lpot. PyTorch models also go to OUT.pt2.
    """
    from lpot.cli.resolve import calibration_source, model_source
    from lpot.core.workspace import check_output
    from lpot.jobs.load import load

    check_output(target, run)
    with out.progress() as listener:
        listener.phase("loading the model")
        model = load(run) if module is None else load(run, module=model_source(module))
        inputs = None if calib is None else _first_batch(model, calibration_source(calib))
        listener.phase(f"writing {target.name}")
        path = model.export_onnx(target, inputs)
    size = path.stat().st_size
    out.show(f"written to {path} ({size / 1e6:.1f} MB)")
    out.tell({"model": str(path), "bytes": size})
    return OK


def _first_batch(model: Model, loader: Any) -> Any:
    from lpot.core.batch import Reader
    from lpot.core.errors import CalibrationError

    for batch in loader:
        return Reader(model.input_names, model.tries())(batch).inputs
    raise CalibrationError("--calib yielded no batch: it is empty, or an exhausted generator")
