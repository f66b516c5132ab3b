"""One pass, bounded memory, a snapshot for each size."""

from __future__ import annotations

import importlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

pytest.importorskip("torch")

import torch
from torch import nn

from backends.torch import torch_nets as nets
from backends.torch.test_torch_models import BACKEND, made
from lpot.core.numerics import observations

watching = importlib.import_module("lpot.backends.torch.observer")


def counted(batches: list[Any], seen: list[int]) -> Iterator[Any]:
    for number, batch in enumerate(batches):
        seen.append(number)
        yield batch


def test_each_size_has_its_own_snapshot() -> None:
    model = BACKEND.load(nn.Linear(4, 2))
    batches = [(torch.full((2, 4), float(scale)),) for scale in (1, 2, 3, 4)]
    found = BACKEND.observe(model, batches, (3, 2, 0, 100))
    assert {size: item.samples for size, item in found.items()} == {3: 4, 2: 2, 0: 8, 100: 8}
    tops = {size: item.tensors[":in"].maximum for size, item in found.items()}
    assert tops == {3: 2.0, 2: 1.0, 0: 4.0, 100: 4.0}


def test_no_more_is_read_than_asked_for() -> None:
    model = BACKEND.load(nn.Linear(4, 2))
    seen: list[int] = []
    BACKEND.observe(model, counted([(torch.randn(2, 4),)] * 50, seen), (4,))
    assert len(seen) == 2


def test_a_large_tensor_is_sampled_but_its_extremes_are_exact() -> None:
    model = BACKEND.load(nn.Conv2d(3, 4, 1))
    x = torch.rand(1, 3, 400, 400)
    x[0, 1, 7, 13] = 99.0
    x[0, 2, 9, 5] = -55.0
    stats = BACKEND.observe(model, [(x,)], (0,))[0].tensors[":in"]
    assert stats.maximum == 99.0
    assert stats.minimum == -55.0
    assert stats.count <= watching.SAMPLED


def test_the_probe_is_bounded_and_a_copy() -> None:
    model = BACKEND.load(nn.Linear(4, 2))
    buffer = torch.ones(8, 4)

    def reused() -> Iterator[Any]:
        for number in range(50):
            buffer.fill_(number)
            yield (buffer,)

    probe = BACKEND.observe(model, reused(), (0,))[0].probe
    assert len(probe) == observations.PROBE_SAMPLES // 8
    assert [float(inputs[0][0, 0]) for inputs in probe] == [0.0, 1.0, 2.0, 3.0]


def test_a_single_huge_batch_is_kept_for_the_ranking(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observations, "PROBE_BYTES", 16)
    model = BACKEND.load(nn.Linear(4, 2))
    batches = [(torch.ones(8, 4) * scale,) for scale in (1, 2)]
    (kept,) = BACKEND.observe(model, batches)[0].probe
    assert kept[0].shape == (8, 4)


def test_query_key_and_value_are_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[int] = []
    original = watching._sample

    def sample(value: torch.Tensor) -> Any:
        calls.append(1)
        return original(value)

    monkeypatch.setattr(watching, "_sample", sample)
    model, batches, _ = made("bert")
    calls.clear()
    found = BACKEND.observe(model, batches[:1], (0,))[0]
    assert len(calls) < len(found.tensors)
    stem = "bert.encoder.layer.0.attention.self"
    query, key = (found.tensors[f"{stem}.{name}:in"] for name in ("query", "key"))
    assert query.maximum == key.maximum


def test_a_shared_module_sees_all_its_calls() -> None:
    class Twice(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.fc = nn.Linear(4, 4)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return self.fc(self.fc(x) * 100)

    model = BACKEND.load(nets.seeded(Twice()))
    x = torch.randn(16, 4)
    stats = BACKEND.observe(model, [(x,)], (0,))[0].tensors["fc:in"]
    assert stats.maximum > 20 * float(x.abs().max())


def test_all_algorithms_come_from_one_pass() -> None:
    model = BACKEND.load(nn.Linear(64, 2))
    x = torch.randn(2000, 64)
    x[0, 0] = 60.0
    stats = BACKEND.observe(model, [(x,)], (0,))[0].tensors[":in"]
    spans = {name: stats.range(name)[1] for name in ("minmax", "percentile", "kl", "mse")}
    assert spans["minmax"] == 60.0
    assert all(value < 60.0 for name, value in spans.items() if name != "minmax")
    assert np.isfinite(list(spans.values())).all()
