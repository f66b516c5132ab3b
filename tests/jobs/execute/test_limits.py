"""Clocks that do not count what nobody saw."""

from __future__ import annotations

import time

import pytest

from lpot.jobs.execute import processes as limits
from lpot.jobs.execute.processes import Awake


def test_a_process_that_was_stopped_blames_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [100.0]
    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    clock = Awake()
    now[0] += 1.5
    assert clock.look() == 1.5
    now[0] += 4000.0  # SIGSTOP, and SIGCONT an hour later
    assert clock.look() == 1.5 + limits.MOST
    now[0] += 0.2
    assert clock.look() == pytest.approx(1.7 + limits.MOST)
