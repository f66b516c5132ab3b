"""A second format of the weights for prompts: offered, and made where it is asked for."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lpot
from decoder.nets import tiny
from lpot.backends.onnx.weight_only.guard import Guard, Times
from lpot.core.recipe import FP32, OpConfig, OpKey, Recipe
from lpot.core.space import TuningSpace
from lpot.core.strategy import Tradeoff
from lpot.jobs.decoder.generate import generate
from lpot.jobs.decoder.inputs import feeds
from lpot.jobs.decoder.job import second_format

pytest.importorskip("torch")
pytest.importorskip("transformers")

IDS = np.random.default_rng(0).integers(3, 97, (12, 32))


@pytest.fixture(autouse=True)
def _clocks(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Few bits are fast for tokens, INT8 with rounded inputs for prompts."""

    def times(self: Guard, columns: int, rows: int, config: OpConfig) -> Times:
        if config.is_float:
            return Times(1.0, 1.0)
        return Times(0.5, 0.25) if config.mode == "dynamic" else Times(0.25, 0.75)

    monkeypatch.setenv("LPOT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(Guard, "times", times)


def tuned(workspace: Path, two_formats: bool) -> Any:
    section = {"prompt_length": 32, "prompt": 0.0, "two_formats": two_formats, "bits": [4]}
    return lpot.tune(
        tiny("Llama"),
        calib=IDS,
        goal=0.9,
        really=True,
        approach="weight_only",
        config={"quantization": {"weight_only": section}},
        workspace=workspace,
        measure_speed=False,
    )


def test_it_is_offered_with_what_it_costs(tmp_path: Path) -> None:
    result = tuned(tmp_path / "run", False)
    (offer,) = [note for note in result.notes if "second format" in note]
    assert "33% of the time" in offer and "MB more" in offer and "two_formats" in offer
    made = onnx.load(tmp_path / "run" / "decoder" / "model.onnx")
    assert not [node for node in made.graph.node if node.op_type == "If"]


def test_tokens_run_in_one_format_and_prompts_in_the_other(tmp_path: Path) -> None:
    result = tuned(tmp_path / "run", True)
    assert any("two formats of the weights" in note for note in result.notes)
    path = tmp_path / "run" / "decoder" / "model.onnx"
    both, single = lpot.load(path), lpot.load(tmp_path / "run" / "best_model.onnx")
    assert path.stat().st_size > (tmp_path / "run" / "best_model.onnx").stat().st_size
    specs = tuple(single.inputs or ())
    one, many = (
        [model.backend.run(model, feeds(specs, IDS[:1, :count]))[0] for model in (both, single)]
        for count in (1, 9)
    )
    np.testing.assert_array_equal(*one)
    assert np.abs(many[0] - many[1]).max() > 0
    assert np.abs(many[0] - many[1]).max() < 0.3 * np.abs(many[1]).max()
    assert len(generate(both, IDS[0, :9], 5)) == 5


def test_nothing_is_offered_where_little_is_won() -> None:
    key, table = OpKey("product", "MatMul"), OpKey("table", "Gather")
    low = OpConfig(FP32.activation, FP32.weight, "weight_only")
    tradeoffs = {
        key: (Tradeoff(low, 0.1, 0.2, 10, (0.2, 0.5)), Tradeoff(FP32, 0.0, 1.0, 80, (1.0, 1.0))),
        table: (Tradeoff(FP32, 0.0, 0.0, 80, (0.0, 0.0)),),
    }
    space = TuningSpace({k: tuple(o.config for o in options) for k, options in tradeoffs.items()})
    assert second_format(space, tradeoffs, Recipe({key: low, table: FP32})) is None
    assert second_format(space, {}, Recipe({})) is None
    found = second_format(space, tradeoffs, Recipe({key: FP32, table: FP32}))
    assert found is None  # the faster one would do harm, and FP32 does none
