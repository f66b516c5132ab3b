"""`lpot export`: a tuned model as a file for another runtime."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from lpot.cli.output import OK, Output, command
from lpot.cli.place import READ

if TYPE_CHECKING:
    from lpot.core.model import Model


@click.command(short_help="Write a tuned model for another runtime.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("target", metavar="OUT", type=click.Path(path_type=Path))
@click.option(
    "--module",
    metavar="PKG.MOD:FACTORY",
    help="PyTorch: creates the architecture; not needed for transformers models. TensorFlow: the "
    "model that was tuned, or its path, if it was an object or has moved.",
)
@click.option(
    "--calib",
    metavar="PKG.MOD:NAME",
    help="Data loader; one batch defines the form of the inputs.  [as in calibration]",
)
@command
def export(out: Output, run: Path, target: Path, module: str | None, calib: str | None) -> int:
    """Write a tuned model to OUT, with the same recipe, and open it once.

    RUN is the workspace of a tuning, or a model saved by lpot. The ending of OUT names the format:
    .onnx (Q/DQ pairs), .xml (OpenVINO's IR, with its .bin), or .pt2 (PyTorch models).
    """
    from lpot.cli.resolve import calibration_source, model_source
    from lpot.core.files.workspace import check_output
    from lpot.jobs.recover import check_format, exportable
    from lpot.jobs.recover import export as write

    check_format(target)
    check_output(target, run)
    with out.progress() as listener:
        listener.phase("loading the model")
        model = exportable(run, None if module is None else model_source(module))
        if model.recipe is None:
            out.warn(f"{run} was not tuned: what is written is the model as it is, in FP32")
        inputs = None if calib is None else _first_batch(model, calibration_source(calib))
        listener.phase(f"writing {target.name}")
        path = write(model, target, inputs)
    size = path.stat().st_size
    out.show(f"written to {path} ({size / 1e6:.1f} MB)")
    out.tell({"model": str(path), "bytes": size})
    return OK


def _first_batch(model: Model, loader: Any) -> Any:
    from lpot.core.batch import Reader
    from lpot.core.errors import CalibrationError
    from lpot.core.loader import Loader

    if isinstance(loader, Path):
        raise CalibrationError(
            f"--calib: {loader} is a file; an export takes the loader of the calibration, as "
            "pkg.mod:name: one of its batches tells the form of the inputs"
        )
    batches = Loader(loader)
    if batches.is_empty:
        raise CalibrationError("--calib yielded no batch: it is empty, or an exhausted generator")
    return Reader(model.input_names, model.tries())(batches.peek()).inputs


# -- `lpot recover`: a trial of an earlier tuning, built again.


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
    from lpot.core.files.workspace import check_output
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


# -- `lpot generate`: look at a tuned decoder, FP32 beside it.


@click.command(short_help="Continue a prompt with a tuned decoder, next to FP32.")
@click.argument("run", metavar="RUN", type=click.Path(path_type=Path))
@click.argument("prompt")
@click.option(
    "--tokens",
    type=click.IntRange(min=1),
    default=32,
    show_default=True,
    help="Tokens to generate at most.",
)
@command
def generate(out: Output, run: Path, prompt: str, tokens: int) -> int:
    """Continue PROMPT with the decoder of RUN, always taking the most likely token.

    RUN is the workspace of a tuning with `approach: weight_only`. FP32's text is shown next to
    it, with the first token at which they differ.
    """
    from lpot.jobs.decoder.generate import continue_text

    with out.progress() as listener:
        listener.phase("generating")
        found = continue_text(run, prompt, tokens)
    out.show(f"low precision: {found.low}")
    if found.fp32 is not None:
        out.show(f"FP32:          {found.fp32}")
        where = found.parts_at
        same = f"the same for all {len(found.tokens)} tokens"
        out.show(same if where is None else f"they differ from token {where + 1} on")
    out.tell(found.to_json())
    return OK
