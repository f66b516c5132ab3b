"""Who else could run the model that was tuned: the other runtimes installed, timed beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from lpot.backends import get_backend, installed_runtimes, missing_for_runtime
from lpot.core.backend import Backend
from lpot.core.batch import Inputs
from lpot.core.errors import LpotError
from lpot.core.evaluation.evaluate import FunctionEvaluator
from lpot.core.framework import RUNTIMES
from lpot.core.measure import compare_timings
from lpot.core.model import Model
from lpot.core.numerics.rounding import sqnr
from lpot.core.ptq.distance import arrays, few
from lpot.core.results.benchmark import BenchmarkResult
from lpot.core.results.result import Result
from lpot.jobs.benchmark.contestant import Contestant
from lpot.jobs.benchmark.entry import saved
from lpot.jobs.benchmark.runtimes import entrant, precisions, title
from lpot.jobs.runtime.bridge import OWN
from lpot.jobs.tune.job import Job

LARGEST = 1 << 29  # bytes of a model that is written as ONNX just to see


@dataclass(frozen=True)
class Rivals:
    """Contestants with the runtime and what it runs, and what is to be said of others."""

    entered: Mapping[str, Contestant] = field(default_factory=dict)  # runtime → INT8 in it
    floats: Mapping[str, Contestant] = field(default_factory=dict)  # runtime → 16 bits alone
    notes: tuple[str, ...] = ()

    @property
    def contestants(self) -> list[Contestant]:
        return [*self.entered.values(), *self.floats.values()]


def runtime_of(backend: Backend[Any]) -> str:
    """What runs a backend's models: itself, or what the framework's own runtime is called."""
    return OWN.get(backend.name, backend.name)


def reference(job: Job, folder: Path) -> Contestant:
    """FP32 where the user has it now: in the framework that the model came from."""
    present = job.backend.present
    home = None if present is None else present.model
    if home is not None:
        return replace(saved(home, folder), label="FP32")
    one = saved(job.model, folder)
    return replace(one, framework=job.backend.over) if job.backend.over else one


def rivals(job: Job, result: Result, inputs: Inputs | None, folder: Path) -> Rivals:
    """The other runtimes installed, on the model as ONNX; which could be, is said in a note."""
    own = runtime_of(job.backend)
    others = [name for name in installed_runtimes() if name != own]
    missing = [name for name in RUNTIMES if name != own and missing_for_runtime(name)]
    packages = {name: " ".join(missing_for_runtime(name)) for name in missing}
    notes = tuple(
        f"{title(name)} is not installed: with it (pip install {packages[name]}) it is measured "
        "whether that runtime is faster"
        for name in missing
        if name == "openvino"
    )
    path = _as_onnx(job, result.model, inputs, folder) if others else None
    if path is None:
        return Rivals(notes=notes)
    entered = {name: entrant(name, path, f"tuned in {title(name)}") for name in others}
    given = job.request.model
    is_file = isinstance(given, str | Path) and Path(given).suffix == ".onnx"
    if not is_file:
        return Rivals(entered, notes=notes)
    alone = {
        name: entrant(name, Path(given).absolute(), f"bf16 in {title(name)}", "bf16")
        for name in others
        if "bf16" in precisions(name)
    }
    return Rivals(entered, alone, notes)


def _as_onnx(job: Job, model: Model, inputs: Inputs | None, folder: Path) -> Path | None:
    """Its own file where that is ONNX, else an export; None where it can't be had."""
    if job.best_path.suffix == ".onnx":
        return job.best_path if job.best_path.exists() else None
    if model.nbytes > LARGEST:
        return None
    try:
        return model.export_onnx(folder / "model.onnx", inputs)
    except LpotError:
        return None


def told(job: Job, found: Rivals, measured: BenchmarkResult) -> Sequence[str]:
    """What the fastest of the others would gain, if it is surely faster."""
    if not found.contestants:
        return found.notes
    rows = {model.label: model for model in measured.models}
    tuned = measured.models[1]
    if tuned.timing is None:
        return found.notes
    best, said = 1.0, ""
    choices = [(name, one, "") for name, one in found.entered.items()]
    choices += [(name, one, ", without INT8") for name, one in found.floats.items()]
    for name, one, how in choices:
        row = rows.get(one.label)
        if row is None or row.timing is None:
            continue
        ratio = compare_timings(tuned.timing, row.timing)
        # CPU time, which is what a busy machine leaves, tells nothing across runtimes: they wait in
        # ways of their own.
        if ratio.verdict == "faster" and not ratio.busy and ratio.ratio > best:
            best = ratio.ratio
            said = (
                f"{title(name)} runs this model {ratio.ratio:.2f} times as fast{how} (measured "
                f"here, in turns): {job.request.door.runtime.format(name)} tunes it for that"
            )
    return (said, *found.notes) if said else found.notes


def agreement(job: Job, result: Result) -> str:
    """How far the runtime is from the one that an evaluation of its own has used; '' if it can't.

    A function that is given a model's proto opens it by itself: its score is not this runtime's.
    """
    alone = isinstance(job.evaluator, FunctionEvaluator) and not job.evaluator.takes_session
    if not job.backend.over or job.backend.present is not None or not alone:
        return ""
    observed = job.observe(result.recipe.samples)
    probe = [] if observed is None else few(observed.probe)
    if not probe or result.path is None:
        return ""
    other = get_backend(job.backend.over)
    opened = other.restore(result.path)
    worst = min(
        sqnr(one, two)
        for inputs in probe
        for one, two in zip(
            arrays(other.run(opened, inputs)),
            arrays(job.backend.run(result.model, inputs)),
            strict=True,
        )
    )
    opened.close()
    return (
        f"the accuracy is that of {title(runtime_of(other))}, which {job.request.door.evaluate} "
        f"opens by itself; on calibration data the outputs of {title(runtime_of(job.backend))} "
        f"are {worst:.0f} dB from those. Mark it with @lpot.takes_session to have it evaluate in "
        "the runtime that is shipped"
    )
