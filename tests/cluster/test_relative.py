"""Times of two machines are made comparable by FP32, which both have timed."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from lpot.core.trial import Score
from lpot.jobs.benchmark.quick_look import QuickLook
from lpot.jobs.execute.kit import Kit, Relative


class Look(QuickLook):
    """A machine on which each model takes the time that its name says."""

    def __call__(self, model: Any, score: Score) -> Score:
        return replace(score, latency=float(model))


def test_a_slower_machine_tells_the_same() -> None:
    known = 0.010  # seconds of FP32 where the driver runs
    slower = Relative(Look(time=True), "0.030", known)  # type: ignore[arg-type]
    low = slower("0.015", Score(1.0))  # type: ignore[arg-type]
    assert low.latency == 0.005  # half of FP32's, wherever that is


def test_a_kit_opened_elsewhere_times_fp32_there_first() -> None:
    look = Look(time=True)

    def measure(elsewhere: bool, look: Look = look) -> Any:
        made = Kit(None, "toy", {}, Score(1.0, latency=0.01), None, True, look)  # type: ignore[arg-type]
        return replace(made, elsewhere=elsewhere)._measure("0.03")  # type: ignore[arg-type]

    assert measure(elsewhere=False) is look
    assert measure(elsewhere=True)("0.015", Score(1.0)).latency == 0.005
    untimed = Look(time=False)
    assert measure(elsewhere=True, look=untimed) is untimed


def test_what_is_not_timed_stays_so() -> None:
    class Blind(Look):
        def __call__(self, model: Any, score: Score) -> Score:
            return score

    assert Relative(Blind(), "0.03", 0.01)("x", Score(1.0)).latency is None  # type: ignore[arg-type]
