"""Advice is taken where it brings the outputs clearly nearer to FP32, and else left alone."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from lpot.core.recipe import OpKey
from lpot.core.space import restrict
from lpot.jobs.tune import advice
from toy_backend import ToyBackend, make_net


@pytest.mark.parametrize(("error", "taken"), [(0.5, True), (0.79, True), (0.81, False)])
def test_only_what_is_clearly_better_is_taken(
    error: float, taken: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    backend = ToyBackend()
    model = backend.load(make_net(4, 4))
    space = restrict(backend.inspect(model), ())
    key = OpKey("dense0", "Dense")
    other = space.default().replace({key: space.choices[key][1]})
    job: Any = SimpleNamespace(
        backend=SimpleNamespace(advise=lambda *given: iter([other])),
        model=model,
        observe=backend.observe(model, [(np.ones((2, 4), np.float32),)]).get,
        config=SimpleNamespace(
            quantization=SimpleNamespace(recipes=SimpleNamespace(smooth_quant=True))
        ),
        listener=SimpleNamespace(phase=lambda text: None),
    )
    monkeypatch.setattr(advice, "errors", lambda *given: {0: 1.0, 1: error})
    assert advice._best_advice(job, space) == (other if taken else space.default())


def test_a_distance_that_is_no_number_is_told_in_words() -> None:
    exact, wrong = (
        SimpleNamespace(gives=[np.full((2, 4), value)], close=lambda: None)
        for value in (1.0, np.nan)
    )
    backend = SimpleNamespace(run=lambda model, inputs: model.gives)
    job: Any = SimpleNamespace(backend=backend, model=exact)
    observations: Any = SimpleNamespace(probe=[(np.ones((2, 4)),)])
    told = advice.how_far(job, wrong, observations)  # type: ignore[arg-type]
    assert "some are NaN or infinite" in told and "inf%" not in told
