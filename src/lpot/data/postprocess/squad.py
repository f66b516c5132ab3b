"""Logits of a question answering model to the texts of its answers."""

from __future__ import annotations

import inspect
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.batch import as_array
from lpot.core.errors import ConfigError, DataError
from lpot.data.datasets.squad import make_examples, make_features, read_articles
from lpot.data.postprocess.label import Sample
from lpot.data.tokenizer import WordPiece, basic_tokens


@dataclass(frozen=True, eq=False)
class _Reader:
    """Questions, their windows, and how answers are chosen."""

    examples: Sequence[Any]
    features: Sequence[Any]
    n_best_size: int
    max_answer_length: int
    do_lower_case: bool


def _from_files(
    label_file: str | Path,
    vocab_file: str | Path,
    n_best_size: int = 20,
    max_seq_length: int = 384,
    max_query_length: int = 64,
    max_answer_length: int = 30,
    do_lower_case: bool = True,
    doc_stride: int = 128,
) -> _Reader:
    examples = make_examples(read_articles(label_file), str(label_file))
    tokenizer = WordPiece.from_file(vocab_file, do_lower_case)
    windows = make_features(examples, tokenizer, max_seq_length, doc_stride, max_query_length)
    return _Reader(examples, list(windows), n_best_size, max_answer_length, do_lower_case)


def _from_features(
    eval_examples: Sequence[Any],
    eval_features: Sequence[Any],
    n_best_size: int = 20,
    max_answer_length: int = 30,
    do_lower_case: bool = True,
) -> _Reader:
    return _Reader(eval_examples, eval_features, n_best_size, max_answer_length, do_lower_case)


class SquadV1:
    """Converts start and end logits of BERT's windows to answers, by the published n-best rules.

    Two ways to create it: `SquadV1(label_file, vocab_file, n_best_size=20, max_seq_length=384,
    max_query_length=64, max_answer_length=30, do_lower_case=True, doc_stride=128)`, or
    `SquadV1(eval_examples, eval_features, n_best_size=20, max_answer_length=30,
    do_lower_case=True)` with examples and features of a BERT script.

    Outputs may be a list of results (unique_id, start_logits, end_logits), [unique ids, start
    logits, end logits], [start logits, end logits], or one array (n, length, 2). Without ids,
    labels that are the windows' unique ids are used, otherwise windows are taken in order. Batches
    may be of any size: a question is answered once all its windows have arrived. Returns
    ({question: text}, labels); labels that are unique ids become {question: reference answers}.
    """

    def __init__(self, *args: Any, **options: Any) -> None:
        first = args[0] if args else options.get("label_file")
        form = _from_files if isinstance(first, str | Path) else _from_features
        try:  # two constructors of the contract share one name: bind by the one that fits
            bound = inspect.signature(form).bind(*args, **options)
        except TypeError as error:
            takes = " or ".join(
                f"({', '.join(inspect.signature(one).parameters)})"
                for one in (_from_files, _from_features)
            )
            raise ConfigError(f"SquadV1: {error}; it takes {takes}") from error
        self.reader = form(*bound.args, **bound.kwargs)
        self._windows: list[list[Any]] = [[] for _ in self.reader.examples]
        self._by_id: dict[int, Any] = {}
        for feature in self.reader.features:
            self._by_id[int(feature.unique_id)] = feature
            self._windows[feature.example_index].append(feature)
        self.reset()

    def reset(self) -> None:
        """Forget windows whose question is not complete: a new evaluation begins."""
        self._pending: dict[int, tuple[np.ndarray, np.ndarray]] = {}
        self._next = 0

    def __call__(self, sample: Sample) -> Sample:
        outputs, labels = sample
        if outputs is None:
            return None, None
        answers: dict[str, str] = {}
        references: dict[str, Sequence[str]] = {}
        given_ids = self._ids_in(labels)
        for unique_id, start, end in self._results(outputs, given_ids):
            example_index = self._keep(unique_id, start, end)
            windows = self._windows[example_index]
            if all(int(window.unique_id) in self._pending for window in windows):
                example = self.reader.examples[example_index]
                answers[example.qas_id] = self._answer(example, windows)
                references[example.qas_id] = getattr(example, "answers", ())
        if given_ids is None and labels is not None:
            return answers, labels
        return (answers, references) if answers else (None, None)

    def _ids_in(self, labels: Any) -> list[int] | None:
        """The labels as unique ids, where they are some."""
        if labels is None or isinstance(labels, Mapping | str | bytes):
            return None
        if isinstance(labels, list | tuple) and labels and isinstance(labels[0], Mapping | list):
            return None
        array = as_array(labels).reshape(-1)
        if array.dtype.kind not in "iu" or any(int(one) not in self._by_id for one in array):
            return None
        return [int(one) for one in array]

    def _results(
        self, outputs: Any, ids: list[int] | None
    ) -> Iterator[tuple[int, np.ndarray, np.ndarray]]:
        if isinstance(outputs, list | tuple) and outputs and hasattr(outputs[0], "start_logits"):
            for one in outputs:
                yield int(one.unique_id), as_array(one.start_logits), as_array(one.end_logits)
            return
        several = isinstance(outputs, list | tuple)
        arrays = [as_array(one) for one in (outputs if several else [outputs])]
        if len(arrays) == 1:
            logits = arrays[0]
            if logits.ndim != 3 or logits.shape[2] != 2:
                raise DataError(
                    f"SquadV1: one output of shape {logits.shape}, expected (n, length, 2)"
                )
            arrays = [logits[..., 0], logits[..., 1]]
        if len(arrays) not in (2, 3) or len({len(array) for array in arrays}) != 1:
            raise DataError(
                f"SquadV1: outputs of shapes {[array.shape for array in arrays]}, expected [start "
                "logits, end logits] or [unique ids, start logits, end logits]"
            )
        starts, ends = arrays[-2], arrays[-1]
        numbers = arrays[0].reshape(-1).tolist() if len(arrays) == 3 else ids
        yield from zip(self._ids(numbers, len(starts)), starts, ends, strict=True)

    def _ids(self, known: list[Any] | None, count: int) -> list[int]:
        if known is not None:
            return [int(one) for one in known]
        features = self.reader.features
        if self._next + count > len(features):
            raise DataError(
                f"SquadV1: outputs for {self._next + count} windows, but there are {len(features)}:"
                " are max_seq_length and doc_stride those of the data?"
            )
        part = features[self._next : self._next + count]
        self._next = (self._next + count) % len(features)
        return [int(feature.unique_id) for feature in part]

    def _keep(self, unique_id: int, start: np.ndarray, end: np.ndarray) -> int:
        """Store the logits of a window; gives the number of its question."""
        feature = self._by_id.get(unique_id)
        if feature is None:
            raise DataError(f"SquadV1: there is no window with the unique id {unique_id}")
        start, end = (np.asarray(one, dtype=np.float64).reshape(-1) for one in (start, end))
        question = self.reader.examples[feature.example_index].qas_id
        if len(start) != len(end) or len(start) < len(feature.tokens):
            raise DataError(
                f"SquadV1: question {question!r}: {len(start)} start and {len(end)} end logits for "
                f"a window of {len(feature.tokens)} tokens"
            )
        if np.isnan(start).any() or np.isnan(end).any():
            raise DataError(f"SquadV1: question {question!r}: the logits have NaN")
        self._pending[unique_id] = (start, end)
        return int(feature.example_index)

    def _answer(self, example: Any, windows: Sequence[Any]) -> str:
        best, text = -np.inf, ""
        for window in windows:
            span = self._best_span(window, *self._pending.pop(int(window.unique_id)))
            if span is not None and span[0] > best:
                best, text = span[0], self._text(example, window, span[1], span[2])
        return text

    def _best_span(
        self, window: Any, start: np.ndarray, end: np.ndarray
    ) -> tuple[float, int, int] | None:
        """Highest sum of a start and an end among the n best of each, both in the paragraph."""
        places = window.token_to_orig_map
        shown = window.token_is_max_context
        count = self.reader.n_best_size
        starts = [int(at) for at in np.argsort(-start, kind="stable")[:count]]
        ends = [int(at) for at in np.argsort(-end, kind="stable")[:count]]
        first = np.array([at for at in starts if at in places and shown.get(at, False)], dtype=int)
        last = np.array([at for at in ends if at in places], dtype=int)
        if not first.size or not last.size:
            return None
        length = last[None, :] - first[:, None] + 1
        fits = (length >= 1) & (length <= self.reader.max_answer_length)
        if not fits.any():
            return None
        sums = np.where(fits, start[first][:, None] + end[last][None, :], -np.inf)
        row, at = divmod(int(sums.argmax()), len(last))
        return float(sums[row, at]), int(first[row]), int(last[at])

    def _text(self, example: Any, window: Any, start: int, end: int) -> str:
        pieces = " ".join(window.tokens[start : end + 1]).replace(" ##", "").replace("##", "")
        places = window.token_to_orig_map
        words = " ".join(example.doc_tokens[places[start] : places[end] + 1])
        return original_text(" ".join(pieces.split()), words, self.reader.do_lower_case)


def original_text(predicted: str, original: str, lower: bool) -> str:
    """The part of the original words that a tokenized prediction stands for.

    Both have the same letters but for spaces, so the n-th letter of one is the n-th of the other;
    where that does not hold (accents taken off, unknown words) it is all of the original.

    >>> original_text("steve smith", "Steve Smith's", lower=True)
    'Steve Smith'
    """
    plain = " ".join(basic_tokens(original, lower))
    at = plain.find(predicted)
    letters = [place for place, letter in enumerate(original) if letter != " "]
    if at < 0 or not predicted or len(letters) != len(plain.replace(" ", "")):
        return original
    first = len(plain[:at].replace(" ", ""))
    last = first + len(predicted.replace(" ", "")) - 1
    return original[letters[first] : letters[last] + 1]
