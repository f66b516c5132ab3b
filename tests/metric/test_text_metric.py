"""BLEU against sacrebleu's own corpus score."""

from __future__ import annotations

import random

import pytest

from lpot.core.errors import EvaluationError
from lpot.metric import get_metric

sacrebleu = pytest.importorskip("sacrebleu")


@pytest.fixture(scope="module")
def corpus():
    draw = random.Random(1)
    sentence = "The cat, dog and fox sat on a small mat; it was late (in May), wasn't it? Yes."
    vocabulary = sentence.split()
    references = [
        " ".join(draw.choice(vocabulary) for _ in range(draw.randrange(3, 20))) for _ in range(60)
    ]
    texts = []
    for line in references:
        kept = [word if draw.random() < 0.85 else draw.choice(vocabulary) for word in line.split()]
        texts.append(" ".join(kept[: draw.randrange(2, len(kept) + 1)]))
    return texts, references


@pytest.mark.parametrize("options", [{}, {"lowercase": True}, {"tokenize": "intl"}])
def test_equals_sacrebleu_in_batches(corpus, options):
    texts, references = corpus
    wanted = sacrebleu.BLEU(**options).corpus_score(texts, [references])
    metric = get_metric("BLEU", **options)
    for at in range(0, 60, 13):
        metric.update(texts[at : at + 13], references[at : at + 13])
    assert metric.result() == pytest.approx(wanted.score, abs=1e-10)
    assert metric.details["precision/4"] == pytest.approx(wanted.precisions[3])
    assert metric.details["brevity_penalty"] == pytest.approx(wanted.bp)


def test_several_references(corpus):
    texts, references = corpus
    second = [line.lower() for line in references]
    wanted = sacrebleu.BLEU().corpus_score(texts, [references, second]).score
    metric = get_metric("BLEU")
    metric.update(texts, list(zip(references, second, strict=True)))
    assert metric.result() == pytest.approx(wanted, abs=1e-10)
    uneven = [
        [one, two] if at % 2 else one
        for at, (one, two) in enumerate(zip(references, second, strict=True))
    ]
    metric.reset()
    metric.update(texts, uneven)
    streams = [references, [two if at % 2 else None for at, two in enumerate(second)]]
    assert metric.result() == pytest.approx(sacrebleu.BLEU().corpus_score(texts, streams).score)


def test_one_text_bytes_and_empty(corpus):
    metric = get_metric("BLEU")
    metric.update("the small cat sat here", b"the small cat sat here")
    assert metric.result() == pytest.approx(100.0)
    metric.update([""], ["something"])
    assert metric.result() < 100.0


def test_faults():
    metric = get_metric("BLEU")
    metric.update(["a b c d"], ["a b c d"])
    with pytest.raises(EvaluationError, match="sample 2: the prediction is a list, expected text"):
        metric.update(["x", [3, 4]], ["x", "y"])
    with pytest.raises(EvaluationError, match="sample 1: there is no reference"):
        metric.update(["x"], [[]])
