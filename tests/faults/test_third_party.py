"""A framework lpot has never heard of: registered, given as an object, or installed beside it."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lpot
import toy_backend
from lpot import backends
from lpot.core import framework
from lpot.core.errors import ConfigError, UnsupportedModel
from lpot.testing.conformance import BackendConformance, Case
from toy_backend import Net, ToyBackend, make_net

DATA = [np.random.default_rng(seed).standard_normal((8, 6)).astype(np.float32) for seed in (1, 2)]


def closeness(net: Net) -> Callable[[Net], float]:
    truth = [net(x) for x in DATA]

    def score(candidate: Net) -> float:
        pairs = [(candidate(x), y) for x, y in zip(DATA, truth, strict=True)]
        error = sum(float(np.square(one - other).sum()) for one, other in pairs)
        return 1.0 - error / sum(float(np.square(y).sum()) for y in truth)

    return score


@pytest.fixture
def registered(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(framework, "registered", {})
    backends.register("toy", ToyBackend())
    yield


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As pip leaves it: a module, and metadata with an entry point."""
    site = tmp_path / "site"
    info = site / "toy-1.0.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: toy\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text("[lpot.backends]\ntoy = toy_backend:ToyBackend\n")
    (site / "toy_backend.py").write_bytes(Path(toy_backend.__file__).read_bytes())
    paths = [str(site), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in paths if path))
    monkeypatch.syspath_prepend(str(site))


class TestToyConformance(BackendConformance):
    """The suite that lpot ships passes for a third party as it is."""

    def case(self) -> Case:
        net = make_net(6, 12, 12, 3)
        return Case(ToyBackend(), net, [(x,) for x in DATA], closeness(net))

    @pytest.fixture(autouse=True)
    def _found_by_children(self, installed: None) -> None:
        pass


def check(result: lpot.Result, net: Net) -> None:
    assert result.met is True
    assert isinstance(result.model.native, Net)
    assert result.precisions == {"int8": 3}
    assert result.path is not None and result.path.name == "best_model.npz"
    again = ToyBackend().restore(result.path)
    assert np.array_equal(again.net(DATA[0]), result.model.native(DATA[0]))
    assert not np.array_equal(again.net(DATA[0]), net(DATA[0]))


def test_by_its_registered_name(tune: Any, registered: None) -> None:
    net = make_net(6, 12, 12, 3)
    result = tune(net, DATA, closeness(net), framework="toy")
    check(result, net)
    assert lpot.load(result.path).framework == "toy"


def test_as_an_object(tune: Any) -> None:
    net = make_net(6, 12, 12, 3)
    check(tune(net, DATA, closeness(net), framework=ToyBackend()), net)


class OldToy:
    """As backends were written before there was a base class: the verbs and nothing else."""

    name = "toy"

    def __init__(self) -> None:
        self.inner = ToyBackend()
        for verb in ("inspect", "observe", "run", "restore", "versions", "save"):
            setattr(self, verb, getattr(self.inner, verb))

    def load(self, source: Any, spec: Any = None) -> Any:
        return toy_backend.ToyModel(self, self.inner.load(source).net)  # type: ignore[arg-type]

    def build(self, model: Any, recipe: Any, observations: Any = None) -> Any:
        net = self.inner.build(model, recipe, observations).net
        return toy_backend.ToyModel(self, net, recipe)  # type: ignore[arg-type]


def test_an_object_without_the_base_class_gets_its_defaults(tune: Any) -> None:
    net = make_net(6, 12, 12, 3)
    old: Any = OldToy()
    result = tune(net, DATA, closeness(net), framework=old)
    assert result.met is True
    assert result.path is not None and result.path.name == "best_model"
    model = old.load(net)
    seen = old.observe(model, [(x,) for x in DATA], (0,))[0]
    assert len(old.rank(model, result.recipe, seen)) == 3


def test_an_object_that_takes_no_attributes_is_told_to_derive() -> None:
    verbs = ("load", "inspect", "observe", "build", "run", "save", "restore", "versions")
    closed = type("Closed", (), {"__slots__": (), **{verb: print for verb in verbs}})
    with pytest.raises(ConfigError, match=r"derives from lpot\.core\.backend\.Backend"):
        backends.get_backend(closed())


def test_by_its_entry_point(tune: Any, installed: None) -> None:
    net = make_net(6, 12, 12, 3)
    result = tune(net, DATA, closeness(net), framework="toy")
    check(result, net)


def test_in_yaml_and_from_an_old_script(
    tmp_path: Path, registered: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "conf.yaml").write_text(
        "model:\n  name: stack\n  framework: toy\n"
        "tuning:\n  accuracy_criterion:\n    relative: 0.01\n"
    )
    quantizer = lpot.Quantization("conf.yaml")
    quantizer.measure_speed = False
    net = make_net(6, 12, 12, 3)
    made = quantizer(net, q_dataloader=[(x, 0) for x in DATA], eval_func=closeness(net))
    assert isinstance(made, Net)
    assert (tmp_path / "lpot_workspace" / "toy" / "stack" / "best_model.npz").is_file()


def test_resume_rules_and_recovery_work_without_a_ranking(tune: Any, registered: None) -> None:
    net = make_net(6, 12, 12, 3)
    calls = []

    def judge(candidate: Net) -> float:
        calls.append(candidate)
        return closeness(net)(candidate)

    options: dict[str, Any] = {
        "framework": "toy",
        "goal": 1e-9,
        "keep_fp32": ["dense0"],
        "trust_history": True,
    }
    first = tune(net, DATA, judge, **options)
    assert first.met is False or not first.recipe.low_ops
    assert {key.name for key in first.recipe.ops} == {"dense1", "dense2"}
    count = len(calls)
    again = tune(net, DATA, judge, **options)
    assert len(calls) == count
    assert again.recipe == first.recipe
    built = lpot.recover(net, first.history, 1)
    assert np.array_equal(built.native(DATA[0]), calls[1](DATA[0]))


def test_a_wrong_model_and_an_unknown_name(tune: Any, registered: None) -> None:
    with pytest.raises(UnsupportedModel, match="the toy takes a Net"):
        tune([1, 2], DATA, framework="toy")
    with pytest.raises(ConfigError, match="did you mean 'toy'"):
        tune(make_net(6, 3), DATA, framework="toi")
    with pytest.raises(UnsupportedModel, match=r"can't tell the framework of a .*Net"):
        tune(make_net(6, 3), DATA)


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (ToyBackend, "ToyBackend can't serve.*create an object of it"),
        (object(), "object can't serve.*lacks load, inspect, observe"),
        (3, "int can't serve"),
    ],
)
def test_an_object_that_is_no_backend_is_told_what_it_lacks(
    tune: Any, wrong: Any, message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        tune(make_net(6, 3), DATA, framework=wrong)


def test_a_strategy_given_as_an_object_and_one_that_is_misspelt(tune: Any) -> None:
    def one_by_one(space: Any, context: Any) -> Any:
        for key in space.choices:
            yield [space.with_float(space.default(), [key])]

    net = make_net(6, 12, 12, 3)
    scores = iter([1.0, 0.5, 0.6, 0.7])
    options: dict[str, Any] = {"framework": ToyBackend(), "strategy": one_by_one}
    result = tune(net, DATA, lambda candidate: next(scores), **options)
    assert [len(trial.recipe.float_ops) for trial in result.trials] == [1, 1, 1]
    with pytest.raises(ConfigError, match="did you mean 'basic'"):
        tune(net, DATA, closeness(net), framework=ToyBackend(), strategy="basik")
