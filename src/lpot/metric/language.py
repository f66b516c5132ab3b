"""Scores of language models: perplexity, and the last word of a text."""

from __future__ import annotations

from typing import Any

import numpy as np

from lpot.core.batch import as_array
from lpot.metric.base import BaseMetric, Floats, SampleMean

IGNORED = -100  # a label that nobody asks for, as in PyTorch
ROWS = 64  # positions whose logits are worked on at a time


class Perplexity(BaseMetric):
    """exp of the mean negative log-likelihood of each next token; labels are token numbers.

    Predictions are logits of the shape (batch, tokens, vocabulary), or a model's outputs, of which
    they are the first. Labels have the shape (batch, tokens); -100 is ignored.

    >>> from lpot.metric.language import Perplexity
    >>> metric = Perplexity()
    >>> metric.update([[[0.0] * 4] * 3], [[1, 2, 3]])
    >>> metric.result()
    4.0
    """

    name = "perplexity"
    higher_is_better = False
    bounds = (1.0, float("inf"))

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        self.seen = 0
        self.total = 0.0

    def update(self, preds: Any, labels: Any = None) -> None:
        found = losses(preds, labels, self)
        self.total += float(found.sum())
        self.seen += len(found)

    def result(self) -> float:
        if not self.seen:
            raise self.empty()
        return float(np.round(np.exp(self.total / self.seen), 12))


class LastWord(SampleMean):
    """Share of texts whose last word is predicted exactly, as in LAMBADA.

    Predictions and labels as for perplexity; labels are -100 except for the tokens of the last
    word, each of which must be the most likely at its position.

    >>> from lpot.metric.language import LastWord
    >>> metric = LastWord()
    >>> metric.update([[[0.1, 0.9], [0.7, 0.3]]], [[-100, 1]])
    >>> metric.result()
    1.0
    """

    name = "last_word"

    def per_sample(self, preds: Any, labels: Any = None) -> Floats:
        logits, wanted = _pair(self, preds, labels)
        likeliest = logits[:, :-1].argmax(axis=-1)
        asked = wanted[:, 1:] != IGNORED
        if not asked.any(axis=-1).all():
            raise self.fault("a text has no token to predict: all its labels are -100")
        right = (likeliest == wanted[:, 1:]) | ~asked
        return np.asarray(right.all(axis=-1), np.float64)


def losses(preds: Any, labels: Any, metric: Perplexity | None = None) -> Floats:
    """The negative log-likelihood of each token that is asked for, flat."""
    logits, wanted = next_tokens(metric or Perplexity(), preds, labels)
    found = np.empty(len(wanted))
    for start in range(0, len(wanted), ROWS):
        rows, answers = logits[start : start + ROWS], wanted[start : start + ROWS]
        top = rows.max(axis=-1, keepdims=True)
        # Exponentials in the logits' own precision, their sum in double: as exact, and in a third
        # of the time.
        powers = np.exp(rows - top).sum(axis=-1, dtype=np.float64)
        there = rows[np.arange(len(rows)), answers]
        found[start : start + ROWS] = np.log(powers) + (top[:, 0].astype(np.float64) - there)
    return found


def next_tokens(metric: Perplexity, preds: Any, labels: Any) -> tuple[Floats, Floats]:
    """The logits at each position, and the token that follows it, flat; ignored ones left out."""
    logits, wanted = _pair(metric, preds, labels)
    answers = wanted[:, 1:].reshape(-1)
    rows = logits[:, :-1].reshape(len(answers), -1)
    asked = answers != IGNORED
    if asked.all():
        return rows, answers
    return rows[asked], answers[asked]


def _pair(metric: Perplexity | LastWord, preds: Any, labels: Any) -> tuple[Floats, Floats]:
    if labels is None:
        raise metric.fault("needs labels: the token numbers themselves")
    logits = _logits(preds)
    wanted = as_array(labels)
    if logits.ndim != 3 or wanted.shape != logits.shape[:2]:
        raise metric.fault(
            f"labels have the shape {wanted.shape}, but logits {logits.shape}: expected "
            "(batch, tokens) and (batch, tokens, vocabulary)"
        )
    if wanted.size and wanted.max() >= logits.shape[-1]:
        raise metric.fault(
            f"token {int(wanted.max())} is beyond the vocabulary of {logits.shape[-1]}: was the "
            "text tokenized for another model?"
        )
    if np.isnan(logits).any():
        raise metric.fault("its logits hold NaN", metric.seen)
    return logits, wanted


def _logits(preds: Any) -> Floats:
    """The first of a model's outputs; a list of plain numbers is one array."""
    several = isinstance(preds, list | tuple) and preds and hasattr(preds[0], "ndim")
    return as_array(preds[0] if several else preds)
