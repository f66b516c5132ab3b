"""SquadF1 and SquadEM against an implementation written from the published definition."""

from __future__ import annotations

import json
import random

import numpy as np
import pytest

from lpot.core.errors import EvaluationError
from lpot.metric import get_metric

MARKS = "!\"#$%&'()*+,-./:;<=>?@[\\]^_`{|}~"


def words(text):
    """Published normalization: lower, drop punctuation, drop a/an/the, split at white space."""
    kept = "".join(letter for letter in text.lower() if letter not in MARKS)
    spaced, word = [], ""
    for letter in kept + " ":  # an article is a whole word between non-word letters
        if letter.isalnum() or letter == "_":
            word += letter
        else:
            spaced.append(" " if word in ("a", "an", "the") else word)
            spaced.append(letter)
            word = ""
    return "".join(spaced).split()


def f1_of(prediction, reference):
    found, wanted = words(prediction), words(reference)
    left, same = list(wanted), 0
    for word in found:
        if word in left:
            left.remove(word)
            same += 1
    if same == 0:
        return 0.0
    precision, recall = same / len(found), same / len(wanted)
    return 2 * precision * recall / (precision + recall)


def published(articles, predictions):
    f1 = exact = total = 0
    for article in articles:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                total += 1
                if question["id"] not in predictions:
                    continue
                texts = [answer["text"] for answer in question["answers"]]
                guess = predictions[question["id"]]
                exact += max(words(guess) == words(text) for text in texts)
                f1 += max(f1_of(guess, text) for text in texts)
    return {"exact_match": 100.0 * exact / total, "f1": 100.0 * f1 / total}


@pytest.fixture(scope="module", params=["dev-slice-v1.1.json", "dev-slice2-v1.1.json"])
def articles(request, data):
    file = data / "squad" / request.param
    if not file.is_file():
        pytest.skip(f"no {file.name}")
    return json.loads(file.read_text(encoding="utf-8"))["data"]


@pytest.fixture(scope="module")
def predictions(articles):
    """Right, perturbed, empty and missing answers, and spans cut from the context."""
    draw = random.Random(5)
    found = {}
    for article in articles:
        for paragraph in article["paragraphs"]:
            for question in paragraph["qas"]:
                gold = draw.choice(question["answers"])["text"]
                start = draw.randrange(max(1, len(paragraph["context"]) - 60))
                kinds = [
                    gold,
                    f"The {gold}!",
                    gold[: len(gold) // 2],
                    f"{gold} and {gold}",
                    " ".join(reversed(gold.split())),
                    paragraph["context"][start : start + draw.randrange(60)],
                    "",
                    None,
                ]
                text = draw.choice(kinds)
                if text is not None:
                    found[question["id"]] = text
    return found


def test_scores_equal_the_published_definition(articles, predictions):
    wanted = published(articles, predictions)
    assert 20 < wanted["exact_match"] < wanted["f1"] < 80  # the set is neither trivial nor hopeless
    f1, exact = get_metric("SquadF1"), get_metric("SquadEM")
    f1.update(predictions, articles)
    exact.update(predictions, articles)
    assert f1.result() == pytest.approx(wanted["f1"], abs=1e-10)
    assert exact.result() == pytest.approx(wanted["exact_match"], abs=1e-10)
    assert f1.details["exact_match"] == pytest.approx(wanted["exact_match"], abs=1e-10)
    assert f1.details["total"] - f1.details["unanswered"] == len(predictions)


def test_batches_give_the_same(articles, predictions):
    whole = get_metric("SquadF1")
    whole.update(predictions, articles)
    parts = get_metric("SquadF1")
    keys = list(predictions)
    for at in range(0, len(keys), 100):
        parts.update({key: predictions[key] for key in keys[at : at + 100]}, articles)
    assert parts.result() == pytest.approx(whole.result(), abs=1e-10)
    parts.update(predictions, articles)  # again: a question counts once
    assert parts.result() == pytest.approx(whole.result(), abs=1e-10)
    values = parts.per_sample(predictions, articles)
    assert values.mean() == pytest.approx(whole.result(), abs=1e-10)
    assert values.min() >= 0 and values.max() <= 100 and len(values) == whole.details["total"]


def test_gold_scores_hundred(articles):
    gold = {
        question["id"]: question["answers"][0]["text"]
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    }
    metric = get_metric("SquadEM")
    metric.update(gold, {"version": "1.1", "data": articles})
    assert metric.result() == 100.0
    metric.reset()
    metric.update(gold, [articles])  # as a batch of one
    assert metric.result() == 100.0


def test_lists_of_texts():
    metric = get_metric("SquadF1")
    metric.update(["red fox", "b"], [["the red fox", "dog"], "c"])
    metric.update([b"x"], ["x"])
    assert metric.result() == pytest.approx(100 * 2 / 3)
    values = metric.per_sample(["red fox", "b"], [["the red fox", "dog"], "c"])
    np.testing.assert_allclose(values, [100, 0])


def test_labels_refilled_in_place_are_read_again():
    labels = {"a": ["x"]}
    metric = get_metric("SquadF1")
    metric.update({"a": "x"}, labels)
    labels.clear()
    labels["b"] = ["y"]
    metric.update({"b": "y"}, labels)
    assert metric.result() == 100.0 and metric.details["total"] == 2


def test_none_means_not_ready_and_faults_are_told(caplog):
    metric = get_metric("SquadF1")
    metric.update(None, None)
    with pytest.raises(EvaluationError, match="before any sample"):
        metric.result()
    with pytest.raises(EvaluationError, match="'q' has no reference"):
        metric.update({"q": "x"}, {"q": []})
    with pytest.raises(EvaluationError, match="not SQuAD articles"):
        metric.update({"q": "x"}, [{"title": "no paragraphs"}])
    with pytest.raises(EvaluationError, match="sample 0: 2 answers but 1 labels"):
        metric.update(["a", "b"], ["a"])
    metric.update({"zz": "x"}, {"q": ["x"]})
    assert "'zz'" in caplog.text
    assert metric.result() == 0.0


@pytest.mark.slow
def test_a_real_model_scores_as_by_the_published_definition(data, tmp_path):
    """Dataset, logits, answers and score together, on the questions of five articles."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    load_file = pytest.importorskip("safetensors.torch").load_file
    from lpot.data.datasets.squad import SQuAD
    from lpot.data.postprocess import SquadV1

    source = json.loads((data / "squad" / "dev-slice-v1.1.json").read_text(encoding="utf-8"))
    articles = source["data"][:5]
    file = tmp_path / "dev.json"
    file.write_text(json.dumps({"version": "1.1", "data": articles}), encoding="utf-8")
    vocabulary = data / "minilm_l6_bert" / "vocab.txt"
    dataset = SQuAD(str(file), str(vocabulary), max_seq_length=256, doc_stride=96)
    folder = data / "minilm_l6_squad"
    model = transformers.BertForQuestionAnswering(transformers.BertConfig.from_pretrained(folder))
    weights = {key: value.float() for key, value in load_file(folder / "model.safetensors").items()}
    shared = load_file(data / "minilm_l6_bert" / "model.safetensors")
    for key, value in shared.items():
        if key.startswith("embeddings."):
            weights[f"bert.{key}"] = value.float()
    model.load_state_dict(weights, strict=False)
    model.eval()

    answer = SquadV1(str(file), str(vocabulary), max_seq_length=256, doc_stride=96)
    metric, predictions = get_metric("SquadF1"), {}
    for at in range(0, len(dataset), 16):
        rows = [dataset[number] for number in range(at, min(at + 16, len(dataset)))]
        inputs = {key: torch.tensor(np.stack([row[0][key] for row in rows])) for key in rows[0][0]}
        with torch.no_grad():
            outputs = model(**inputs)
        logits = [outputs.start_logits, outputs.end_logits]
        preds, labels = answer((logits, np.array([row[1] for row in rows])))
        metric.update(preds, labels)
        predictions.update(preds or {})
    wanted = published(articles, predictions)
    assert metric.details["unanswered"] == 0 and len(predictions) == metric.details["total"]
    assert metric.result() == pytest.approx(wanted["f1"], abs=1e-10)
    assert metric.details["exact_match"] == pytest.approx(wanted["exact_match"], abs=1e-10)
    assert wanted["f1"] > 50  # 63 on all 1190 questions
