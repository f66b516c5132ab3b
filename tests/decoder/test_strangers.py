"""Decoders and texts as strangers bring them: each works, or one sentence says why not."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import lpot
from decoder.nets import tiny
from lpot.backends import get_backend
from lpot.backends.onnx.weight_only.guard import Guard
from lpot.core.backend import ModelSpec
from lpot.core.errors import DataError
from lpot.core.model import Model
from lpot.jobs.decoder.generate import generate, kept_in
from lpot.jobs.decoder.tokens import feeds, windows_of

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
from lpot.backends import export_decoder  # noqa: E402

IDS = np.random.default_rng(0).integers(3, 97, (4, 32))
SETTINGS = {"quantization": {"weight_only": {"prompt_length": 32}}}


@pytest.fixture(scope="module")
def decoder(tmp_path_factory: pytest.TempPathFactory) -> onnx.ModelProto:
    return onnx.load(export_decoder(tiny("Llama"), tmp_path_factory.mktemp("llama")))


def renamed(model: onnx.ModelProto, name: Callable[[str], str]) -> onnx.ModelProto:
    changed = onnx.ModelProto()
    changed.CopyFrom(model)
    for value in (*changed.graph.input, *changed.graph.output):
        value.name = name(value.name)
    for node in changed.graph.node:
        node.input[:], node.output[:] = map(name, node.input), map(name, node.output)
    return changed


def loaded(model: onnx.ModelProto) -> Model:
    return get_backend("onnx").load(model, ModelSpec())


def text_of(model: onnx.ModelProto) -> tuple[int, ...]:
    return generate(loaded(model), IDS[0, :9], 6)


@pytest.mark.parametrize(
    "past, present", [("past_{}_{}", "present_{}_{}"), ("cache_{}{}", "out_cache_{}{}")]
)
def test_caches_of_other_names_and_in_another_order_go_on(
    decoder: onnx.ModelProto, past: str, present: str
) -> None:
    def name(word: str) -> str:
        for old, new in (("past_key_values", past), ("present", present)):
            if found := re.fullmatch(rf"{old}\.(\d+)\.(\w+)", word):
                return new.format(found[2][0], found[1])
        return word

    changed = renamed(decoder, name)
    presents = list(changed.graph.output)[1:]
    del changed.graph.output[1:]
    changed.graph.output.append(helper.make_tensor_value_info("embedded", TensorProto.FLOAT, None))
    changed.graph.output.extend(reversed(presents))
    assert text_of(changed) == text_of(decoder)


def test_a_cache_that_no_output_continues_is_told() -> None:
    with pytest.raises(DataError, match=r"continues the cache 'past\.1\.key'"):
        kept_in(["past.0.key", "past.1.key"], ["logits", "present.0.key"])


def test_a_cache_whose_sizes_are_left_open_is_told(decoder: onnx.ModelProto) -> None:
    changed = renamed(decoder, str)
    changed.graph.input[2].type.tensor_type.shape.dim[1].dim_param = "heads"
    with pytest.raises(DataError, match=r"'past_key_values\.0\.key'.*may be dynamic"):
        feeds(loaded(changed).inputs or (), IDS)


@pytest.mark.parametrize(
    "ids, why",
    [
        (IDS + 90, r"up to number 186: was the text tokenized for another model.*97,96"),
        (np.full((2, 300), 5), "a window of 300 tokens.*longer than the model's positions"),
        (-IDS, "token -96 was given"),
        (IDS[:, :1], "windows of 1 tokens"),
    ],
)
def test_tokens_that_the_model_can_not_read_are_told(
    decoder: onnx.ModelProto, ids: np.ndarray, why: str, tmp_path: Path
) -> None:
    with pytest.raises(DataError, match=why):
        lpot.tune(decoder, ids, approach="weight_only", config=SETTINGS, workspace=tmp_path)


@pytest.mark.parametrize(
    "source, why", [("valid.txt", "looks like a file"), (Path("gone.txt"), "No such file")]
)
def test_a_file_that_is_not_there_is_told(source: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        windows_of(source, 32, None, "the text")


def zeroed(model: Any) -> None:
    model.model.layers[1].self_attn.o_proj.weight.zero_()


def on_a_grid(model: Any) -> None:
    weight = model.model.layers[0].mlp.down_proj.weight
    weight.copy_((weight * 16).round().clamp(-7, 7) / 16)


def far_off(model: Any) -> None:
    model.lm_head.weight[0] = 1e4


@pytest.mark.parametrize("change", [zeroed, on_a_grid, far_off])
def test_weights_that_lose_nothing_or_everything(
    change: Callable[[Any], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Formats are not asked for their speed: these nets are too small for any."""
    monkeypatch.setattr(Guard, "allows", lambda *_: True)
    model = tiny("Llama")
    with torch.no_grad():
        change(model)
    options = {"workspace": tmp_path, "measure_speed": False, "progress": False}
    result = lpot.tune(model, IDS, goal=0.5, approach="weight_only", config=SETTINGS, **options)
    assert result.met and result.trials and not [trial for trial in result.trials if trial.error]
