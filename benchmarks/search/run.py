"""The search against its peers: met, evaluations, samples, CPU, FP32 ops and speed of the answer.

    python benchmarks/search/run.py                         ours alone
    LPOT_NNCF_PYTHON=… LPOT_INC_PYTHON=… python benchmarks/search/run.py --net resnet20_hard
    … --only lpot --only NNCF                               those whose label holds one of these

The peers run in environments of their own, named by their interpreters; those that are not named
are left out. LPOT_INC_TRIALS caps the trials of INC, which spends 100 otherwise. CPU is given in
FP32 evaluations. Ratios mean something only on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from race import BATCH, RELATIVE, Race, float_compute, fp32_cpu, model_path
from rich.console import Console
from rich.table import Table

from lpot.core.results.benchmark import Settings
from lpot.jobs.benchmark.api import benchmark

HERE = Path(__file__).parent
NETS = ("resnet20", "resnet20_hard")
THREADS = 2


@dataclass(frozen=True)
class Contestant:
    label: str
    script: str
    variable: str = ""  # environment: the interpreter to run it with
    arguments: tuple[str, ...] = ()

    @property
    def python(self) -> str | None:
        return os.environ.get(self.variable) if self.variable else sys.executable


CONTESTANTS = (
    Contestant("lpot", "ours.py"),
    Contestant("ORT static", "ort_peer.py"),
    Contestant("NNCF, accuracy control", "nncf_peer.py", "LPOT_NNCF_PYTHON"),
    Contestant("INC 2.6, auto", "inc_peer.py", "LPOT_INC_PYTHON"),
    Contestant("INC 2.6, basic", "inc_peer.py", "LPOT_INC_PYTHON", ("basic",)),
)


def run(contestant: Contestant, net: str, folder: Path) -> dict[str, Any]:
    """The contestant's own account; with an `error` where it fell."""
    output = folder / f"{contestant.label.replace(' ', '_')}.onnx"
    paths = [str(HERE)] if contestant.variable else [entry for entry in sys.path if entry]
    command = [str(contestant.python), str(HERE / contestant.script), net, str(output)]
    done = subprocess.run(
        [*command, *contestant.arguments],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), "LPOT_THREADS": str(THREADS)},
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode:
        said = done.stderr.strip().splitlines() or ["no word"]
        return {"error": said[-1]}
    answer: dict[str, Any] = json.loads(done.stdout.strip().splitlines()[-1])
    return {**answer, "path": output if output.exists() else None}


def speeds(net: str, answers: dict[str, dict[str, Any]]) -> dict[str, float]:
    """Times faster than FP32, all measured in turns."""
    files = {label: answer["path"] for label, answer in answers.items() if answer.get("path")}
    result = benchmark(
        [model_path(net), *files.values()],
        feeds={"x": Race().images[:BATCH]},
        settings=Settings(threads=THREADS, seconds=4.0),
    )
    found = {}
    for label, measured in zip(files, result.models[1:], strict=True):
        if measured.comparison is not None:
            found[label] = measured.comparison.ratio
    return found


def race(net: str, only: list[str], console: Console, folder: Path) -> dict[str, Any]:
    unit = fp32_cpu(net)
    answers = {
        contestant.label: run(contestant, net, folder)
        for contestant in CONTESTANTS
        if contestant.python is not None and _chosen(contestant, only)
    }
    faster = speeds(net, answers)
    table = Table(title=f"{net}, at most {RELATIVE:.0%} lost", title_justify="left")
    for column in ("", "met", "top-1", "evaluations", "samples", "CPU", "FP32 ops", "faster"):
        table.add_column(column)
    for label, answer in answers.items():
        table.add_row(label, *_cells(answer, unit, faster.get(label)))
    console.print(table)
    return {
        label: {**answer, "path": None, "fp32_evaluations": answer.get("cpu", 0) / unit}
        for label, answer in answers.items()
    }


def _chosen(contestant: Contestant, only: list[str]) -> bool:
    return not only or any(word.lower() in contestant.label.lower() for word in only)


def _cells(answer: dict[str, Any], unit: float, faster: float | None) -> list[str]:
    if "error" in answer:
        return [f"failed: {answer['error'][:60]}"]
    path = answer["path"]
    return [
        "yes" if answer["met"] else "no",
        "–" if answer["accuracy"] is None else f"{answer['accuracy']:.4f}",
        str(answer["evaluations"]),
        str(answer["samples"]),
        f"{answer['cpu'] / unit:.1f}",
        "–" if path is None else str(float_compute(path)),
        "–" if faster is None else f"{faster:.2f}",
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--net", action="append", choices=NETS, help="all by default")
    parser.add_argument("--only", action="append", default=[], help="a part of a label")
    parser.add_argument("--json", type=Path, help="where to write the figures as well")
    given = parser.parse_args()
    console = Console(width=None if sys.stdout.isatty() else 110)
    with tempfile.TemporaryDirectory() as folder:
        nets = given.net or NETS
        found = {net: race(net, given.only, console, Path(folder)) for net in nets}
    if given.json is not None:
        given.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
