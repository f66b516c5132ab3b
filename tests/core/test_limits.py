"""When a run is over: each limit alone, and none before it is reached."""

from __future__ import annotations

import pytest

from lpot.core.limits import BAR_IS_MET, Limits, Watch


def watch(seconds: float = 0.0, **limits: float) -> Watch:
    """One whose clock shows so many seconds since it was started."""
    times = iter([100.0, *[100.0 + seconds] * 10])
    return Watch(Limits(**limits), lambda: next(times))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("limits", "seconds", "told", "reason"),
    [
        ({}, 1e9, (99, 4, False), None),
        ({}, 0.0, (1, 0, True), BAR_IS_MET),
        ({"timeout": 10}, 9.0, (1, 0, True), None),
        ({"timeout": 10}, 10.0, (1, 0, False), "timeout of 10 s reached"),
        ({}, 0.0, (100, 0, False), "max_trials of 100 reached"),
        ({"performance_only": True}, 0.0, (0, 0, False), None),
        ({"performance_only": True}, 0.0, (1, 0, False), "performance_only: one trial"),
        ({}, 0.0, (5, 5, False), "5 trials failed in a row"),
    ],
)
def test_each_limit(
    limits: dict[str, float], seconds: float, told: tuple[int, int, bool], reason: str | None
) -> None:
    assert watch(seconds, **limits).over(*told) == reason


def test_a_wish_comes_before_all_limits() -> None:
    asked = watch()
    asked.request_stop("enough")
    assert asked.over(100, 5, True) == asked.requested == "enough"
