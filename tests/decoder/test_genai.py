"""Exported decoders in onnxruntime-genai itself: the same text as from plain onnxruntime."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import lpot
from decoder.nets import FAMILIES, tiny
from lpot.backends import export_decoder
from lpot.backends.onnx.weight_only.guard import Guard
from lpot.jobs.decoder.generate import generate

genai: Any = pytest.importorskip("onnxruntime_genai")
pytest.importorskip("transformers")

IDS = np.random.default_rng(0).integers(3, 97, (24, 96))
COUNT = 12


def text_of(folder: Path, prompt: np.ndarray) -> list[int]:
    model = genai.Model(str(folder))
    settings = genai.GeneratorParams(model)
    settings.set_search_options(max_length=len(prompt) + COUNT, do_sample=False)
    generator = genai.Generator(model, settings)
    generator.append_tokens(prompt.astype(np.int32))
    found = []
    while not generator.is_done():
        generator.generate_next_token()
        found.append(int(generator.get_next_tokens()[0]))
    return found


@pytest.mark.parametrize("family", sorted(FAMILIES))
def test_every_family_generates_the_same_text(family: str, tmp_path: Path) -> None:
    path = export_decoder(tiny(family), tmp_path / family)
    prompt = IDS[0, :9]
    assert text_of(path.parent, prompt) == list(generate(lpot.load(path), prompt, COUNT, (2,)))


def test_a_tuned_decoder_generates_the_same_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Guard, "allows", lambda *given: True)  # nothing pays on ops this small
    lpot.tune(
        tiny("Llama"),
        calib=IDS,
        approach="weight_only",
        goal=0.9,
        really=True,
        config={
            "quantization": {"weight_only": {"prompt_length": 96}},
            "tuning": {"objective": "modelsize"},
        },
        workspace=tmp_path,
        measure_speed=False,
    )
    path, prompt = tmp_path / "decoder" / "model.onnx", IDS[0, :9]
    assert text_of(path.parent, prompt) == list(generate(lpot.load(path), prompt, COUNT, (2,)))
