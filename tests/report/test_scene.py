"""How much of the work is done, and how much time is left of it."""

from __future__ import annotations

from typing import Any

import pytest

from lpot.core.trial import Score
from lpot.report.scene import Scene


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def scene(clock: Clock) -> Scene:
    return Scene(clock)


def test_steps_tell_the_time_left(scene: Scene, clock: Clock) -> None:
    scene.enter("calibrating", 10)
    assert scene.share == 0 and scene.left is None  # nothing done: nobody can tell
    clock.now += 60  # a process starts, libraries are imported
    scene.step(1)
    assert scene.share == pytest.approx(0.1) and scene.left is None
    clock.now += 4
    scene.step(3)
    assert scene.share == pytest.approx(0.3)
    assert scene.left == pytest.approx(14)
    scene.enter("evaluating", 4)
    assert scene.left is None


def test_a_phase_of_unknown_length_says_so(scene: Scene, clock: Clock) -> None:
    scene.enter("loading the model")
    clock.now += 3
    assert scene.share is None and scene.left is None
    assert scene.elapsed == 3


def test_an_estimate_that_ran_out_is_not_done(scene: Scene, clock: Clock) -> None:
    scene.enter("trial 2", expected=4.0, is_trial=True)
    clock.now += 1
    assert scene.share == pytest.approx(0.25) and scene.left == pytest.approx(3)
    clock.now += 100
    assert scene.share is not None and scene.share < 1
    assert scene.left == 0


def test_a_trial_is_expected_to_take_as_long_as_those_before(scene: Scene, trial: Any) -> None:
    assert scene.trial_seconds is None
    scene.baseline = Score(0.9, 5.0)
    assert scene.trial_seconds == 5
    scene.hear(trial(1, 0.5, recalled=True), None)  # took no time, tells nothing
    assert scene.trial_seconds == 5
    scene.hear(trial(2, 0.5), None)
    assert scene.trial_seconds == 2


def test_the_search_ends_with_its_trials_or_its_timeout(
    scene: Scene, clock: Clock, trial: Any
) -> None:
    assert scene.search_left is None
    scene.baseline = Score(0.9, 2.0)
    scene.plan(6, 0.0)
    assert scene.search_left == 12
    scene.hear(trial(1, 0.5), None)
    assert scene.search_left == 10
    scene.plan(6, 3.0)
    assert scene.search_left == 3
    clock.now += 100
    assert scene.search_left == 0
