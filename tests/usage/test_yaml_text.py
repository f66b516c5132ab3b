"""Texts from a yaml alone: GLUE and SQuAD on tiny files and a net whose FP32 score is known."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import onnx
import pytest

import onnx_models
import record_files
from lpot.metric import get_metric
from usage.test_yaml_tiny import COUNT, RNG, Tune, check, conf, mostly, outputs

WORDS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "red", "blue", "fox", "bird", "ran", "sat", "where"]


def reader(outputs: Sequence[tuple[str, int]], pooled: bool) -> onnx.ModelProto:
    """Embedding, a layer, and one head an output; the three inputs of BERT."""
    net = onnx_models.Net(seed=4)
    kind = onnx.TensorProto.INT64
    names = ("input_ids", "attention_mask", "token_type_ids")
    ids, mask, types = (net.input(name, ["n", "tokens"], kind) for name in names)
    net.weight("words", len(WORDS), 16, scale=1.0)
    net.weight("kinds", 2, 16, scale=0.2)
    last = net.op("Add", [net.op("Gather", ["words", ids]), net.op("Gather", ["kinds", types])])
    net.const("last_axis", np.asarray([-1]))
    weight = net.op("Unsqueeze", [net.op("Cast", [mask], to=onnx.TensorProto.FLOAT), "last_axis"])
    last = net.op("Mul", [last, weight])
    net.weight("w1", 16, 16, scale=0.4)
    last = net.op("Relu", [net.op("MatMul", [last, "w1"], name="layer")])
    if pooled:
        last = net.op("ReduceMean", [last], axes=[1], keepdims=0)
    for name, columns in outputs:
        net.weight(f"{name}_w", 16, columns, scale=1.0)
        made = net.op("MatMul", [last, f"{name}_w"], "" if not pooled else name, name=f"{name}_op")
        if not pooled:
            net.op("Squeeze", [made, "last_axis"], name)
    return net.model(*(name for name, _ in outputs))


def encode(texts: Sequence[tuple[str, str]], length: int) -> list[np.ndarray]:
    """Token numbers, mask and types by hand: single words only."""
    rows = np.zeros((3, len(texts), length), dtype=np.int64)
    for number, pair in enumerate(texts):
        tokens, kinds = ["[CLS]"], [0]
        for kind, text in enumerate(part for part in pair if part):
            tokens += [*text.split(), "[SEP]"]
            kinds += [kind] * (len(text.split()) + 1)
        rows[0, number, : len(tokens)] = [WORDS.index(token) for token in tokens]
        rows[1, number, : len(tokens)] = 1
        rows[2, number, : len(kinds)] = kinds
    return list(rows)


def sentences() -> list[str]:
    return [" ".join(RNG.choice(WORDS[4:], 5, replace=False)) for _ in range(COUNT)]


@pytest.mark.parametrize(
    ("task", "head", "row", "metric"),
    [
        ("sst-2", "sentence\tlabel", "{a}\t{label}", "Accuracy"),
        (
            "mrpc",
            "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String",
            "{label}\t1\t2\t{a}\t{b}",
            "F1",
        ),
        ("rte", "index\tsentence1\tsentence2\tlabel", "0\t{a}\t{b}\t{label}", "Accuracy"),
    ],
)
def test_glue(here: Path, tune: Tune, task: str, head: str, row: str, metric: str) -> None:
    model = reader([("logits", 2)], pooled=True)
    onnx.save(model, here / "net.onnx")
    (here / "vocab.txt").write_text("\n".join(WORDS))
    pairs = [(a, b if "{b}" in row else "") for a, b in zip(sentences(), sentences(), strict=True)]
    logits = outputs(model, *encode(pairs, 16))[0]
    labels = mostly(logits.argmax(1), 2)
    lines = [row.format(a=a, b=b, label=label) for (a, b), label in zip(pairs, labels, strict=True)]
    (here / "dev.tsv").write_text("\n".join([head, *lines]))
    (here / "train.tsv").write_text("\n".join([head, *lines]))
    dataset = f"{{GLUE: {{data_dir: ., model_name_or_path: ., task: {task}, max_seq_length: 16}}}}"
    expected = get_metric(metric)
    expected.update(logits, labels)
    told = tune(conf(dataset, f"metric: {{GLUE: {{task: {task}}}}}"))
    check(told, expected.result())


@pytest.mark.parametrize(
    ("dataset", "steps"),
    [
        ("{{SQuAD: {options}}}", "{{SquadV1: {options}}}"),
        (
            "{{mzbert: {{root: eval.record, label_file: dev.json}}}}",
            "{{Collect: {{length: 20}}, SquadV1: {options}}}",
        ),
        (
            "{{mzbert: {{root: eval.record, label_file: dev.json}}}}",
            "{{SquadV1ModelZoo: {options}}}",
        ),
    ],
)
def test_squad(here: Path, tune: Tune, dataset: str, steps: str) -> None:
    model = reader([("start", 1), ("end", 1)], pooled=False)
    onnx.save(model, here / "net.onnx")
    (here / "vocab.txt").write_text("\n".join(WORDS))
    question = "where fox"
    contexts = sentences()
    inputs = encode([(question, text) for text in contexts], 16)
    columns = ("input_ids", "input_mask", "segment_ids")
    windows = [dict(zip(columns, row, strict=True)) for row in zip(*inputs, strict=True)]
    record_files.write(here / "eval.record", [record_files.serialize(one) for one in windows])
    start, end = outputs(model, *inputs)
    asked, scores = [], []
    for number, text in enumerate(contexts):
        words = text.split()
        # The paragraph begins after [CLS], two words and [SEP].
        best = max(
            (start[number][4 + a] + end[number][4 + b], a, b) for a in range(5) for b in range(a, 5)
        )
        answer = " ".join(words[best[1] : best[2] + 1])
        right = number % 4 != 0
        scores.append(100.0 if right else 0.0)
        reference = answer if right else "nothing"
        asked.append(
            {
                "context": text,
                "qas": [
                    {
                        "id": f"q{number}",
                        "question": question,
                        "answers": [{"text": reference, "answer_start": 0}],
                    }
                ],
            }
        )
    content = {"version": "1.1", "data": [{"title": "t", "paragraphs": asked}]}
    (here / "dev.json").write_text(json.dumps(content))
    options = (
        "{label_file: dev.json, vocab_file: vocab.txt, max_seq_length: 16, max_query_length: 4}"
    )
    more = f", postprocess: {{transform: {steps.format(options=options)}}}"
    told = tune(
        conf(
            dataset.format(options=options),
            "metric: SquadF1",
            more=more,
            bar="absolute: 100, really: true",
        )
    )
    check(told, float(np.mean(scores)))
    assert told["baseline"]["samples"] == COUNT
