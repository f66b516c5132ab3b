"""A BERT of a few thousand weights, GLUE and SQuAD files of a few rows: for the example scripts."""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[1]
PYTORCH = ROOT / "examples" / "pytorch"
SCRIPTS = PYTORCH / "language_translation" / "examples"
SPECIAL = ("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "##s", "##ed")
SENTENCES = (
    "The cat sat on the red house .",
    "A dog ran in the park .",
    "The man is happy , not sad .",
    "A woman eats food in the big house .",
)

WORDS = (*SPECIAL, *sorted(set(" ".join((*SENTENCES, "who where ?")).lower().split())))

# task → file names, header, and a row made of (number, first text, second text, label)
_PAIR = "{n}\t{a}\t{b}\t{y}"
LAYOUTS: dict[str, tuple[tuple[str, ...], str, str, tuple[str, ...]]] = {
    "CoLA": (("train", "dev"), "", "x\t{y}\t\t{a}", ("0", "1")),
    "SST-2": (("train", "dev"), "sentence\tlabel", "{a}\t{y}", ("0", "1")),
    "MRPC": (
        ("train", "dev"),
        "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
        "{y}\t{n}\t{n}\t{a}\t{b}",
        ("0", "1"),
    ),
    "STS-B": (
        ("train", "dev"),
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore",
        "{n}\tg\tf\t2012\t{n}\tnone\tnone\t{a}\t{b}\t{y}",
        ("0.5", "2.0", "4.25", "3.0"),
    ),
    "QQP": (
        ("train", "dev"),
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate",
        "{n}\t{n}\t{n}\t{a}\t{b}\t{y}",
        ("0", "1"),
    ),
    "MNLI": (
        ("train", "dev_matched", "dev_mismatched"),
        "index\tsentence1\tsentence2\tgold_label",
        _PAIR,
        ("contradiction", "entailment", "neutral"),
    ),
    "QNLI": (
        ("train", "dev"),
        "index\tquestion\tsentence\tlabel",
        _PAIR,
        ("entailment", "not_entailment"),
    ),
    "RTE": (
        ("train", "dev"),
        "index\tsentence1\tsentence2\tlabel",
        _PAIR,
        ("entailment", "not_entailment"),
    ),
    "WNLI": (("train", "dev"), "index\tsentence1\tsentence2\tlabel", _PAIR, ("0", "1")),
}


def write_glue(folder: Path, task: str, rows: int = 12) -> Path:
    """The task's files with rows of every label."""
    names, head, pattern, labels = LAYOUTS[task]
    (folder / task).mkdir(parents=True)
    for name in names:
        lines = [head] if head else []
        for n in range(rows):
            first, second = SENTENCES[n % 4], SENTENCES[(n * 3 + 1) % 4]
            # every other pair of a class repeats its text: something to learn
            label = labels[n % len(labels)]
            lines.append(pattern.format(n=n, a=first, b=second, y=label))
        (folder / task / f"{name}.tsv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return folder / task


def write_squad(folder: Path) -> Path:
    """dev-v1.1.json and train-v1.1.json of four questions."""
    folder.mkdir(parents=True, exist_ok=True)
    context = " ".join(SENTENCES * 3)
    asked = (("who sat ?", "The cat"), ("where ran a dog ?", "in the park"))
    questions = [
        {
            "id": f"q{n}",
            "question": question,
            "answers": [{"text": text, "answer_start": context.index(text)}],
        }
        for n, (question, text) in enumerate(asked * 2)
    ]
    content = {
        "version": "1.1",
        "data": [{"title": "t", "paragraphs": [{"context": context, "qas": questions}]}],
    }
    for part in ("train", "dev"):
        (folder / f"{part}-v1.1.json").write_text(json.dumps(content), encoding="utf-8")
    return folder


def write_bert(folder: Path, head: str = "BertModel", labels: int = 2) -> Path:
    """A checkpoint as transformers saves it, with random weights; `head` is its class."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(WORDS),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=64,
        num_labels=labels,
    )
    getattr(transformers, head)(config).save_pretrained(folder)
    (folder / "vocab.txt").write_text("\n".join(WORDS) + "\n", encoding="utf-8")
    kind = {"tokenizer_class": "BertTokenizer", "do_lower_case": True}
    (folder / "tokenizer_config.json").write_text(json.dumps(kind), encoding="utf-8")
    return folder


def without_speed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tuning without the timing at its end, which starts processes and takes seconds."""
    monkeypatch.setattr("lpot.jobs.finish.result.with_speed", lambda job, result: result)


def script(name: str, folder: Path = SCRIPTS) -> Any:
    """A module of an example's folder."""
    for package in ("torch", "transformers", "safetensors"):
        pytest.importorskip(package)
    known = sys.modules.get(name)
    if known is not None and Path(known.__file__ or "").parent != folder:
        del sys.modules[name]  # another example has a script of this name
    if sys.path[0] != str(folder):
        sys.path.insert(0, str(folder))
    return importlib.import_module(name)


def results(folder: Path) -> dict[str, str]:
    """What eval_results.txt says."""
    lines = (folder / "eval_results.txt").read_text("utf-8").splitlines()
    return dict(line.split(" = ", 1) for line in lines)
