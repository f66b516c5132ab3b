"""Statistics of channels, and the books of a calibration pass."""

from __future__ import annotations

import warnings

import numpy as np
import pytest

from lpot.core.errors import CalibrationError
from lpot.core.numerics.observations import PROBE_SAMPLES, ChannelStats, Observations, Snapshots

MOST = np.finfo(np.float32).max


def test_means_are_weighted_by_samples():
    stats = ChannelStats()
    stats.average("x", np.array([1.0, 2.0], np.float32), 1.0)
    stats.average("x", np.array([4.0, 8.0], np.float32), 1 / 3)
    np.testing.assert_allclose(stats.means()["x"], [2.0, 4.0])
    assert stats.means()["x"].dtype == np.float32


def test_means_at_the_end_of_float32_neither_warn_nor_overflow():
    stats = ChannelStats()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for batch in range(1, 5):
            stats.average("x", np.full(2, MOST, np.float32), 1 / batch)
            stats.average("lost", np.full(2, np.inf * (-1) ** batch, np.float32), 1 / batch)
        assert list(stats.means()) == ["x"]
        np.testing.assert_allclose(stats.means()["x"], MOST)


def test_extremes_grow_and_those_that_are_not_finite_are_left_out():
    stats = ChannelStats()
    stats.widen("x", np.array([-1.0, 0.0]), np.array([1.0, 2.0]))
    stats.widen("x", np.array([0.0, -3.0]), np.array([4.0, 0.0]))
    stats.widen("lost", np.array([-np.inf]), np.array([0.0]))
    (found,) = stats.extremes().values()
    assert (found.low.tolist(), found.high.tolist()) == ([-1.0, -3.0], [4.0, 2.0])


def test_a_snapshot_for_each_size_and_a_bounded_probe(monkeypatch: pytest.MonkeyPatch):
    found = Snapshots((8, 16), lambda seen, probe: Observations(seen, {}, probe))
    buffer = np.zeros((8, 1), np.float32)
    for number in range(2):
        buffer[:] = number
        assert not found.is_complete
        found.add((buffer,), 8)
    assert found.is_complete
    assert {size: (item.samples, len(item.probe)) for size, item in found.all().items()} == {
        8: (8, 1),
        16: (16, 2),
    }
    assert [float(inputs[0][0, 0]) for inputs in found.all()[16].probe] == [0.0, 1.0]


def test_the_first_batch_is_kept_whatever_its_size(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("lpot.core.numerics.observations.PROBE_BYTES", 16)
    found = Snapshots((0,), lambda seen, probe: Observations(seen, {}, probe))
    for number in range(PROBE_SAMPLES):
        found.add((np.full((2, 4), number),), 2)
    assert not found.is_complete
    assert len(found.all()[0].probe) == 1


def test_no_batch_is_an_error():
    with pytest.raises(CalibrationError, match="yielded no batch"):
        Snapshots((0,), lambda seen, probe: Observations(seen, {}, probe)).all()
