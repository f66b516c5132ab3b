"""Every strategy on the same torn nets, beside the true minimum found by trying all sets.

LPOT_WRITE_DOCS=1 pytest -m slow tests/search/test_compared.py    writes docs/strategies.md anew
"""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime")

from lpot.backends.onnx import OnnxBackend
from lpot.core.goal import Goal
from lpot.core.space import restrict
from lpot.jobs.tune.api import tune
from search.tear import GUILTY, Torn
from search.tear_more import GUILTY_MORE

PAGE = Path(__file__).resolve().parents[2] / "docs" / "strategies.md"
TRIALS = 15
NETS: dict[str, Callable[[int], Torn]] = {
    name: {**GUILTY, **GUILTY_MORE}[name]
    for name in ("stubborn layer", "loud tokens", "mixed head", "two stubborn")
}
LOSS = {"two stubborn": 0.05}  # that is allowed; 0.1 for the others
BY_DRAWING = ("bayesian", "tpe", "random", "exhaustive")
STRATEGIES = ("basic", "auto", "mse", "mse_v2", *BY_DRAWING, "conservative")


@dataclass(frozen=True)
class Run:
    met: bool
    evaluations: int
    floats: int  # compute ops in FP32


def run(name: str, strategy: str, folder: Path, seconds: float = 0, trials: int = TRIALS) -> Run:
    torn = NETS[name](0)
    limits = {"timeout": seconds, "max_trials": trials}
    result = tune(
        torn.model,
        calib=torn.batches[:-1],
        evaluate=torn.score,
        goal=_goal(name),
        workspace=folder,
        measure_speed=False,
        config={"tuning": {"strategy": {"name": strategy}, "exit_policy": limits}},
    )
    return Run(bool(result.met), result.evaluations, len(result.float_ops))


def minimum(name: str) -> tuple[int, int]:
    """The fewest ops in FP32 with which the bar holds, and how many sets were tried for it."""
    torn, goal = NETS[name](0), _goal(name)
    backend = OnnxBackend()
    model = backend.load(torn.model)
    space = restrict(backend.inspect(model), ())
    seen = backend.observe(model, torn.batches[:-1])[0]
    start = space.default()
    keys = [key for key in space.choices if key not in space.followers]
    tried = 0
    for count in range(len(keys)):
        for chosen in combinations(keys, count):
            tried += 1
            built = backend.build(model, start.with_float(chosen), seen)
            if goal.is_met(torn.score(built.native), 1.0):
                return count, tried
    raise AssertionError("nothing but FP32 meets the bar")


def _goal(name: str) -> Goal:
    return Goal(absolute=LOSS.get(name, 0.1))


@pytest.mark.slow
def test_no_strategy_is_worse_than_basic(tmp_path: Path) -> None:
    least = {name: minimum(name) for name in NETS}
    found: dict[tuple[str, str, bool], Run] = {}
    for name in NETS:
        for strategy in STRATEGIES:
            for timed in (False, True):
                folder = tmp_path / f"{name} {strategy} {timed}"
                found[name, strategy, timed] = run(name, strategy, folder, 600.0 * timed)
    if os.environ.get("LPOT_WRITE_DOCS"):
        PAGE.write_text(page(least, found), "utf-8")
    for (name, strategy, timed), one in found.items():
        assert one.met, (name, strategy, timed)
        basic = found[name, "basic", timed]
        if strategy == "conservative":  # from the other side: it may keep more in FP32
            continue
        if strategy in BY_DRAWING and not timed:
            assert one == basic, (name, strategy)
        if strategy in ("auto", "mse_v2") or (timed and strategy == "basic"):
            assert one.floats == least[name][0], (name, strategy, timed, one)
        if strategy in BY_DRAWING and timed:
            assert one.floats <= found[name, "basic", False].floats, (name, strategy)


def page(least: dict[str, tuple[int, int]], found: dict[tuple[str, str, bool], Run]) -> str:
    lines = [
        "# Strategies compared",
        "",
        "Written by `LPOT_WRITE_DOCS=1 pytest -m slow tests/search/test_compared.py`: four small",
        "ONNX nets distorted so that some op must stay in FP32, each strategy with its defaults",
        f"and at most {TRIALS} trials. *Evaluations* include FP32's own. The true minimum was",
        "found by trying all sets of ops, the smallest first, with the ranges that all strategies",
        "begin with: a strategy that also tries other ranges may need fewer.",
    ]
    for timed, title in (
        (False, "`timeout: 0`: the first success ends it, unless the strategy settles"),
        (True, "With time left"),
    ):
        lines += ["", f"## {title}", "", f"| strategy | {' | '.join(NETS)} |"]
        lines.append("| --- |" + " --- |" * len(NETS))
        told = [f"{count} FP32 ({sets} sets)" for count, sets in least.values()]
        lines.append(f"| *true minimum* | {' | '.join(told)} |")
        for strategy in STRATEGIES:
            cells = [_cell(found[name, strategy, timed]) for name in NETS]
            lines.append(f"| `{strategy}` | {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _cell(one: Run) -> str:
    word = "met" if one.met else "**missed**"
    return f"{word}, {one.evaluations} evaluations, {one.floats} FP32"
