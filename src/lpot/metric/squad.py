"""Scores of extracted answers by the published SQuAD v1.1 rules."""

from __future__ import annotations

import logging
import re
import string
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from lpot.metric.base import BaseMetric, Floats

logger = logging.getLogger(__name__)

_PUNCTUATION = str.maketrans("", "", string.punctuation)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")


def normalize(text: str) -> str:
    """Lower case, no ASCII punctuation, no English articles, single spaces.

    >>> normalize("The  Denver-Broncos!")
    'denverbroncos'
    """
    bare = text.lower().translate(_PUNCTUATION)
    return " ".join(_ARTICLES.sub(" ", bare).split())


def token_f1(prediction: str, reference: str) -> float:
    """F1 between the bags of words of two texts; 0 when they share none."""
    found, wanted = normalize(prediction).split(), normalize(reference).split()
    shared = sum((Counter(found) & Counter(wanted)).values())
    return 2 * shared / (len(found) + len(wanted)) if shared else 0.0


def exact_match(prediction: str, reference: str) -> float:
    return float(normalize(prediction) == normalize(reference))


def _text(value: Any) -> str:
    return value.decode("utf-8") if isinstance(value, bytes) else str(value)


def best_token_f1(prediction: Any, references: Any) -> float:
    """The best F1 of a prediction over its reference, or list of references."""
    wanted = [references] if isinstance(references, str | bytes) else list(references)
    return max(token_f1(_text(prediction), _text(one)) for one in wanted)


class _Squad(BaseMetric):
    """State of both SQuAD metrics: each question once, in per cent as published.

    Predictions: {question id: text}, or a list of texts beside a list of reference lists. Labels:
    the articles of a SQuAD file (its "data" list, or the whole file), or {question id: references}.
    Batches may each carry the whole set of labels: a question counts once, unanswered ones score 0.
    """

    is_mean = True
    bounds = (0.0, 100.0)

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.references: dict[str, list[str]] = {}
        self.scores: dict[str, tuple[float, float]] = {}  # F1 and exact match
        self._known: Any = None  # labels already read, by identity: they come with every batch

    def update(self, preds: Any, labels: Any = None) -> None:
        if preds is None:  # a postprocess that still waits for parts of the outputs
            return
        if labels is not None and labels is self._known and self._asks_for(preds):
            answers = {str(key): _text(text) for key, text in preds.items()}
        else:
            answers, references = self._read(preds, labels, offset=len(self.references))
            self.references.update(references)
            self._known = labels
        unknown = [key for key in answers if key not in self.references]
        if unknown:
            logger.warning(
                "metric %r: %d answers have no such question in the labels, the first is %r",
                self.name,
                len(unknown),
                unknown[0],
            )
        for key, text in answers.items():
            if key in self.references:
                self.scores[key] = self._score(text, self.references[key])

    def _asks_for(self, preds: Any) -> bool:
        return isinstance(preds, Mapping) and all(str(key) in self.references for key in preds)

    def per_sample(self, preds: Any, labels: Any = None) -> Floats:
        answers, references = self._read(preds, labels, offset=len(self.references))
        rows = [
            self._score(answers[key], wanted) if key in answers else (0.0, 0.0)
            for key, wanted in references.items()
        ]
        return 100.0 * np.asarray(rows, dtype=np.float64).reshape(-1, 2)[:, self._column]

    @property
    def tally(self) -> tuple[int, float] | None:
        return len(self.scores), 100.0 * sum(row[self._column] for row in self.scores.values())

    def result(self) -> float:
        return self.details[self._headline]

    @property
    def details(self) -> dict[str, float]:
        """F1 and exact match in per cent, number of questions and of those without an answer."""
        total = len(self.references)
        if total == 0:
            raise self.empty()
        f1, exact = (sum(row[at] for row in self.scores.values()) for at in (0, 1))
        return {
            "f1": 100.0 * f1 / total,
            "exact_match": 100.0 * exact / total,
            "total": float(total),
            "unanswered": float(total - len(self.scores)),
        }

    _headline = "f1"
    _column = 0

    def _score(self, text: str, references: Sequence[str]) -> tuple[float, float]:
        return (
            max(token_f1(text, one) for one in references),
            max(exact_match(text, one) for one in references),
        )

    def _read(
        self, preds: Any, labels: Any, offset: int
    ) -> tuple[dict[str, str], dict[str, list[str]]]:
        if labels is None:
            raise self.fault("needs labels: the articles of a SQuAD file, or references by id")
        if isinstance(preds, Mapping):
            answers = {str(key): _text(text) for key, text in preds.items()}
            return answers, self._references(labels)
        texts = self._row(preds, "answers")
        wanted = self._row(labels, "references")
        if len(texts) != len(wanted):
            raise self.fault(f"{len(texts)} answers but {len(wanted)} labels", offset)
        keys = [f"#{offset + at}" for at in range(len(texts))]
        lists = {key: self._list(one, key) for key, one in zip(keys, wanted, strict=True)}
        return dict(zip(keys, map(_text, texts), strict=True)), lists

    def _references(self, labels: Any) -> dict[str, list[str]]:
        if isinstance(labels, Mapping) and "data" not in labels:
            return {str(key): self._list(one, str(key)) for key, one in labels.items()}
        articles = labels["data"] if isinstance(labels, Mapping) else labels
        if len(articles) == 1 and isinstance(articles[0], list | tuple):  # a batch of one file
            articles = articles[0]
        found: dict[str, list[str]] = {}
        try:
            for article in articles:
                for paragraph in article["paragraphs"]:
                    for question in paragraph["qas"]:
                        texts = [answer["text"] for answer in question["answers"]]
                        found[str(question["id"])] = self._list(texts, str(question["id"]))
        except (KeyError, TypeError, IndexError) as error:
            raise self.fault(
                "the labels are not SQuAD articles: expected a list of "
                f"{{'paragraphs': [{{'qas': [{{'id', 'answers'}}]}}]}} ({error!r})"
            ) from error
        return found

    def _row(self, given: Any, what: str) -> list[Any]:
        """A text alone, or several; numbers are no texts."""
        rows = [given] if isinstance(given, str | bytes) else given
        if not isinstance(rows, Iterable) or (hasattr(rows, "dtype") and rows.dtype.kind in "iuf"):
            raise self.fault(
                f"the {what} are {given!r:.60}, expected texts: the postprocess SquadV1 turns "
                "logits into texts"
            )
        return list(rows)

    def _list(self, references: Any, question: str) -> list[str]:
        texts = self._row(references, f"references of question {question!r}")
        if not texts:
            raise self.fault(f"question {question!r} has no reference answer")
        return [_text(one) for one in texts]


class SquadF1(_Squad):
    """Mean token F1 of answers over all questions, in percent (SQuAD v1.1).

    >>> metric = SquadF1()
    >>> metric.update({"q1": "in Paris"}, {"q1": ["Paris"], "q2": ["1990"]})
    >>> round(metric.result(), 4)
    33.3333
    """

    name = "SquadF1"


class SquadEM(_Squad):
    """Share of answers equal to a reference after normalization, in percent (SQuAD v1.1).

    >>> metric = SquadEM()
    >>> metric.update({"q1": "the Paris", "q2": "90"}, {"q1": ["Paris"], "q2": ["1990"]})
    >>> metric.result()
    50.0
    """

    name = "SquadEM"
    _headline = "exact_match"
    _column = 1
