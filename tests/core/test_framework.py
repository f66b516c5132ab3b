"""One list of framework names, whoever asks."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from lpot.backends import BACKENDS, frameworks
from lpot.config import load
from lpot.config.availability import unavailable
from lpot.core import framework
from lpot.core.framework import ALIASES, FRAMEWORKS, NAMES, family
from lpot.data import DATALOADERS
from lpot.metric import BaseMetric, metric_registry, metrics_of
from lpot.metric import registry as metrics

ROOT = Path(__file__).parents[2] / "src" / "lpot"


def test_each_framework_has_a_backend() -> None:
    assert set(BACKENDS) == set(FRAMEWORKS)
    assert {served for served, _ in ALIASES.values()} <= set(FRAMEWORKS)


@pytest.mark.parametrize("name", NAMES)
def test_whoever_takes_names_takes_them_all(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(metrics, "_overlay", {})

    @metric_registry("mine", name)
    class Mine(BaseMetric):
        pass

    assert load({"model": {"framework": name}}).model.framework == name
    assert name in frameworks() and name in DATALOADERS
    assert family(name) in BACKENDS
    assert metrics_of(family(name))["mine"] is Mine


def test_a_name_added_here_is_known_to_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(framework, "registered", {"toy": object()})
    monkeypatch.setattr(metrics, "_overlay", {})
    assert load({"model": {"framework": "toy"}}).model.framework == "toy"
    assert "toy" in frameworks()
    metric_registry("mine", "toy")(BaseMetric)
    assert "mine" in metrics_of("toy") and "mine" not in metrics_of("onnx")


@pytest.mark.parametrize("name", ["pytorch_ipex", "tensorflow_itex"])
def test_an_extension_that_is_not_used_is_said(name: str) -> None:
    (note,) = unavailable(load({"model": {"framework": name}}))
    assert "without Intel's extension" in note


def test_no_second_list() -> None:
    """A file that spells out two of the aliases has a list of its own."""
    for path in ROOT.rglob("*.py"):
        tree = ast.parse(path.read_text("utf-8"))
        words = {node.value for node in ast.walk(tree) if isinstance(node, ast.Constant)}
        spelled = {word for word in words if isinstance(word, str)} & (ALIASES.keys() - {"torch"})
        if path.name not in ("framework.py", "availability.py"):
            assert len(spelled) < 2, f"{path.relative_to(ROOT)} lists {sorted(spelled)}"
