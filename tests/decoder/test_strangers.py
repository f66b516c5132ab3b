"""Decoders and texts as strangers bring them: each works, or one sentence says why not."""

from __future__ import annotations

import json
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
from lpot.backends.onnx.weight_only import WeightOnlyBackend
from lpot.backends.onnx.weight_only.guard import Guard
from lpot.core.backend import ModelSpec
from lpot.core.batch import InputSpec
from lpot.core.errors import ConfigError, DataError, UnsupportedModel
from lpot.core.model import Model
from lpot.jobs.benchmark.entry import saved
from lpot.jobs.decoder.generate import generate
from lpot.jobs.decoder.inputs import feeds, fixed_rows
from lpot.jobs.decoder.job import compare_phases
from lpot.jobs.decoder.prepare import joined
from lpot.jobs.decoder.reading import kept_in
from lpot.jobs.decoder.tokens import tokenizer_in, windows_of

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
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
    "source, why",
    [
        ("valid.txt", "looks like a file"),
        ("texts/valid", "looks like a file"),
        (str(Path(__file__).parent), "looks like a file, but there is none"),
        (Path("gone.txt"), "No such file"),
    ],
)
def test_a_file_that_is_not_there_is_told(source: Any, why: str) -> None:
    with pytest.raises(DataError, match=why):
        windows_of(source, 32, None, "the text")


def test_a_long_text_without_a_space_is_no_file() -> None:
    with pytest.raises(DataError, match="no tokenizer"):
        windows_of("多" * 300 + "/3.5", 32, None, "the text")


def test_loaders_of_tokens_and_texts_are_read_as_one() -> None:
    rows = IDS.tolist()
    equal: list[Any] = [
        [{"input_ids": row, "attention_mask": [1] * 32, "labels": row} for row in rows],
        [{"input_ids": torch.tensor(rows[:3])}, {"input_ids": torch.tensor(rows[3:])}],
        [torch.tensor([row]) for row in rows],
        torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.tensor(rows)), 2),
    ]
    for source in equal:
        assert np.array_equal(joined(source), IDS)
    padded = [{"input_ids": [rows[0], rows[1]], "attention_mask": [[1] * 32, [1] * 3 + [0] * 29]}]
    assert joined(padded).tolist() == rows[0] + rows[1][:3]
    assert joined([{"text": "one"}, {"text": "two"}]) == ["one", "two"]
    whole = [{"input_ids": rows, "past_key_values.0.key": np.zeros(3)}]
    others = [whole, [{"pixels": np.zeros((1, 3))}], [np.zeros((1, 3))], [], 5, "text"]
    assert all(joined(source) is source for source in others)


class Endless:
    """A dataset without an iterator, which never raises IndexError."""

    def __len__(self) -> int:
        return len(IDS)

    def __getitem__(self, at: int) -> dict[str, np.ndarray]:
        return {"input_ids": IDS[at % len(IDS)]}


class Streamed(torch.utils.data.IterableDataset[Any]):
    def __iter__(self) -> Any:
        return iter(torch.tensor(IDS))


def test_generators_datasets_and_what_tokenizers_return_are_read() -> None:
    mask = np.ones_like(IDS)
    equal: list[Any] = [
        ({"input_ids": row} for row in IDS),
        iter(IDS.tolist()),
        Endless(),
        {"input_ids": IDS, "attention_mask": mask},
        transformers.BatchEncoding({"input_ids": torch.tensor(IDS)}),
        torch.utils.data.DataLoader(Streamed(), batch_size=2),
    ]
    for source in equal:
        assert np.array_equal(joined(source), IDS)
    assert joined(word for word in ("one", "two")) == ["one", "two"]
    others = joined(iter([{"pixels": 1}, {"pixels": 2}]))
    assert [item["pixels"] for item in others] == [1, 2]  # nothing of it is lost
    assert list(joined(iter([]))) == []


def test_a_loader_of_batches_is_enough_for_a_decoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Guard, "allows", lambda *_: True)
    batches = [{"input_ids": torch.tensor(row[None])} for row in IDS]
    options = {"workspace": tmp_path, "measure_speed": False, "progress": False}
    found = lpot.tune(tiny("Llama"), batches, approach="weight_only", config=SETTINGS, **options)
    assert found.baseline is not None and found.baseline.samples == 2


@pytest.mark.parametrize(
    "section, why",
    [
        ({"bits": []}, r"bits: nothing is given, expected one or more, such as 4, 8"),
        ({"scheme": ""}, r"scheme: nothing is given"),
        ({"group_size": []}, r"group_size: nothing is given"),
        ({"algorithm": None}, r"algorithm: nothing is given"),
        ({"prompt_length": 1}, r"prompt_length: given 1, expected 2 or more"),
    ],
)
def test_settings_that_leave_nothing_are_told(section: dict[str, Any], why: str) -> None:
    settings = {"quantization": {"weight_only": section}}
    with pytest.raises(ConfigError, match=why):
        lpot.tune(tiny("Llama"), IDS, approach="weight_only", config=settings)


def test_formats_are_named_by_op_and_by_type(
    decoder: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Guard, "allows", lambda *_: True)
    section = {
        "weight_only": {"prompt_length": 32, "algorithm": "gptq"},
        "optype_wise": {
            "MatMul": {"weight": {"dtype": "int4", "group_size": 32, "algorithm": "gptq"}}
        },
        "op_wise": {"lm_head": {"weight": {"dtype": "int8", "granularity": "per_group"}}},
    }
    settings = {"quantization": section, "tuning": {"objective": "modelsize"}}
    options = {"workspace": tmp_path, "measure_speed": False, "progress": False}
    found = lpot.tune(
        decoder, IDS, goal=0.9, really=True, approach="weight_only", config=settings, **options
    ).recipe
    assert found is not None
    weights = {key.name: config.weight for key, config in found.ops.items() if config.weight}
    assert weights.pop("lm_head").dtype == "int8" and len(weights) == 10
    assert {(w.dtype, w.group_size, w.algorithm) for w in weights.values()} == {
        ("int4", 32, "gptq")
    }


def test_a_rule_may_ask_for_what_the_section_does_not(
    decoder: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Groups of just that size, of which the last one is filled up: as inside other approaches."""
    monkeypatch.setattr(Guard, "allows", lambda *_: True)
    name = "layers.0/mlp/down_proj"  # of 96 inputs
    wise = {name: {"weight": {"dtype": "int2", "group_size": 64}}}
    settings = {"quantization": {**SETTINGS["quantization"], "op_wise": wise}}
    options = {"workspace": tmp_path, "measure_speed": False, "progress": False}
    found = lpot.tune(
        decoder,
        IDS,
        goal=lpot.Goal(absolute=1e9),
        really=True,
        approach="weight_only",
        config=settings,
        **options,
    )
    assert found.recipe is not None
    weights = {key.name: config.weight for key, config in found.recipe.ops.items()}
    assert (weights[name].dtype, weights[name].group_size) == ("int2", 64)


def test_few_bits_in_another_approach_reach_a_decoder(
    decoder: onnx.ModelProto, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Guard, "allows", lambda *_: True)
    wise = {"optype_wise": {"MatMul": {"weight": {"dtype": "int4"}}}}
    tuned = lpot.tune(
        decoder,
        evaluate=lambda _: 1.0,
        approach="dynamic",
        config={"quantization": wise},
        workspace=tmp_path,
        measure_speed=False,
    )
    kinds = {node.op_type for node in onnx.load(tuned.path).graph.node}
    assert "MatMulNBits" in kinds and "MatMul" not in kinds


def spec(name: str, *shape: int | str, dtype: str = "int64") -> InputSpec:
    return InputSpec(name, dtype, shape)


def test_what_other_exporters_ask_for_is_fed() -> None:
    """A prompt of 3 tokens in two rows, behind a cache of 5."""
    rest = [
        spec("cache_position", "t"),
        spec("num_logits_to_keep"),
        spec("token_type_ids", "b", "t"),
    ]
    both = spec("past_0", 2, "b", 4, "past", 16, dtype="float32")
    found = feeds([spec("tokens", "b", "t", dtype="int32"), *rest, both], IDS[:2, :3], 5)
    assert found["tokens"].dtype == np.int32 and np.array_equal(found["tokens"], IDS[:2, :3])
    assert found["cache_position"].tolist() == [5, 6, 7] and found["num_logits_to_keep"].shape == ()
    assert found["token_type_ids"].shape == (2, 3) and found["past_0"].shape == (2, 2, 4, 5, 16)
    with pytest.raises(DataError, match=r"'pixels' \['b', 3\] can't be fed from text alone"):
        feeds([spec("input_ids", "b", "t"), spec("pixels", "b", 3)], IDS[:2])
    with pytest.raises(DataError, match=r"two graphs behind an If.*decoder_with_past_model\.onnx"):
        feeds([spec("input_ids", "b", "t"), spec("use_cache_branch", 1, dtype="bool")], IDS[:2])


def test_a_batch_that_is_fixed_is_kept_to_or_refused(
    decoder: onnx.ModelProto, tmp_path: Path
) -> None:
    for rows in (1, 2):
        changed = renamed(decoder, str)
        for value in (*changed.graph.input, *changed.graph.output):
            value.type.tensor_type.shape.dim[0].dim_value = rows
        model = loaded(changed)
        assert fixed_rows(model.inputs) == rows
        if rows == 1:
            assert "token, batch 1" in compare_phases(model, model, 16, (rows,))
    with pytest.raises(DataError, match="batches of just 2 rows: export it with its batch left"):
        lpot.tune(changed, IDS, approach="weight_only", config=SETTINGS, workspace=tmp_path)


def test_a_mark_of_the_byte_order_is_no_text(tmp_path: Path) -> None:
    from decoder.test_decoder_job import folder_with_tokenizer, text

    source = folder_with_tokenizer(tmp_path / "net")
    (tmp_path / "marked.txt").write_text(text(70), "utf-8-sig")
    plain, marked = (windows_of(t, 32, source, "text") for t in (text(70), tmp_path / "marked.txt"))
    assert plain is not None and marked is not None and np.array_equal(plain.ids, marked.ids)


def test_genai_is_told_a_type_whose_keys_and_values_are_apart(tmp_path: Path) -> None:
    for family, word in (("GPT2", "llama"), ("Gemma3", "gemma3_text"), ("OPT", "llama")):
        export_decoder(tiny(family), tmp_path / family)
        told = json.loads((tmp_path / family / "genai_config.json").read_text())
        assert told["model"]["type"] == word


def test_genai_is_told_no_more_positions_than_are_tabled(tmp_path: Path) -> None:
    export_decoder(tiny("Llama", max_position_embeddings=131072), tmp_path)
    told = json.loads((tmp_path / "genai_config.json").read_text())
    assert told["model"]["context_length"] == told["search"]["max_length"] == 32768


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
    result = lpot.tune(
        model, IDS, goal=0.5, really=True, approach="weight_only", config=SETTINGS, **options
    )
    assert result.met and result.trials and not [trial for trial in result.trials if trial.error]


def test_lists_of_tokens_are_windows() -> None:
    for given in (IDS.tolist(), IDS.reshape(-1).tolist()):
        found = windows_of(given, 32, None, "the text")
        assert found is not None and np.array_equal(found.ids, IDS)
    assert windows_of([[1, 2], [3]], 2, None, "the text") is None  # a loader, as far as we can see


def _adapter(folder: Path) -> None:
    from safetensors.numpy import save_file

    folder.mkdir(exist_ok=True)
    (folder / "adapter_config.json").write_text('{"peft_type": "LORA"}')
    name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight"
    save_file({name: np.zeros((8, 64), np.float32)}, folder / "adapter_model.safetensors")


@pytest.mark.parametrize("name", ["tokenizer.model", "vocab.json"])
def test_a_tokenizer_of_another_package_is_told_how_to_turn(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text("")
    with pytest.raises(DataError, match=rf"makes one of the {name} there .`AutoTokenizer"):
        tokenizer_in(tmp_path)


def test_the_limits_of_a_training_do_not_cut_a_text_off(tmp_path: Path) -> None:
    from decoder.test_decoder_job import folder_with_tokenizer, text

    source = folder_with_tokenizer(tmp_path / "net")
    tokenizer = tokenizer_in(source)
    tokenizer.enable_truncation(40)
    tokenizer.enable_padding(length=40)
    tokenizer.save(str(source / "tokenizer.json"))
    found = windows_of(text(96), 32, source, "text")
    assert found is not None and found.ids.shape == (3, 32)
    assert len(tokenizer_in(source).encode("w1 w2").ids) == 2


def test_mistrals_own_layout_beside_the_weights_is_passed_over(tmp_path: Path) -> None:
    from safetensors.numpy import save_file

    tiny("Mistral").save_pretrained(tmp_path / "net")
    other = {"layers.0.attention.wq.weight": np.zeros((64, 64), np.float32)}
    save_file(other, tmp_path / "net" / "consolidated.safetensors")
    assert export_decoder(tmp_path / "net", tmp_path / "out").is_file()


def _other_vocabulary(folder: Path) -> None:
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, "vocab_size": 120}))


@pytest.mark.parametrize(
    "change, why",
    [
        (_adapter, r"has an adapter \(base_model.*merge it into its base model"),
        (_other_vocabulary, r"the shape \[97, 64\], but config.json says \[120, 64\]"),
    ],
)
def test_a_folder_that_is_not_one_whole_model_is_told(
    tmp_path: Path, change: Callable[[Path], None], why: str
) -> None:
    tiny("Llama").save_pretrained(tmp_path / "llama")
    change(tmp_path / "llama")
    with pytest.raises(UnsupportedModel, match=why):
        export_decoder(tmp_path / "llama", tmp_path / "out")


def test_an_adapter_without_its_model_is_told(tmp_path: Path) -> None:
    _adapter(tmp_path / "adapter")
    with pytest.raises(UnsupportedModel, match="an adapter, not a whole model; merge it"):
        lpot.tune(tmp_path / "adapter", IDS, approach="weight_only", workspace=tmp_path / "run")


def test_an_object_that_is_quantized_already_is_told(tmp_path: Path) -> None:
    model = tiny("Llama")
    model.config.quantization_config = {"quant_method": "bitsandbytes", "load_in_8bit": True}
    with pytest.raises(UnsupportedModel, match="LlamaForCausalLM: the model is already quantized"):
        export_decoder(model, tmp_path)


def test_a_missing_tokenizer_is_missed_beside_the_model(tmp_path: Path) -> None:
    tiny("Llama").save_pretrained(tmp_path / "llama")
    with pytest.raises(DataError, match=r"llama has no tokenizer\.json"):
        lpot.tune(
            *(tmp_path / "llama", "a text without a tokenizer"),
            approach="weight_only",
            config=SETTINGS,
            workspace=tmp_path / "run",
        )


def test_fp32_is_timed_from_the_file_it_lies_in(decoder: onnx.ModelProto, tmp_path: Path) -> None:
    onnx.save(decoder, tmp_path / "model.onnx")
    model = WeightOnlyBackend().load(tmp_path / "model.onnx")
    found = saved(model, tmp_path / "again")
    assert Path(found.source) == tmp_path / "model.onnx" and not (tmp_path / "again").exists()
    in_memory = WeightOnlyBackend().load(decoder)
    assert Path(saved(in_memory, tmp_path / "again").source).parent == tmp_path / "again"
