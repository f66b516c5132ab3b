"""Several ways to round to one format: each op takes its own, and a kill changes nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from decoder.nets import small_net
from lpot.backends.onnx.weight_only import WeightOnlyBackend, Wishes
from lpot.backends.onnx.weight_only.formats import BY_COST, label
from lpot.backends.onnx.weight_only.guard import Guard
from lpot.backends.onnx.weight_only.ways import GAINS
from lpot.core.errors import ConfigError
from lpot.core.space import restrict
from lpot.core.weight_only.grid import Format
from lpot.core.weight_only.nearest import round_to_nearest

WAYS = ("rtn", "gptq", "awq", "learned")


@pytest.fixture(autouse=True)
def _any_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Guard, "allows", lambda *given: True)


def _ids(count: int = 8) -> list[dict[str, np.ndarray]]:
    rng = np.random.default_rng(0)
    return [{"ids": rng.integers(0, 100, (1, 24))} for _ in range(count)]


def _backend(folder: Path, ways: tuple[str, ...] = WAYS) -> WeightOnlyBackend:
    backend = WeightOnlyBackend(Wishes((4,), (32,), ("sym",), ways))
    backend.keep_in(folder)
    return backend


def test_each_op_takes_the_way_that_loses_least_on_rows_held_out(tmp_path: Path) -> None:
    backend = _backend(tmp_path)
    model = backend.load(small_net())
    space = restrict(backend.inspect(model), ())
    observations = backend.observe(model, _ids(), (0,))[0]
    tradeoffs = backend.tradeoffs(model, space.choices, observations)
    assert backend.store is not None
    for key, options in space.choices.items():
        four = [c for c in options if c.mode == "weight_only" and c.weight.bits == 4]
        kept = [o.config for o in tradeoffs[key] if o.config in four]
        assert len(kept) == 1
        losses = {c.weight.algorithm: backend.store.loss(key.name, label(c)) for c in four}
        least = min(losses.values())
        assert losses[kept[0].weight.algorithm] * (1 - GAINS) <= least
        if key.kind == "MatMul":
            assert set(losses) == set(WAYS)


def test_weights_are_the_same_after_a_kill_between_two_ways(tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    for folder in (whole, killed):
        backend = _backend(folder)
        model = backend.load(small_net())
        space = restrict(backend.inspect(model), ())
        observations = backend.observe(model, _ids(), (0,))[0]
        backend.tradeoffs(model, space.choices, observations)
        if folder == killed:
            for path in sorted(folder.rglob("*.npz"))[1::2]:
                path.unlink()
            backend.tradeoffs(model, space.choices, observations)
    files = {path.name: path for path in whole.rglob("*.npz")}
    assert files and {path.name for path in killed.rglob("*.npz")} == set(files)
    for path in killed.rglob("*.npz"):
        with np.load(path) as one, np.load(files[path.name]) as other:
            for part in one.files:
                np.testing.assert_array_equal(one[part], other[part])


def test_rows_are_held_out_where_ways_are_compared_alone(tmp_path: Path) -> None:
    """Weights that were rounded by other rows are not mixed up with these."""
    alone, several = _backend(tmp_path, ("gptq",)), _backend(tmp_path)
    found = []
    for backend in (alone, several):
        model = backend.load(small_net())
        backend.observe(model, _ids(), (0,))
        config = next(
            c
            for info in backend.inspect(model).low()
            for c in info.choices
            if c.mode == "weight_only" and c.weight.algorithm == "gptq"
        )
        space = restrict(backend.inspect(model), ())
        backend.tradeoffs(model, space.choices, backend.observe(model, _ids(), (0,))[0])
        assert backend.store is not None
        found.append(backend.store.get("first", label(config)).rounded.codes)
    assert not np.array_equal(*found)


def test_ways_are_ordered_by_their_cost() -> None:
    assert BY_COST == ("rtn", "awq", "gptq", "learned", "signround")


@pytest.mark.parametrize("symmetric", (True, False))
@pytest.mark.parametrize("columns", (64, 70))
def test_signed_gradients_lose_less_than_rounding_to_nearest(symmetric: bool, columns: int) -> None:
    pytest.importorskip("torch")
    from lpot.backends.onnx.weight_only.signround import signround

    rng = np.random.default_rng(0)
    weight = rng.standard_normal((40, columns)).astype(np.float32)
    weight[3] = 0
    x = (rng.standard_normal((256, columns)) @ rng.standard_normal((columns, columns))).astype(
        np.float32
    )
    hessian, fmt = x.T @ x / len(x), Format(4, 32, symmetric)
    found, again = (signround(weight, hessian, fmt, steps=60) for _ in range(2))
    np.testing.assert_array_equal(found.codes, again.codes)
    np.testing.assert_array_equal(found.scales, again.scales)
    assert found.codes.max() <= 15 and np.isfinite(found.scales).all()
    assert not found.values()[3].any()
    nearest = round_to_nearest(weight, fmt, np.diagonal(hessian))
    lost = [np.square(x @ (r.values() - weight).T).sum() for r in (found, nearest)]
    assert lost[0] < 0.85 * lost[1]


def test_without_torch_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    from lpot.backends.onnx.weight_only.signround import signround

    monkeypatch.setitem(sys.modules, "torch", None)
    weight = np.ones((4, 32), np.float32)
    with pytest.raises(ConfigError, match=r"lpot\[pytorch\]"):
        signround(weight, np.eye(32, dtype=np.float32), Format(4))
