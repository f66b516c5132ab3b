"""A decoder through the public doors: tune, resume, package, generate, and bad input."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

import lpot
from decoder.nets import FAMILIES, small_net, tiny
from lpot.backends.onnx.weight_only.guard import Guard
from lpot.cli import cli
from lpot.core.errors import ConfigError, DataError, HistoryError, UnsupportedModel
from lpot.jobs.decoder.generate import continue_text, generate
from lpot.jobs.decoder.tokens import TokenWindows, windows_of

torch = pytest.importorskip("torch")
tokenizers = pytest.importorskip("tokenizers")
pytest.importorskip("transformers")


SETTINGS = {
    "quantization": {"weight_only": {"prompt_length": 32}},
    "tuning": {"objective": "modelsize"},  # by time nothing is sure on ops this small
}
IDS = np.random.default_rng(0).integers(3, 97, (4, 32))
WORDS = [f"w{at}" for at in range(94)]


@pytest.fixture(autouse=True)
def _trusting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kernels are trusted: on ops this small none of them pays."""
    monkeypatch.setattr(Guard, "allows", lambda *given: True)


def folder_with_tokenizer(place: Path, family: str = "Llama") -> Path:
    tiny(family).save_pretrained(place)
    vocabulary = {word: at + 3 for at, word in enumerate(WORDS)} | {"[UNK]": 0}
    model = tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]")
    tokenizer = tokenizers.Tokenizer(model)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.save(str(place / "tokenizer.json"))
    return place


def text(words: int = 800, seed: int = 0) -> str:
    return " ".join(np.random.default_rng(seed).choice(WORDS, words))


def tuned(model: Any, workspace: Path, **more: Any) -> Any:
    settings = {
        "calib": text(),
        "goal": 0.5,
        "really": True,
        "config": SETTINGS,
        "measure_speed": False,
    } | more
    return lpot.tune(model, approach="weight_only", workspace=workspace, **settings)


def test_a_folder_and_a_text_are_enough(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LPOT_CACHE", str(tmp_path / "times"))
    source = folder_with_tokenizer(tmp_path / "net")
    result = tuned(source, tmp_path / "run")
    assert result.met and result.goal.higher_is_better is False
    assert result.baseline.accuracy > 1 and result.sizes[1] < 0.6 * result.sizes[0]
    packed = tmp_path / "run" / "decoder"
    genai = json.loads((packed / "genai_config.json").read_text())
    assert genai["model"]["decoder"]["filename"] == "model.onnx"
    assert (packed / "tokenizer.json").is_file() and (packed / "model.onnx").is_file()
    # Where times are measured once more they differ; the search goes on as it began.
    monkeypatch.setenv("LPOT_CACHE", str(tmp_path / "other times"))
    again = tuned(source, tmp_path / "run")
    assert all(trial.recalled for trial in again.trials)
    assert (again.recipe, again.best.score) == (result.recipe, result.best.score)


def test_windows_and_texts_end_where_the_positions_do(tmp_path: Path) -> None:
    source = folder_with_tokenizer(tmp_path / "net")
    asked = {"quantization": {"weight_only": {"prompt_length": 129}}}
    with pytest.raises(ConfigError, match="prompt_length: given 129, but the model has 128"):
        tuned(source, tmp_path / "no", config=asked)
    result = tuned(source, tmp_path / "run", config={"tuning": SETTINGS["tuning"]})
    assert result.baseline.samples == 3  # the other half of six windows of 128
    found = continue_text(tmp_path / "run", "w2 " * 120, 500)
    assert len(found.tokens) == 9 or found.tokens[-1] == 2
    with pytest.raises(DataError, match="the prompt has 200 tokens, but the model has 128"):
        continue_text(tmp_path / "run", "w2 " * 200, 3)
    (tmp_path / "run" / "decoder" / "model.onnx").unlink()
    with pytest.raises(HistoryError, match="ended with FP32, or has not ended yet"):
        continue_text(tmp_path / "run", "w2", 3)


def test_a_model_with_its_data_apart_is_packaged_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As one of more than 2 GB has them."""
    monkeypatch.setattr("lpot.backends.onnx.save.EMBED_LIMIT", 1000)
    result = tuned(tiny("Llama"), tmp_path / "run", calib=IDS)
    (tmp_path / "run" / "best_model.onnx").rename(tmp_path / "gone.onnx")
    again = lpot.load(tmp_path / "run" / "decoder" / "model.onnx")
    assert generate(again, IDS[0, :9], 6) == generate(result.model, IDS[0, :9], 6)
    assert any(note.endswith("decoder: the model with genai_config.json") for note in result.notes)


def test_what_is_not_beside_an_onnx_decoder_is_not_promised(tmp_path: Path) -> None:
    from lpot.backends import export_decoder

    path = export_decoder(tiny("Llama"), tmp_path / "net")
    (tmp_path / "net" / "genai_config.json").unlink()
    result = tuned(path, tmp_path / "run", calib=IDS)
    assert any(note.endswith("decoder: the model") for note in result.notes)


def test_the_command_shows_both_texts_and_where_they_part(tmp_path: Path) -> None:
    from click.testing import CliRunner

    source = folder_with_tokenizer(tmp_path / "net")
    tuned(source, tmp_path / "run")
    found = continue_text(tmp_path / "run", "w1 w2 w3", 6)
    assert found.fp32 is not None and 1 <= len(found.tokens) <= 6
    shown = CliRunner().invoke(cli, ["generate", str(tmp_path / "run"), "w1 w2", "--tokens", "4"])
    assert shown.exit_code == 0 and "FP32:" in shown.output
    lost = CliRunner().invoke(cli, ["generate", str(tmp_path), "w1"])
    assert lost.exit_code != 0 and "weight_only" in lost.output


@pytest.mark.parametrize("family", ("Qwen2", "GPT2", "OPT", "Gemma"))
def test_the_export_generates_the_text_of_transformers(family: str, tmp_path: Path) -> None:
    model = tiny(family)
    from lpot.backends import export_decoder

    path = export_decoder(model, tmp_path)
    prompt = np.random.default_rng(0).integers(3, 97, 9)
    truth = prompt.tolist()
    with torch.no_grad():
        for _ in range(8):
            truth.append(int(model(torch.tensor([truth])).logits[0, -1].argmax()))
    assert list(generate(lpot.load(path), prompt, 8)) == truth[9:]


@pytest.mark.slow
@pytest.mark.parametrize("family", FAMILIES)
def test_families_are_tuned_reloaded_and_generate(family: str, tmp_path: Path) -> None:
    source = folder_with_tokenizer(tmp_path / "net", family)
    result = tuned(source, tmp_path / "run", held_out=text(300, seed=1))
    assert result.met and result.held_out is not None
    again = lpot.load(tmp_path / "run" / "decoder" / "model.onnx")
    prompt = np.random.default_rng(0).integers(3, 97, 9)
    assert generate(again, prompt, 8) == generate(result.model, prompt, 8)
    found = continue_text(tmp_path / "run", "w1 w2 w3", 6)
    assert found.fp32_tokens is not None and len(found.tokens) == len(found.fp32_tokens)


def test_an_object_is_tuned_with_arrays_of_tokens_and_any_evaluate(tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(3, 97, (10, 32))
    seen: list[Any] = []

    def evaluate(model: Any) -> float:
        seen.append(model)
        return 0.9

    result = tuned(tiny("GPT2"), tmp_path, calib=ids, evaluate=evaluate, goal=0.01)
    assert result.met and len(seen) >= 2 and result.accuracy == 0.9


@pytest.mark.parametrize(
    "more",
    [
        {"metric": "perplexity"},
        {"goal": lpot.Goal(absolute=50.0)},
        {"config": {**SETTINGS, "evaluation": {"accuracy": {"metric": {"perplexity": {}}}}}},
    ],
)
def test_lower_perplexity_is_better_however_it_is_asked_for(more: Any, tmp_path: Path) -> None:
    ids = np.random.default_rng(0).integers(3, 97, (4, 32))
    result = tuned(tiny("GPT2"), tmp_path, calib=ids, **more)
    assert result.met and result.goal.higher_is_better is False
    assert not [note for note in result.notes if "is better" in note]


def test_an_encoder_is_served_on_its_products(tmp_path: Path) -> None:
    batches = [{"ids": np.random.default_rng(at).integers(0, 1200, (1, 32))} for at in range(4)]
    result = tuned(small_net(), tmp_path, calib=batches, evaluate=lambda model: 1.0)
    assert result.met and set(result.precisions) <= {"int4", "int8", "fp32"}


def test_bad_input_is_told_in_words(tmp_path: Path) -> None:
    source = folder_with_tokenizer(tmp_path / "net")
    with pytest.raises(DataError, match="20 tokens, fewer than one window of 32"):
        tuned(source, tmp_path / "a", calib=text(20))
    bare = tmp_path / "bare"
    tiny("Llama").save_pretrained(bare)
    with pytest.raises(DataError, match=r"no tokenizer\.json to tokenize it with"):
        tuned(bare, tmp_path / "b")
    with pytest.raises(DataError, match="expected tokens"):
        tuned(bare, tmp_path / "c", calib=np.zeros((4, 32)))
    with pytest.raises(UnsupportedModel, match="'bert'"):
        (tmp_path / "bert").mkdir()
        (tmp_path / "bert" / "config.json").write_text('{"model_type": "bert"}')
        (tmp_path / "bert" / "model.safetensors").write_bytes(b"\x02\0\0\0\0\0\0\0{}")
        tuned(tmp_path / "bert", tmp_path / "d")
    with pytest.raises(ConfigError, match="given 48"):
        tuned(source, tmp_path / "e", config={"quantization": {"weight_only": {"group_size": 48}}})


def test_folders_that_are_no_decoders_are_told_what_they_lack(tmp_path: Path) -> None:
    source = folder_with_tokenizer(tmp_path / "net")
    (source / "config.json").rename(tmp_path / "config.json")
    with pytest.raises(UnsupportedModel, match=r"no config\.json beside the weights"):
        tuned(source, tmp_path / "a")
    with pytest.raises(UnsupportedModel, match="no such file or folder"):
        tuned(tmp_path / "gone", tmp_path / "a")
    (tmp_path / "gguf").mkdir()
    with pytest.raises(UnsupportedModel, match="the folder holds no model"):
        tuned(tmp_path / "gguf", tmp_path / "a")
    (tmp_path / "gguf" / "net.gguf").write_bytes(b"GGUF")
    for place in (tmp_path / "gguf", tmp_path / "gguf" / "net.gguf"):
        with pytest.raises(UnsupportedModel, match="GGUF holds weights that are already quantized"):
            tuned(place, tmp_path / "b")
    (tmp_path / "config.json").rename(source / "config.json")
    broken = tiny("Llama")
    with torch.no_grad():
        broken.model.layers[1].mlp.up_proj.weight[0, 0] = float("nan")
    broken.save_pretrained(source)
    with pytest.raises(UnsupportedModel, match=r"layers\.1/mlp/up_proj\.weight.*NaN"):
        tuned(source, tmp_path / "c")
    whole = (source / "model.safetensors").read_bytes()
    (source / "model.safetensors").write_bytes(whole[:20000])
    with pytest.raises(UnsupportedModel, match="is cut off"):
        tuned(source, tmp_path / "d")


@pytest.mark.parametrize("word", ("float16", "bfloat16"))
def test_half_precision_in_shards_is_read(word: str, tmp_path: Path) -> None:
    from lpot.backends import export_decoder

    model = tiny("Llama").to(getattr(torch, word))
    model.save_pretrained(tmp_path / "net", max_shard_size="60KB")
    assert len(list((tmp_path / "net").glob("*.safetensors"))) > 1
    path = export_decoder(tmp_path / "net", tmp_path / "out")
    prompt = np.random.default_rng(0).integers(3, 97, 9)
    truth = prompt.tolist()
    with torch.no_grad():
        for _ in range(4):
            truth.append(int(model.float()(torch.tensor([truth])).logits[0, -1].argmax()))
    assert list(generate(lpot.load(path), prompt, 4)) == truth[9:]


def test_windows_are_cut_from_files_lists_and_arrays(tmp_path: Path) -> None:
    folder = folder_with_tokenizer(tmp_path / "net")
    (tmp_path / "text.txt").write_text(text(70))
    for source in (str(tmp_path / "text.txt"), tmp_path / "text.txt", text(70), [text(35)] * 2):
        found = windows_of(source, 32, folder, "text")
        assert found is not None and found.ids.shape == (2, 32)
    loader = [({"input_ids": np.ones((1, 4))}, None)]
    assert windows_of(loader, 32, folder, "text") is None
    assert len(TokenWindows(np.zeros((5, 4), np.int64), batch_size=2)) == 3


@pytest.mark.slow
def test_the_yaml_names_files_of_text_and_the_command_takes_one(tmp_path: Path) -> None:
    from click.testing import CliRunner

    source = folder_with_tokenizer(tmp_path / "net")
    (tmp_path / "one.txt").write_text(text())
    (tmp_path / "two.txt").write_text(text(300, seed=1))
    section = {
        "prompt_length": 32,
        "calibration_text": str(tmp_path / "one.txt"),
        "evaluation_text": str(tmp_path / "two.txt"),
    }
    config = {**SETTINGS, "quantization": {"weight_only": section}}
    result = tuned(source, tmp_path / "run", calib=None, config=config)
    assert result.met and result.baseline.samples == 9
    section["evaluation_text"] = "nowhere.txt"
    with pytest.raises(ConfigError, match=r"evaluation_text.*no such file"):
        tuned(source, tmp_path / "no", calib=None, config=config)
    (tmp_path / "conf.yaml").write_text(
        "model: {name: net}\n"
        "quantization: {approach: weight_only, weight_only: {prompt_length: 32}}\n"
        "tuning: {objective: modelsize, accuracy_criterion: {relative: 0.5, really: true}}\n"
    )
    words = ["--model", source, "--calib", tmp_path / "one.txt", "--workspace", tmp_path / "c"]
    line = ["tune", str(tmp_path / "conf.yaml"), *map(str, words), "--no-speed"]
    shown = CliRunner().invoke(cli, line)
    assert shown.exit_code == 0, shown.output
    assert (tmp_path / "c" / "decoder" / "model.onnx").is_file()


@pytest.mark.slow
def test_prompts_and_tokens_are_timed_apart(tmp_path: Path) -> None:
    result = tuned(
        tiny("Llama"),
        tmp_path,
        calib=np.full((6, 32), 5),
        goal=0.5,
        really=True,
        measure_speed=True,
    )
    rows = json.loads((tmp_path / "phases.json").read_text())
    assert list(rows) == [
        "token, batch 1",
        "token, batch 4",
        "prompt of 32, batch 1",
        "prompt of 8, batch 4",
    ]
    assert all(row["fp32"] > 0 and row["low"] > 0 for row in rows.values())
    assert any("token, batch 1" in note for note in result.notes)


def test_gptq_files_hold_the_weights_of_the_onnx_model(tmp_path: Path) -> None:
    """Read back into transformers they give the logits of FP32 with those weights rounded."""
    from lpot.backends import write_gptq
    from lpot.backends.onnx.decoder.gptq_files import read_gptq

    source = folder_with_tokenizer(tmp_path / "net")
    tuned(source, tmp_path / "run", keep_fp32=["layers.1/attn/qkv_proj"])
    out = write_gptq(tmp_path / "run" / "decoder" / "model.onnx", source, tmp_path / "gptq")
    config = json.loads((out / "config.json").read_text())["quantization_config"]
    assert (
        config["quant_method"] == "gptq"
        and config["bits"] == 4
        and config["group_size"] in (32, 64)
    )
    model = tiny("Llama")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = {name: torch.tensor(array) for name, array in read_gptq(out).items()}
    assert set(state) == set(before)
    changed = {name for name in before if not torch.equal(before[name], state[name])}
    kept = "model.layers.1.self_attn.q_proj.weight"
    assert r"-:^model\.layers\.1\.self_attn\.q_proj$" in config["dynamic"]
    assert kept not in changed and "model.layers.0.mlp.down_proj.weight" in changed
    for name in changed:
        assert (state[name] - before[name]).abs().max() < 0.5 * before[name].abs().max()
    assert (out / "tokenizer.json").is_file()
    with pytest.raises(UnsupportedModel, match="several products in one weight"):
        other = folder_with_tokenizer(tmp_path / "gpt2", "GPT2")
        write_gptq(tmp_path / "run" / "decoder" / "model.onnx", other, tmp_path / "no")


def test_products_whose_inputs_are_scaled_stay_in_float_in_gptq_files(tmp_path: Path) -> None:
    from lpot.backends import write_gptq

    source = folder_with_tokenizer(tmp_path / "net")
    config = {
        "quantization": {"weight_only": {"prompt_length": 32, "algorithm": "awq"}},
        "tuning": SETTINGS["tuning"],
    }
    tuned(source, tmp_path / "run", config=config, calib=text(200))
    path = tmp_path / "run" / "decoder" / "model.onnx"
    assert any("scaled_input" in node.name for node in onnx.load(path).graph.node)
    with pytest.raises(UnsupportedModel, match="none of its products is quantized"):
        write_gptq(path, source, tmp_path / "gptq")


@pytest.mark.slow
def test_the_last_word_of_a_text_is_asked_for(tmp_path: Path) -> None:
    source = folder_with_tokenizer(tmp_path / "net")
    found = windows_of(text(96), 32, source, "text")
    assert found is not None
    asking = found.asking_last_words()
    for window, labels in zip(asking.ids, asking.labels, strict=True):
        assert (labels[:-2] == -100).all() and labels[-2] == window[-2] and labels[-1] == -100
    result = tuned(
        source, tmp_path / "run", metric="last_word", goal=lpot.Goal(absolute=1.0), really=True
    )
    assert 0 <= result.accuracy <= 1 and result.goal.higher_is_better
    with pytest.raises(DataError, match="last_word needs text"):
        TokenWindows(np.zeros((2, 4), np.int64)).asking_last_words()


def test_a_folder_is_written_as_onnx_once(tmp_path: Path) -> None:
    from lpot.backends import export_decoder

    source = folder_with_tokenizer(tmp_path / "net")
    path = export_decoder(source, tmp_path / "out")
    before = path.stat().st_mtime_ns
    assert export_decoder(source, tmp_path / "out").stat().st_mtime_ns == before
    tiny("Qwen2").save_pretrained(source)
    assert export_decoder(source, tmp_path / "out").stat().st_mtime_ns > before


def test_a_decoder_is_judged_on_another_text(tmp_path: Path) -> None:
    from lpot.backends import export_decoder
    from lpot.utils.utility import last_word, perplexity

    source = folder_with_tokenizer(tmp_path / "net")
    path = export_decoder(source, tmp_path / "run" / "decoder")
    found = [perplexity(place, text(300), 32) for place in (tmp_path / "run", path.parent, path)]
    assert len(set(found)) == 1 and 90 < found[0] < 130
    with torch.no_grad():
        ids = windows_of(text(300), 32, source, "text")
        assert ids is not None
        tokens = torch.tensor(ids.ids)
        truth = tiny("Llama")(tokens, labels=tokens).loss.exp()
    assert found[0] == pytest.approx(float(truth), rel=1e-5)
    assert 0 <= last_word(path, text(300)) < 0.3
    with pytest.raises(UnsupportedModel, match="no decoder as ONNX in it"):
        perplexity(source, text(300))
    with pytest.raises(DataError, match="the text is a float: expected a text"):
        perplexity(path, 5.0)
