"""What was saved comes back the same, in a fresh process, and says when the world has changed."""

from __future__ import annotations

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lpot
import onnx_models
from lpot.core.errors import UnsupportedModel, WorkspaceError

MAKERS = ["mlp", "cnn", "transformer", "conv_transpose", "with_if", "tied", "empty_tensor"]

RUN = """
import sys
import numpy as np
import lpot, onnx_models
for path in sys.argv[1:]:
    model = lpot.load(path)
    feed = dict(np.load(path + ".feed.npz"))
    outputs = model.backend.run(model, feed)
    np.savez(path + ".out.npz", *outputs)
    assert model.recipe is not None and model.recipe.low_ops
"""


def test_outputs_are_the_same_bit_for_bit_in_a_fresh_process(
    script: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LPOT_THREADS", "1")
    expected = {}
    for approach in ("static", "dynamic"):
        for name in MAKERS:
            if (name, approach) == ("conv_transpose", "dynamic"):
                continue
            model = getattr(onnx_models, name)()
            data = onnx_models.feeds(model)
            path = tmp_path / f"{name}_{approach}.onnx"
            result = lpot.tune(
                model,
                data,
                approach=approach,
                output=path,
                workspace=tmp_path / path.stem,
                measure_speed=False,
            )
            np.savez(f"{path}.feed.npz", **data[0])
            expected[path] = result.model.backend.run(result.model, data[0])
    script(RUN, *expected)
    for path, outputs in expected.items():
        with np.load(f"{path}.out.npz") as found:
            for one, other in zip(outputs, found.values(), strict=True):
                assert np.array_equal(one, other), path
        alone = onnx_models.run(path, dict(np.load(f"{path}.feed.npz")))
        for one, other in zip(outputs, alone, strict=True):
            assert np.array_equal(one, other), path


@pytest.fixture
def saved(tune: Any) -> Path:
    path = tune(evaluate=lambda model: 1.0).path
    assert path is not None
    return Path(path)


def change_card(path: Path, **changes: Any) -> None:
    card = path.with_name(f"{path.name}.card.json")
    raw = json.loads(card.read_text("utf-8"))
    card.write_text(json.dumps({**raw, **changes}), "utf-8")


def warnings_of(path: Path, caplog: pytest.LogCaptureFixture) -> str:
    caplog.clear()
    with caplog.at_level(logging.WARNING, "lpot"):
        lpot.load(path)
    return caplog.text


def test_an_untouched_model_is_loaded_without_a_word(
    saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    assert warnings_of(saved, caplog) == ""
    model = lpot.load(str(saved))
    assert model.met is True
    assert model.recipe is not None and len(model.recipe.low_ops) > 0


def test_what_differs_is_told(saved: Path, caplog: pytest.LogCaptureFixture) -> None:
    raw = json.loads(saved.with_name(f"{saved.name}.card.json").read_text("utf-8"))
    turned = {name: not has for name, has in raw["cpu"].items()}
    change_card(saved, cpu=turned)
    assert "a CPU that differs in avx2" in warnings_of(saved, caplog)
    change_card(saved, cpu=raw["cpu"], versions={**raw["versions"], "onnxruntime": "1.0"})
    assert "tuned with onnxruntime 1.0" in warnings_of(saved, caplog)
    change_card(saved, versions=raw["versions"], sha256="0" * 64)
    assert "its hash differs" in warnings_of(saved, caplog)


def test_a_model_without_a_card_is_loaded_all_the_same(
    saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved.with_name(f"{saved.name}.card.json").unlink()
    assert warnings_of(saved, caplog) == ""
    assert lpot.load(saved).recipe is None


CARDS = {
    "not JSON": "{",
    "not an object": "[1]",
    "nothing": "{}",
    "newer": '{"format": 99}',
    "a recipe of nothing": '{"format": 1, "framework": "onnx", "recipe": {"ops": 1}}',
    "a recipe of later words": '{"format": 1, "recipe": {"configs": [{"mode": "static", '
    '"activation": {"dtype": "int4", "block": 32}}], "ops": [["a", "Conv", 0]]}}',
    "not text": "\udcff",
    "deep": "[" * 100_000,
    "a format in words": '{"format": "one"}',
    "a format below all": '{"format": 0}',
    "before nothing": '{"format": 1, "sha256": "0", "before": 7}',
}


@pytest.mark.parametrize("text", CARDS.values(), ids=CARDS)
def test_a_spoilt_card_is_told_and_the_model_opened_without_it(
    saved: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    card = saved.with_name(f"{saved.name}.card.json")
    card.write_bytes(text.encode("utf-8", "surrogateescape"))
    told = warnings_of(saved, caplog)
    assert told.count(card.name) == 1, told  # once, though it is read twice
    model = lpot.load(saved)
    assert model.recipe is None and model.met is None
    feed = onnx_models.feeds(model.native)[0]
    assert all(np.isfinite(out).all() for out in model.backend.run(model, feed))


ODD: tuple[Any, ...] = (None, True, -1, 2.5, "odd", [], [1], {}, {"a": {"b": [1]}}, [{"a": None}])
FIELDS = (
    *("format", "framework", "file", "main", "sha256", "pieces", "architecture", "cpu", "versions"),
    *("recipe", "met", "ends", "lpot", "name", "goal", "training", "before", "of a later version"),
)


def test_no_value_of_any_field_keeps_a_model_from_being_opened(saved: Path) -> None:
    card = saved.with_name(f"{saved.name}.card.json")
    whole = card.read_text("utf-8")
    for field in FIELDS:
        for value in ODD:
            card.write_text(whole, "utf-8")
            change_card(saved, **{field: value})
            try:
                model = lpot.load(saved)
            except Exception as error:
                raise AssertionError(f"{field}: {value!r}") from error
            assert model.recipe is None or model.recipe.low_ops


def test_a_card_of_a_newer_version_is_read_as_far_as_it_is_understood(
    saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    change_card(saved, format=2, energy={"joules": 3}, framework="a later one")
    assert "newer version of lpot (format 2, this one is 1)" in warnings_of(saved, caplog)
    model = lpot.load(saved)
    assert model.met is True and model.recipe is not None and model.recipe.low_ops


def test_a_card_of_another_architecture_is_told(
    saved: Path, caplog: pytest.LogCaptureFixture
) -> None:
    arm = {"asimddp": True, "i8mm": True, "avx2": False}
    change_card(saved, architecture="aarch64", cpu=arm)
    told = warnings_of(saved, caplog)
    assert "another architecture (aarch64, this one is" in told and "measure again" in told
    assert "differs in" not in told  # of course it does


def test_loading_what_is_not_there_or_not_a_model(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedModel, match="no such file"):
        lpot.load(tmp_path / "gone.onnx")
    (tmp_path / "model.xyz").touch()
    with pytest.raises(UnsupportedModel, match=r"model.xyz.*framework"):
        lpot.load(tmp_path / "model.xyz")


def test_saving_to_a_place_that_can_not_be_written(tune: Any, tmp_path: Path) -> None:
    model = tune(evaluate=lambda model: 1.0).model
    (tmp_path / "file").touch()
    with pytest.raises(WorkspaceError, match="can't write the model"):
        model.save(tmp_path / "file" / "model.onnx")
    with pytest.raises(WorkspaceError, match="can't write the model"):
        model.save(tmp_path / f"{'m' * 250}.onnx")


def test_a_save_that_fails_leaves_the_old_file_whole(
    tune: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lpot.core.files import publish

    path = tmp_path / "model.onnx"
    first = tune(evaluate=lambda model: 1.0).model
    first.save(path)
    before = path.read_bytes()
    other = tune(onnx_models.cnn(), evaluate=lambda model: 1.0, new_run=True).model

    def no_space(*args: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(publish, "_settle", no_space)
    with pytest.raises(WorkspaceError, match="No space left"):
        other.save(path)
    assert path.read_bytes() == before
    assert [item.name for item in tmp_path.glob(".lpot-*")] == []


def test_a_model_that_reads_back_differently_is_not_kept(
    tune: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from lpot.backends.onnx import save

    model = tune(evaluate=lambda model: 1.0).model
    real = save.run_session
    monkeypatch.setattr(
        save,
        "run_session",
        lambda s, *rest: [out + (s is not model.session) for out in real(s, *rest)],
    )
    with pytest.raises(WorkspaceError, match="gives a different"):
        model.save(tmp_path / "model.onnx")
    assert not (tmp_path / "model.onnx").exists()


@pytest.mark.parametrize("given", (None, 3, b"model.onnx", onnx_models.mlp()))
def test_a_model_in_memory_is_told_where_it_belongs(given: Any) -> None:
    with pytest.raises(UnsupportedModel, match=r"was given (an? \w+|None): give the path") as told:
        lpot.load(given)
    assert len(str(told.value)) < 200
