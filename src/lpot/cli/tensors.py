"""`lpot inspect --tensors`: how far each op is from FP32, the worst first."""

from __future__ import annotations

from pathlib import Path

from lpot.cli.output import OK, Output
from lpot.core.errors import ConfigError

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
    from lpot.core.report import finite
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
