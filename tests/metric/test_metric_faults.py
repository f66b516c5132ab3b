"""Predictions and labels no metric can score: each is refused with what came, and the sample."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpot.core.errors import DataError, EvaluationError
from lpot.metric import get_metric

LOGITS = np.random.default_rng(0).standard_normal((6, 4))
CLASSES = np.array([0, 1, 2, 3, 0, 1])
BOX, SCORE, KIND = np.array([[[0.1, 0.1, 0.5, 0.5]]]), np.array([[0.9]]), np.array([[18]])
TRUTH = ([[[0.1, 0.1, 0.5, 0.5]]], [["dog"]], [[]], ["a.jpg"])


def boxes(corners: Any) -> tuple[Any, ...]:
    return ([corners], *TRUTH[1:])


@pytest.mark.parametrize(
    ("name", "preds", "labels", "message"),
    [
        ("topk", [LOGITS, LOGITS], CLASSES, "several outputs, a postprocess must choose"),
        ("F1", LOGITS.astype(str), CLASSES, "sample 0: the predictions are strings, the labels"),
        ("Loss", LOGITS[:0], CLASSES[:0], "sample 0: the batch is empty"),
        ("SquadF1", LOGITS, CLASSES, "answers are .* expected texts: the postprocess SquadV1"),
        ("SquadF1", {"q": "a"}, {"q": 5}, "references of question 'q' are 5, expected texts"),
        ("SquadEM", 5, 6, "the answers are 5, expected texts"),
        ("COCOmAP", None, TRUTH, "sample 0: needs predictions, but None was given"),
        ("COCOmAP", [BOX, SCORE, KIND], boxes([[0.1, 0.1, 0.5]]), "boxes have shape .1, 3."),
        ("mAP", [BOX, SCORE, KIND], boxes([[0.1, 0.1, 0.5, np.nan]]), "label's box is NaN"),
        ("VOCmAP", [BOX, SCORE, KIND], boxes([[0.1, 0.1, 0.5, np.inf]]), "label's box is inf"),
    ],
)
def test_what_can_not_be_scored(name: str, preds: Any, labels: Any, message: str) -> None:
    metric = get_metric(name)
    with pytest.raises(EvaluationError, match=f"(?s)metric '{name}'.*{message}"):
        metric.update(preds, labels)


@pytest.mark.parametrize(
    "content",
    [
        b"\xff\xfe",
        b"[" * 20_000,
        b'{"images": ' + b"[" * 20_000,
        b"[1, 2",
        b'{"images": 5}',
        b'{"images": [{"id": 1}]}',
        b'{"images": [{"id": 1, "width": 3, "height": 4}], "categories": [{"id": 1, "name": "a"}],'
        b' "annotations": [{"image_id": 1, "bbox": null, "category_id": 1}]}',
        b"dog: many",
        b"",
    ],
)
def test_annotation_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "anno.json"
    path.write_bytes(content)
    with pytest.raises(DataError, match=r"anno\.json"):
        get_metric("COCOmAP", anno_path=str(path))


@pytest.mark.parametrize("name", ["topk", "Accuracy", "MAE", "Loss", "SquadF1", "F1"])
def test_a_last_batch_of_one_counts_as_one(name: str) -> None:
    """The mean is over samples, not over batches."""
    rng = np.random.default_rng(5)
    preds: Any = {
        "topk": rng.standard_normal((9, 4)),
        "Accuracy": rng.integers(0, 2, 9),
        "MAE": rng.standard_normal((9, 3)),
        "Loss": rng.random(9),
        "SquadF1": ["red fox", "fox", "red", "bird", "a fox", "x", "y z", "z", "red"],
        "F1": rng.integers(0, 2, 9),
    }[name]
    labels: Any = {
        "MAE": rng.standard_normal((9, 3)),
        "SquadF1": [["red fox"]] * 9,
        "topk": rng.integers(0, 4, 9),
    }.get(name, rng.integers(0, 2, 9))
    parts, whole = get_metric(name), get_metric(name)
    for start in (0, 4, 8):
        parts.update(preds[start : start + 4], labels[start : start + 4])
    whole.update(preds, labels)
    assert parts.result() == pytest.approx(whole.result(), rel=1e-12)
