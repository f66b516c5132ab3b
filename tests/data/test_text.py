"""Tokenizer, GLUE, SQuAD and bert: against the tokenizers package and on real text."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

from lpot.core.errors import ConfigError, DataError
from lpot.data import DataLoader, get_dataset
from lpot.data.datasets.glue import TASKS, read_task
from lpot.data.datasets.squad import make_examples, make_features, split_words, windows
from lpot.data.tokenizer import WordPiece, basic_tokens, load_tokenizer, shorten

HARD = [
    "Héllo, naïve café — “quoted” …  it's\t10% of $5.00!",
    "東京 is Tokyo; 1 2\u202f3 \u200bzero\u00a0width\x00\x07",
    "ÅNGSTRÖM İstanbul ﬁ ² ½ ªº",
    "",
    "   ",
    "a" * 120 + " supercalifragilistic",
    "[CLS] in text? ##s",
]


@pytest.fixture(scope="session")
def vocabulary(data: Path) -> Path:
    return data / "minilm_l6_bert"


@pytest.fixture(scope="session")
def wordpiece(vocabulary: Path) -> WordPiece:
    return WordPiece.from_file(vocabulary)


@pytest.fixture(scope="session")
def library(vocabulary: Path):
    tokenizers = pytest.importorskip("tokenizers")
    found = tokenizers.Tokenizer.from_file(str(vocabulary / "tokenizer.json"))
    found.no_padding()
    return found


def test_tokenizer_equals_the_library_on_hard_text(wordpiece, library):
    library.no_truncation()
    for text in HARD[:-1]:  # the library takes a special token written in the text as such
        ours = wordpiece.encode(text, None, 512)
        assert ours.ids == library.encode(text).ids, text


def test_tokenizer_equals_the_library_on_real_pairs(wordpiece, library, data):
    _, rows = read_task(data / "glue" / "MRPC", "mrpc")
    for limit in (128, 40, 31):
        library.enable_truncation(limit)
        for row in rows:
            theirs = library.encode(*row.texts)
            ours = wordpiece.encode(*row.texts, limit)
            assert (ours.ids, ours.types) == (theirs.ids, theirs.type_ids), row.line


def test_cased_and_faults(tmp_path):
    assert basic_tokens("A Bé", lower=False) == ["A", "Bé"]
    assert basic_tokens("A Bé", lower=True) == ["a", "be"]
    (tmp_path / "vocab.txt").write_text("a\nb\n")
    with pytest.raises(DataError, match=r"vocab\.txt: lacks \[UNK\]"):
        WordPiece.from_file(tmp_path)
    with pytest.raises(DataError, match="does not download"):
        load_tokenizer(tmp_path / "bert-base-uncased")


def test_other_tokenizers_by_the_package(vocabulary, wordpiece, tmp_path):
    pytest.importorskip("tokenizers")
    shutil.copy(vocabulary / "tokenizer.json", tmp_path)
    other = load_tokenizer(tmp_path, model_type="roberta")
    assert other.encode("some text", "more", 20) == wordpiece.encode("some text", "more", 20)


@pytest.mark.parametrize("lengths", [(9, 2), (2, 9), (9, 9), (8, 9), (1, 1), (40, 3)])
@pytest.mark.parametrize("limit", [5, 8, 11])
def test_shorten_fits(lengths, limit):
    first, second = shorten(["a"] * lengths[0], ["b"] * lengths[1], limit)
    assert len(first) + len(second) == min(sum(lengths), limit)


def test_mrpc_real(data, vocabulary):
    dataset = get_dataset(
        "GLUE", data_dir=str(data / "glue" / "MRPC"), model_name_or_path=str(vocabulary)
    )
    assert len(dataset) == 408 and sum(dataset.label(n) for n in range(408)) == 279
    inputs, label = dataset[0]
    assert list(inputs) == ["input_ids", "attention_mask", "token_type_ids"] and label == 1
    assert all(value.shape == (128,) and value.dtype == np.int64 for value in inputs.values())
    length = int(inputs["attention_mask"].sum())
    assert inputs["input_ids"][0] == 101 and inputs["input_ids"][length - 1] == 102
    assert not inputs["input_ids"][length:].any()


def test_dynamic_length_pads_to_the_batch(data, vocabulary):
    options = dict(data_dir=str(data / "glue"), model_name_or_path=str(vocabulary), task="rte")
    fixed = DataLoader(get_dataset("GLUE", **options), batch_size=4)
    loose = DataLoader(get_dataset("GLUE", **options, dynamic_length=True), batch_size=4)
    for (inputs, labels), (wide, wide_labels), _ in zip(loose, fixed, range(5), strict=False):
        length = int(wide["attention_mask"].sum(axis=1).max())
        assert np.array_equal(labels, wide_labels)
        for name, values in inputs.items():
            assert np.array_equal(values, wide[name][:, :length])


def test_input_names_and_model_types(data, vocabulary):
    options = dict(data_dir=str(data / "glue"), model_name_or_path=str(vocabulary), task="sst-2")
    inputs, _ = get_dataset("GLUE", **options, model_type="distilbert")[0]
    assert list(inputs) == ["input_ids", "attention_mask"]
    names = ["input_ids", "input_mask", "segment_ids"]
    assert list(get_dataset("GLUE", **options, input_names=names)[0][0]) == names
    with pytest.raises(ConfigError, match="should be 3 names"):
        get_dataset("GLUE", **options, input_names=["a"])


def test_real_slices(data, tmp_path):
    assert len(read_task(data / "glue" / "SST-2", "sst-2")[1]) == 872
    _, rows = read_task(data / "glue", "RTE")
    assert len(rows) == 277 and {row.label for row in rows} == {0, 1}
    _, train = read_task(data / "glue", "mrpc", evaluate=False)
    assert len(train) == 3668
    # CoLA and STS-B are stored in other layouts here: write them as GLUE distributes them.
    lines = (data / "glue" / "CoLA" / "out_of_domain_dev.tsv").read_text().splitlines()
    cells = [line.split("\t") for line in lines]
    (tmp_path / "dev.tsv").write_text("\n".join(f"gj04\t{b}\t*\t{a}" for a, b in cells))
    _, rows = read_task(tmp_path, "cola")
    assert [row.texts[0] for row in rows] == [a for a, _ in cells] and len(rows) == 516
    lines = (data / "glue" / "STS-B" / "sts-dev.csv").read_text().splitlines()
    cells = [line.split("\t")[:7] for line in lines]
    head = "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore"
    body = [
        f"{n}\t{g}\t{f}\t{y}\t{i}\tx\ty\t{a}\t{b}\t{s}"
        for n, (g, f, y, i, s, a, b) in enumerate(cells)
    ]
    (tmp_path / "dev.tsv").write_text("\n".join([head, *body]))
    _, rows = read_task(tmp_path, "sts-b")
    assert len(rows) == 1500 and rows[0].label == 5.0


HEADS = {
    "sst-2": ("sentence\tlabel", "good film\t1", ("good film",), 1),
    "mrpc": ("Quality\t#1 ID\t#2 ID\t#1 String\t#2 String", "1\t2\t3\ta\tb", ("a", "b"), 1),
    "qqp": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "1\t2\t3\ta\tb\t0",
        ("a", "b"),
        0,
    ),
    "qnli": ("index\tquestion\tsentence\tlabel", "0\ta\tb\tnot_entailment", ("a", "b"), 1),
    "rte": ("index\tsentence1\tsentence2\tlabel", "0\ta\tb\tentailment", ("a", "b"), 0),
    "wnli": ("index\tsentence1\tsentence2\tlabel", "0\ta\tb\t1", ("a", "b"), 1),
    "mnli": (
        "index\tpromptID\tpairID\tgenre\tsentence1_binary_parse\tsentence2_binary_parse\t"
        "sentence1_parse\tsentence2_parse\tsentence1\tsentence2\tlabel1\tlabel2\tlabel3\tlabel4\t"
        "label5\tgold_label",
        "0\t1\t2\tg\t(\t(\t(\t(\ta\tb\tx\tx\tx\tx\tx\tneutral",
        ("a", "b"),
        2,
    ),
}
HEADS["mnli-mm"] = HEADS["mnli"]


@pytest.mark.parametrize("task", HEADS)
def test_layouts_as_distributed(tmp_path, task):
    head, row, texts, label = HEADS[task]
    name = TASKS[task].dev[0]
    (tmp_path / name).write_text(f"\ufeff{head}\r\n{row}\r\n", encoding="utf-8")
    path, rows = read_task(tmp_path, task.upper())
    assert path.name == name
    assert [(r.line, r.texts, r.label) for r in rows] == [(2, texts, label)]


def test_mnli_classes_of_roberta(tmp_path):
    head, row, *_ = HEADS["mnli"]
    (tmp_path / "dev_matched.tsv").write_text(f"{head}\n{row}\n")
    assert read_task(tmp_path, "mnli", model_type="roberta")[1][0].label == 1


def test_quotes_are_plain_characters(tmp_path):
    (tmp_path / "dev.tsv").write_text('sentence\tlabel\n"open quote\t1\nclose" quote\t0\n')
    assert [row.texts[0] for row in read_task(tmp_path, "sst-2")[1]] == [
        '"open quote',
        'close" quote',
    ]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("sentence\tlabel\ngood\t1\nbroken row\n", r"dev\.tsv:3: has 1 columns, expected 2"),
        ("sentence\tlabel\na\tb\t1\n", r"dev\.tsv:2: has 3 columns"),
        ("sentence\tlabel\ngood\t2\n", r"dev\.tsv:2: the label '2' is none of 0, 1"),
        ("sentence\tlabel\ngood\tyes\n", r"dev\.tsv:2: the label 'yes'"),
        ("index\tsentence\n0\tgood\n", r"dev\.tsv:1: the header lacks 'label'"),
        ("sentence\tlabel\n", r"dev\.tsv: holds no rows"),
    ],
)
def test_broken_tsv(tmp_path, content, message):
    (tmp_path / "dev.tsv").write_text(content)
    with pytest.raises(DataError, match=message):
        read_task(tmp_path, "sst-2")


def test_qqp_leaves_out_its_few_broken_rows(tmp_path, caplog):
    head, row, *_ = HEADS["qqp"]
    (tmp_path / "dev.tsv").write_text("\n".join([head, "1\t2", *[row] * 300]))
    assert len(read_task(tmp_path, "qqp")[1]) == 300
    assert "1 broken rows skipped" in caplog.text and "dev.tsv:2" in caplog.text
    (tmp_path / "dev.tsv").write_text("\n".join([head, *["1\t2"] * 5, *[row] * 100]))
    with pytest.raises(DataError, match=r"dev\.tsv:2"):
        read_task(tmp_path, "qqp")


def test_glue_missing_and_misspelt(tmp_path):
    with pytest.raises(
        DataError, match=r"GLUE MNLI: nothing found .*dev_matched.tsv.*gluebenchmark"
    ):
        read_task(tmp_path, "mnli")
    with pytest.raises(ConfigError, match="unknown GLUE task 'mrcp', did you mean 'mrpc'"):
        read_task(tmp_path, "mrcp")
    (tmp_path / "dev.tsv").write_text("sentence1\tsentence2\tscore\na\tb\thigh\n")
    with pytest.raises(DataError, match=r"dev\.tsv:2: the score 'high'"):
        read_task(tmp_path, "sts-b")


def test_windows_cover_and_overlap():
    for count, room, stride in ((1, 5, 3), (5, 5, 3), (6, 5, 3), (300, 50, 20), (300, 50, 80)):
        spans = windows(count, room, stride)
        assert sorted({n for span in spans for n in span}) == list(range(count))
        assert all(len(span) <= room for span in spans)
    assert windows(0, 5, 3) == []


def test_squad_real(data, vocabulary):
    dataset = get_dataset(
        "SQuAD",
        label_file=str(data / "squad" / "dev-slice-v1.1.json"),
        vocab_file=str(vocabulary),
    )
    assert len(dataset.examples) == 1190 and len(dataset) >= 1190
    inputs, unique_id = dataset[0]
    assert unique_id == 1_000_000_000 and inputs["input_ids"].shape == (384,)
    shown: dict[int, set[int]] = {}
    for feature in dataset.features:
        words = dataset.examples[feature.example_index].doc_tokens
        assert len(feature.input_ids) == len(feature.input_mask) == 384
        assert sum(feature.input_mask) == len(feature.tokens)
        for place, word in feature.token_to_orig_map.items():
            assert feature.segment_ids[place] == 1 and word < len(words)
            if feature.token_is_max_context[place]:
                shown.setdefault(feature.example_index, set()).add(word)
    for number, example in enumerate(dataset.examples):
        # Words that are pure control or space characters have no piece and can't be shown.
        assert len(shown[number]) >= 0.99 * len(example.doc_tokens)


def test_squad_windows_show_each_token_best_once(wordpiece):
    text = " ".join(f"word{n}" for n in range(200))
    articles = [{"paragraphs": [{"context": text, "qas": [{"id": "q", "question": "what?"}]}]}]
    examples = make_examples(articles)
    features = list(make_features(examples, wordpiece, 64, 16, 32))
    assert len(features) > 5
    assert [f.doc_span_index for f in features] == list(range(len(features)))
    total = sum(sum(f.token_is_max_context.values()) for f in features)
    pieces = sum(len(wordpiece.tokenize(word)) for word in examples[0].doc_tokens)
    assert total == pieces
    middle = features[3]
    best = [place for place, is_best in middle.token_is_max_context.items() if is_best]
    assert min(best) > min(middle.token_to_orig_map) and max(best) < max(middle.token_to_orig_map)
    with pytest.raises(ConfigError, match="leaves no room"):
        list(make_features(examples, wordpiece, 32, 16, 64))


def test_squad_words():
    assert split_words("a  b\tc\u202fd\n") == ["a", "b", "c", "d"]
    assert split_words("a\u00a0b") == ["a\u00a0b"], "SQuAD does not split at a no-break space"


def test_squad_faults(tmp_path, vocabulary):
    path = tmp_path / "dev.json"
    for content, message in (
        ("{", "is not json"),
        ("[]", "is not a SQuAD file"),
        (json.dumps({"version": "v2.0", "data": []}), "only v1.1"),
        (json.dumps({"version": "2.0", "data": []}), "only v1.1"),
        (json.dumps({"version": "1.1", "data": []}), "holds no questions"),
        (json.dumps({"data": [{"title": "X", "paragraphs": [{"qas": []}]}]}), "article 'X' lacks"),
    ):
        path.write_text(content)
        with pytest.raises(DataError, match=rf"dev\.json: .*{message}"):
            get_dataset("SQuAD", label_file=str(path), vocab_file=str(vocabulary))


def bert_features(count: int = 3) -> list[tuple]:
    return [(*(np.full(4, 10 * n + k) for k in range(3)), np.asarray(n)) for n in range(count)]


def test_bert_classifier_and_squad():
    dataset = get_dataset("bert", dataset=bert_features(), task="classifier", model_type="bert")
    inputs, label = dataset[2]
    assert list(inputs) == ["input_ids", "attention_mask", "token_type_ids"] and label == 2
    assert (inputs["token_type_ids"] == 22).all()
    plain = get_dataset("bert", dataset=bert_features(), task="squad", model_type="distilbert")
    assert list(plain[0][0]) == ["input_ids", "attention_mask"]
    longer = [(*sample, np.asarray(7), np.zeros(4)) for sample in bert_features()]
    xlnet = get_dataset("bert", dataset=longer, task="squad", model_type="xlnet")
    assert xlnet[0][0]["cls_index"] == 7 and "p_mask" in xlnet[0][0]
    batch, labels = next(iter(DataLoader(dataset, batch_size=3)))
    assert batch["input_ids"].shape == (3, 4) and labels.tolist() == [0, 1, 2]


def test_bert_takes_tensors_and_dicts():
    torch = pytest.importorskip("torch")
    tensors = torch.utils.data.TensorDataset(
        *(torch.arange(6).reshape(2, 3) for _ in range(3)), torch.tensor([1, 0])
    )
    inputs, label = get_dataset("bert", dataset=tensors, task="classifier")[0]
    assert isinstance(inputs["input_ids"], np.ndarray) and label == 1
    named = [{"input_ids": [1, 2], "label": 1}]
    inputs, label = get_dataset("bert", dataset=named, task="classifier")[0]
    assert list(inputs) == ["input_ids"] and label == 1
    with pytest.raises(DataError, match="none of them a label"):
        get_dataset("bert", dataset=[{"input_ids": [1]}], task="classifier")[0]


def test_bert_record_file_form(data, tmp_path):
    root = tmp_path / "eval.tf_record"
    root.write_bytes(b"")
    labels = str(data / "squad" / "dev-slice-v1.1.json")
    dataset = get_dataset("bert", root=str(root), label_file=labels, task="squad")
    path, articles = dataset[0]
    assert len(dataset) == 1 and path == str(root) and len(articles) == 48


def test_bert_faults():
    for options, message in (
        (dict(dataset=[], task="clasifier"), "did you mean 'classifier'"),
        (dict(task="squad"), "either dataset .* or root"),
        (dict(root="x", task="squad"), "needs label_file"),
    ):
        with pytest.raises(ConfigError, match=message):
            get_dataset("bert", **options)
    with pytest.raises(DataError, match=r"sample 0 has 2 parts.*needs 4"):
        get_dataset("bert", dataset=[(np.zeros(2), np.zeros(2))], task="classifier")[0]
