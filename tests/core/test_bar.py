"""Bars said as what to keep: percentages, shares, and MLPerf's presets."""

from __future__ import annotations

import pytest

import lpot
from lpot.config.load import load
from lpot.config.rules import goal
from lpot.core.errors import ConfigError
from lpot.core.goal import Goal, share_lost


@pytest.mark.parametrize(
    ("bar", "lost"),
    [
        ("99%", 0.01),
        ("99.9 %", 0.001),
        (0.99, 0.01),
        ("0.995", 0.005),
        ("mlperf", 0.01),
        ("MLPerf-High", 0.001),
        (1, 0.0),
    ],
)
def test_what_may_be_lost(bar: float | str, lost: float) -> None:
    assert share_lost(bar) == lost
    assert Goal.keeping(bar) == Goal(relative=lost)
    assert goal(load({"tuning": {"accuracy_criterion": {"bar": bar}}})) == Goal(relative=lost)


@pytest.mark.parametrize("bar", ["1%", 0.01, "99", 1.5, "mlpref", True, "", "-99%", 0, [0.99]])
def test_what_is_no_bar(bar: object) -> None:
    """One per cent to keep is a mistake for one per cent to lose."""
    with pytest.raises(ValueError, match="such as '99%'"):
        share_lost(bar)  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="bar"):
        load({"tuning": {"accuracy_criterion": {"bar": bar}}})
    with pytest.raises(ConfigError, match="bar"):
        lpot.tune("net.onnx", bar=bar)  # type: ignore[arg-type]


def test_one_bar_only() -> None:
    with pytest.raises(ConfigError, match="use one of them"):
        load({"tuning": {"accuracy_criterion": {"bar": "99%", "absolute": 0.1}}})
    with pytest.raises(ConfigError, match="use one of them"):
        lpot.tune("net.onnx", goal=0.01, bar="99%")


def test_lower_is_better() -> None:
    criterion = {"bar": "99%", "higher_is_better": False}
    found = goal(load({"tuning": {"accuracy_criterion": criterion}}))
    assert found.is_met(20.2, baseline=20.0) and not found.is_met(20.3, baseline=20.0)


def test_on_the_command_line() -> None:
    from click.testing import CliRunner

    from lpot.cli import cli

    done = CliRunner().invoke(cli, ["tune", "--model", "x.onnx", "--bar", "1%"])
    assert done.exit_code == 2 and "--bar: given '1%'" in done.stderr
    done = CliRunner().invoke(
        cli, ["tune", "--model", "x.onnx", "--bar", "99%", "--relative", "0.01"]
    )
    assert done.exit_code == 2 and "cannot be combined with --relative" in done.stderr
