"""Where to run a tuned model: its framework, ONNX Runtime and OpenVINO on the same recipe."""

from __future__ import annotations

import importlib.util
import json
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from lpot.backends import detect
from lpot.core.batch import Inputs
from lpot.core.cpu import this_cpu
from lpot.core.errors import HistoryError, LpotError, UnsupportedModel
from lpot.core.feed import settle, synthetic
from lpot.core.files.history import History
from lpot.core.files.untrusted import read_json
from lpot.core.files.workspace import Workspace
from lpot.core.framework import RUNTIMES
from lpot.core.measure import Comparison, compare_timings
from lpot.core.model import Model
from lpot.core.numerics.rounding import sqnr
from lpot.core.results.benchmark import BenchmarkResult, Settings
from lpot.jobs.benchmark.api import Progress, benchmark
from lpot.jobs.benchmark.contestant import Contestant
from lpot.jobs.benchmark.entry import Source, saved
from lpot.jobs.benchmark.feed import Feed
from lpot.jobs.benchmark.team import Team
from lpot.jobs.recover import recover

# Besides ONNX Runtime: its title, the package it needs, and what opens an ONNX file with it.
OTHERS = {"openvino": ("OpenVINO", "openvino", "lpot.backends.openvino.session:open_onnx")}
BF16 = ("avx512_bf16", "amx_bf16", "bf16")
ALIKE = 20.0  # dB between the outputs of two runtimes; below it they don't run the same model


@dataclass(frozen=True)
class Choice:
    """Which runtime is the fastest here; `margin` is against the next one."""

    result: BenchmarkResult
    fastest: str
    margin: Comparison | None = None
    runner_up: str = ""

    @property
    def sentence(self) -> str:
        if self.margin is None:
            return f"{self.fastest} is the only one that could be measured"
        span = f"between {self.margin.low:.2f} and {self.margin.high:.2f}"
        if not self.margin.significant:
            return (
                f"no significant difference here between {self.fastest} and {self.runner_up} "
                f"({self.margin.ratio:.2f} times, {span}): choose the one you know"
            )
        return (
            f"{self.fastest} is the fastest here: {self.margin.ratio:.2f} times the speed of "
            f"{self.runner_up} ({span})"
        )

    def to_json(self) -> dict[str, Any]:
        return {
            **self.result.to_json(),
            "fastest": self.fastest,
            "runner_up": self.runner_up,
            "margin": None if self.margin is None else self.margin.to_json(),
            "sentence": self.sentence,
        }


def title(runtime: str) -> str:
    if runtime == "onnxruntime":
        return "ONNX Runtime"
    return OTHERS[runtime][0] if runtime in OTHERS else runtime


def precisions(runtime: str) -> tuple[str, ...]:
    """In which it can compute what is not INT8 on this CPU; the word is empty for the only one."""
    if runtime != "openvino":
        return ("",)
    return ("f32", "bf16") if this_cpu().has(*BF16) else ("f32",)


def entrant(runtime: str, path: Path, label: str, floats: str = "") -> Contestant:
    """An ONNX file in a runtime."""
    if runtime not in OTHERS:
        own = {"onnxruntime": "onnx"}.get(runtime, runtime)
        return Contestant(str(path), label=label, framework=own)
    given = {"path": str(path)} | ({"floats": floats} if floats else {})
    return Contestant(OTHERS[runtime][2], "callable", label, arguments=given)


def runtimes(
    model: Model,
    inputs: Inputs | None = None,
    *,
    batch_size: int | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    settings: Settings = Settings(),  # noqa: B008 - a frozen value
    progress: Progress | None = None,
) -> Choice:
    """Time a tuned model in its framework, and written as ONNX in the other runtimes.

    Args:
        model: the handle that a tuning gives, or `lpot.load`.
        inputs: one batch, by place or by name; the first of calibration, or made up, if not given.
    """
    feed = _inputs(model, inputs, batch_size, shapes)
    with tempfile.TemporaryDirectory(prefix="lpot-runtimes-") as folder:
        path = _write(model, Path(folder) / "model.onnx", feed)
        entered: list[Source] = []
        own, label = Path(folder) / "own", title("onnxruntime")
        if model.framework == detect(path):  # with what only ONNX Runtime reads, if that is faster
            entered.append(replace(saved(model, own), label=label))
        else:
            if model.framework not in RUNTIMES:
                entered.append(replace(saved(model, own), label=model.framework))
            entered.append(entrant("onnxruntime", path, label))
        notes = []
        for name, (_, package, _) in OTHERS.items():
            if importlib.util.find_spec(package) is None:
                notes.append(f"{title(name)} is not installed: pip install {package}")
                continue
            for word in precisions(name):
                label = f"{title(name)} {word}".strip()
                entered.append(entrant(name, path, label, word))
            if "bf16" in precisions(name):
                notes.append(
                    f"{title(name)} computes what is not INT8 in f32 or bf16; by itself it takes "
                    "bf16 on this CPU, which is faster and less exact: INFERENCE_PRECISION_HINT "
                    "chooses"
                )
        model.close()
        result = benchmark(
            entered,
            feeds=_by_place(feed),
            settings=settings,
            progress=progress,
            look=lambda teams: [*notes, *_compared(teams)],
        )
    return choose(result)


def choose(result: BenchmarkResult) -> Choice:
    """The fastest, and by how much, of those that were measured."""
    standing = [model for model in result.models if model.timing is not None]
    first, *others = sorted(standing, key=lambda model: -model.speed)
    if not others:
        return Choice(result, first.label)
    second = others[0]
    assert first.timing is not None and second.timing is not None
    margin = compare_timings(second.timing, first.timing)
    if margin.ratio < 1:  # both are judged against a third, where noise may turn them round
        margin = compare_timings(first.timing, second.timing)
        first, second = second, first
    return Choice(result, first.label, margin, second.label)


def tuned_again(fp32: Any, workspace: str | Path) -> Model:
    """The best model of a workspace, built anew from the FP32 model and what the tuning kept.

    For frameworks whose saved INT8 ops no other runtime has: what is built can still be exported.
    """
    place = Workspace(Path(workspace))
    raw = read_json(place.result, "tune in that workspace first")
    recipe = raw.get("recipe") if isinstance(raw, dict) else None
    if recipe is None:
        raise HistoryError(f"{place.result}: no finished tuning: tune there first")
    for trial in History.read(place.history).trials:
        if json.loads(json.dumps(trial.recipe.to_json())) == recipe:
            return recover(fp32, place.history, trial.number)
    raise HistoryError(f"{place.history}: the best model's recipe is not among its trials")


def _inputs(
    model: Model,
    inputs: Inputs | None,
    batch_size: int | None,
    shapes: Mapping[str, Sequence[int]] | None,
) -> Inputs:
    given = inputs if inputs is not None else model.probe
    if given is not None:
        return given
    if model.inputs is None:
        raise UnsupportedModel(
            "the framework does not report the model's inputs: give one batch of inputs"
        )
    return synthetic(settle(model.inputs, shapes, batch_size).inputs)


def _by_place(feed: Inputs) -> Feed:
    """A runtime may call an input otherwise than the framework does: their order is the same."""
    return tuple(feed.values()) if isinstance(feed, dict) else tuple(feed)


def _write(model: Model, path: Path, feed: Inputs) -> Path:
    return model.export_onnx(path, feed)


def _compared(teams: Sequence[Team]) -> list[str]:
    """A note for each runtime whose outputs are not those of the first."""
    notes = []
    truth = _outputs(teams[0])
    for team in teams[1:]:
        found = _outputs(team)
        if [a.shape for a in found] != [b.shape for b in truth]:
            notes.append(f"{team.contestant.label} gives outputs of different shapes")
            continue
        worst = min((sqnr(a, b) for a, b in zip(truth, found, strict=True)), default=np.inf)
        if worst < ALIKE:
            notes.append(
                f"warning: the outputs of {team.contestant.label} differ from those of "
                f"{teams[0].contestant.label} (SQNR {worst:.0f} dB): check its accuracy"
            )
    return notes


def _outputs(team: Team) -> list[np.ndarray]:
    try:
        with np.load(team.outputs, allow_pickle=False) as stored:
            return [stored[name] for name in stored.files]
    except (OSError, ValueError) as error:
        raise LpotError(f"{team.contestant.label}: its outputs were not kept ({error})") from error
