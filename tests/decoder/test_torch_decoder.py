"""A tuned decoder as a torch module: from GPTQ's files, with kernels that were measured."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpot.core.errors import UnsupportedModel
from lpot.core.weight_only.grid import Format
from lpot.core.weight_only.nearest import round_to_nearest
from lpot.core.weight_only.pack import pack_gptq
from lpot.data.gptq_folder import LESS

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

from decoder.nets import tiny  # noqa: E402
from lpot.backends import load_gptq  # noqa: E402
from lpot.backends.torch.weight_only.decoder import WeightOnlyLinear, load_decoder  # noqa: E402
from lpot.backends.torch.weight_only.kernels import FLOAT, KERNELS, Chooser  # noqa: E402


def gptq_folder(
    place: Path, family: str = "Qwen2", kind: str = "gptq", newer: bool = False
) -> tuple[Path, Any]:
    """A folder in GPTQ's layout, and the FP32 module with the very weights it stands for; a newer
    one is in parts and does not say that columns are in their usual order."""
    model = tiny(family)
    model.save_pretrained(place)
    state = {name: value.numpy() for name, value in model.state_dict().items()}
    for name, module in model.named_modules():
        if not isinstance(module, torch.nn.Linear) or name == "lm_head":
            continue
        bits = 8 if name.endswith("v_proj") else 4
        rounded = round_to_nearest(state.pop(f"{name}.weight"), Format(bits, 32, kind == "gptq"))
        packed = {f"{name}.{part}": array for part, array in pack_gptq(rounded, LESS[kind]).items()}
        if newer:
            del packed[f"{name}.g_idx"]
        state |= {key: np.asarray(array) for key, array in packed.items()}
        with torch.no_grad():
            module.weight.copy_(torch.from_numpy(rounded.values()))
    state.pop("lm_head.weight", None) if model.config.tie_word_embeddings else None
    arrays = {name: np.ascontiguousarray(array) for name, array in state.items()}
    (place / "model.safetensors").unlink()
    for number in range(2 if newer else 1):
        part = dict(list(arrays.items())[number :: 2 if newer else 1])
        name = f"model-{number}.safetensors" if newer else "model.safetensors"
        safetensors_numpy.save_file(part, place / name, {"format": "pt"})
    config = json.loads((place / "config.json").read_text())
    config["quantization_config"] = {
        "quant_method": "gptq",
        "bits": 4,
        "group_size": 32,
        "sym": True,
        "checkpoint_format": kind,
        "dynamic": {r"+:.*v_proj$": {"bits": 8, "group_size": 32}},
    }
    (place / "config.json").write_text(json.dumps(config))
    return place, model


@pytest.mark.parametrize("family", ("Llama", "Qwen2", "OPT", "Gemma", "Phi", "Mistral"))
def test_it_generates_what_fp32_with_the_same_weights_does(family: str, tmp_path: Path) -> None:
    folder, truth = gptq_folder(tmp_path, family)
    model = load_gptq(folder)
    assert any(isinstance(module, WeightOnlyLinear) for module in model.modules())
    prompt = torch.tensor([[5, 17, 30, 41, 8]])
    settings = {"max_new_tokens": 8, "do_sample": False, "pad_token_id": 0}
    with torch.no_grad():
        logits, expected = model(prompt).logits, truth(prompt).logits
        assert torch.allclose(logits, expected, atol=0.02 * float(expected.abs().max()))
        text = model.generate(prompt, **settings)
        assert text.shape[1] > 5 and torch.equal(text, truth.generate(prompt, **settings))


@pytest.mark.parametrize("bits,group,symmetric", [(4, 32, True), (4, 128, False), (8, 0, True)])
@pytest.mark.parametrize("kernel", [name for name in KERNELS if name != FLOAT])
def test_kernels_multiply_with_the_values_that_the_codes_stand_for(
    kernel: str, bits: int, group: int, symmetric: bool
) -> None:
    weight = np.random.default_rng(0).standard_normal((64, 256)).astype(np.float32)
    rounded = round_to_nearest(weight, Format(bits, group, symmetric))
    if not KERNELS[kernel].fits(rounded):
        assert (kernel == "int4") == (bits == 8)
        return
    layer = WeightOnlyLinear(rounded, torch.ones(64), kernel)
    x = torch.randn(2, 3, 256)
    truth = x @ torch.from_numpy(rounded.values()).T + 1
    assert torch.allclose(layer(x), truth, atol=0.01 * float(truth.abs().max()))
    assert kernel in repr(layer)


def test_a_slow_or_wrong_kernel_is_not_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    import lpot.backends.torch.weight_only.kernels as module

    weight = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    rounded = round_to_nearest(weight, Format(4, 32))
    monkeypatch.setattr(module, "_mix", lambda kernel, held: 1.0 if "weight" in held else 9.0)
    slow = Chooser()
    assert slow(rounded) == FLOAT
    ((refused,),) = [list(why.values()) for why in slow.refused.values()]
    assert refused == "0.11 of FP32's speed"
    monkeypatch.setattr(module, "_mix", lambda kernel, held: 9.0 if "weight" in held else 1.0)
    assert Chooser()(rounded) == "int4"
    broken = module.Kernel(KERNELS["int4"].fits, KERNELS["int4"].pack, lambda x, h: x[:, :64] * 0)
    monkeypatch.setattr(module, "KERNELS", {**KERNELS, "int4": broken})
    wrong = Chooser()
    assert wrong(rounded) == FLOAT and "wrong" in str(wrong.refused)


def test_a_damaged_folder_is_told(tmp_path: Path) -> None:
    folder, _ = gptq_folder(tmp_path / "net")
    whole = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(whole[: len(whole) // 2])
    with pytest.raises(UnsupportedModel, match=r"model\.safetensors: tensor .* is cut off"):
        load_decoder(folder)
    plain = tmp_path / "plain"
    tiny("Llama").save_pretrained(plain)
    with pytest.raises(UnsupportedModel, match="no quantization_config of GPTQ"):
        load_decoder(plain)


def test_newer_files_of_other_tools_are_read(tmp_path: Path) -> None:
    """Zero points as they are, several files, no g_idx."""
    folder, truth = gptq_folder(tmp_path, kind="gptq_v2", newer=True)
    ids = torch.arange(3, 20)[None]
    with torch.no_grad():
        found = load_decoder(folder, Chooser()).eval()(ids).logits
        torch.testing.assert_close(found, truth(ids).logits, rtol=1e-4, atol=1e-4)
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"]["checkpoint_format"] = "marlin"
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match="'marlin', expected one of gptq, gptq_v2"):
        load_gptq(folder)
