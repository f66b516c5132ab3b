"""Scores of generated text: BLEU."""

from __future__ import annotations

from typing import Any

from lpot.metric.base import BaseMetric


class BLEU(BaseMetric):
    """Corpus BLEU of translations, 0 to 100, as sacrebleu counts it.

    Predictions are texts; labels are one reference each, or a list of references each. Only counts
    are kept, so memory does not grow with the corpus.

    >>> metric = BLEU()
    >>> metric.update(["the cat sat on the mat"], ["the cat sat on a mat"])
    >>> round(metric.result(), 2)
    53.73
    """

    name = "BLEU"
    bounds = (0.0, 100.0)

    def __init__(self, tokenize: str = "13a", lowercase: bool = False) -> None:
        sacrebleu = self.need("sacrebleu.metrics", "sacrebleu")
        self.scorer = sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase)
        self.reset()

    def reset(self) -> None:
        self.seen = 0
        order = self.scorer.max_ngram_order
        self.right, self.total = [0] * order, [0] * order
        self.length = self.reference_length = 0

    def update(self, preds: Any, labels: Any = None) -> None:
        texts = self._texts(preds, "prediction")
        if labels is None:
            raise self.fault("needs labels: a reference text, or several, for each prediction")
        single = isinstance(labels, str | bytes)
        lists = [self._references(one, at) for at, one in enumerate([labels] if single else labels)]
        if len(texts) != len(lists):
            raise self.fault(
                f"{len(texts)} predictions but {len(lists)} references in the batch that "
                f"begins at sample {self.seen}"
            )
        if not texts:
            return
        # sacrebleu wants the first reference of every sentence, then the second of every one, ...
        width = max(map(len, lists))
        streams = [[one[at] if at < len(one) else None for one in lists] for at in range(width)]
        score = self.scorer.corpus_score(texts, streams)
        self.right = [sum(both) for both in zip(self.right, score.counts, strict=True)]
        self.total = [sum(both) for both in zip(self.total, score.totals, strict=True)]
        self.length += score.sys_len
        self.reference_length += score.ref_len
        self.seen += len(texts)

    def _texts(self, value: Any, what: str) -> list[str]:
        items = [value] if isinstance(value, str | bytes) else list(value)
        return [self._text(one, what, at) for at, one in enumerate(items)]

    def _references(self, value: Any, at: int) -> list[str]:
        items = [value] if isinstance(value, str | bytes) else list(value)
        if not items:
            raise self.fault("there is no reference", self.seen + at)
        return [self._text(one, "reference", at) for one in items]

    def _text(self, value: Any, what: str, at: int) -> str:
        if isinstance(value, bytes):
            return value.decode("utf-8")
        if not isinstance(value, str):
            raise self.fault(
                f"the {what} is a {type(value).__name__}, expected text: "
                "token numbers must be turned into text by a postprocess",
                self.seen + at,
            )
        return value

    def result(self) -> float:
        return self.details["BLEU"]

    @property
    def details(self) -> dict[str, float]:
        """BLEU, brevity penalty, lengths and the n-gram precisions."""
        if self.seen == 0:
            raise self.empty()
        score = self.scorer.compute_bleu(
            self.right,
            self.total,
            self.length,
            self.reference_length,
            smooth_method=self.scorer.smooth_method,
            smooth_value=self.scorer.smooth_value,
            effective_order=self.scorer.effective_order,
            max_ngram_order=self.scorer.max_ngram_order,
        )
        precisions = {f"precision/{n}": float(p) for n, p in enumerate(score.precisions, start=1)}
        return {
            "BLEU": float(score.score),
            "brevity_penalty": float(score.bp),
            "length": float(self.length),
            "reference_length": float(self.reference_length),
            **precisions,
        }
