"""`lpot.load`: the card comes along, and what differs here from where it was tuned is said."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lpot
from lpot.core.cpu import this_cpu
from lpot.core.errors import ConfigError
from lpot.core.files.card import KERNEL_FEATURES, card_path
from lpot.demo import demo_data, demo_model_path

pytest.importorskip("onnxruntime")

DATA = demo_data()


@pytest.fixture
def tuned(tmp_path: Path) -> Any:
    return lpot.tune(
        str(demo_model_path()),
        [DATA.calib_images[:50]],
        lambda model: 0.9,
        bar="mlperf_high",
        workspace=tmp_path / "work",
        measure_speed=False,
    )


def change(path: Path, **values: Any) -> None:
    place = card_path(path)
    place.write_text(json.dumps({**json.loads(place.read_text()), **values}))


def test_the_card_comes_along_and_goes_on(tuned: Any, tmp_path: Path) -> None:
    for place in (tuned.path, tuned.workspace, tuned.workspace / "deploy.yaml"):
        model = lpot.load(place)
        assert model.met is True and model.recipe == tuned.recipe
        assert model.card["accuracy"] == 0.9 and model.card["name"] == "digits"
        assert "0.001" in model.card["goal"]
    np.testing.assert_array_equal(model(DATA.images[:4])[0], tuned.model(DATA.images[:4])[0])
    again = lpot.load(model.save(tmp_path / "copy.onnx"))
    assert again.card == model.card


def test_same_machine_same_versions_is_silent(tuned: Any, caplog: pytest.LogCaptureFixture) -> None:
    lpot.load(tuned.path)
    assert not caplog.records


def test_what_differs_is_said(tuned: Any, caplog: pytest.LogCaptureFixture) -> None:
    other = {name: not this_cpu().has(name) for name in KERNEL_FEATURES}
    change(tuned.path, cpu=other, versions={"onnxruntime": "1.0"}, lpot="1.2")
    lpot.load(tuned.path)
    said = caplog.text
    assert "a CPU that differs in avx2" in said and "measure again" in said
    assert "tuned with onnxruntime 1.0, this is" in said
    assert "tuned with lpot 1.2" in said


def test_module_is_for_files_without_an_architecture(tuned: Any) -> None:
    with pytest.raises(ConfigError, match="holds its architecture"):
        lpot.load(tuned.path, module=object())


@pytest.mark.slow
def test_a_torch_module_of_one_s_own(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from torch_profiled import Net

    batch = torch.rand(2, 3, 16, 16)
    result = lpot.tune(Net().eval(), [batch], workspace=tmp_path / "work", measure_speed=False)
    again = lpot.load(result.path, module=Net())
    np.testing.assert_array_equal(again(batch)[0], result.model(batch)[0])
