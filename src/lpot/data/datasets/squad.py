"""SQuAD v1.1: questions and paragraphs, cut into overlapping windows of tokens."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.errors import ConfigError, DataError
from lpot.data.datasets.base import Dataset, FilterFunction, TransformFunction
from lpot.data.datasets.glue import INPUT_NAMES, WITHOUT_TYPES
from lpot.data.files import existing_file, read_json
from lpot.data.tokenizer import WordPiece

FIRST_ID = 1_000_000_000
WHITESPACE = " \t\r\n\u202f"


@dataclass(frozen=True, eq=False)
class SquadExample:
    """One question with its paragraph as words."""

    qas_id: str
    question_text: str
    doc_tokens: list[str]
    answers: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class SquadFeatures:
    """One window over a question's paragraph, as the model sees it."""

    unique_id: int
    example_index: int
    doc_span_index: int
    tokens: list[str]
    token_to_orig_map: dict[int, int]  # token's place → word's place in doc_tokens
    token_is_max_context: dict[int, bool]  # whether this window shows the token best
    input_ids: list[int]
    input_mask: list[int]
    segment_ids: list[int]


class SQuAD(Dataset):
    """SQuAD v1.1 in windows: ({input_ids, attention_mask, token_type_ids}, window's unique id).

    `examples`, `features` and `articles` are what SquadV1 needs to turn logits into answers.

    Args:
        label_file: the json file, such as dev-v1.1.json.
        vocab_file: the model's vocab.txt, or its folder.
        max_seq_length: tokens in a window, with the question.
        doc_stride: tokens from one window's start to the next.
        max_query_length: longer questions are truncated.
        do_lower_case: whether to lowercase the text; true for uncased models.
        model_type: bert, distilbert or mobilebert: which inputs the model takes.
        transform: applied to each (inputs, unique id).
        filter: keeps only samples for which it returns true.
    """

    def __init__(
        self,
        label_file: str,
        vocab_file: str,
        max_seq_length: int = 384,
        doc_stride: int = 128,
        max_query_length: int = 64,
        do_lower_case: bool = True,
        model_type: str = "bert",
        transform: TransformFunction | None = None,
        filter: FilterFunction | None = None,
    ) -> None:
        super().__init__(transform, filter)
        self.articles = read_articles(label_file)
        self.examples = make_examples(self.articles, str(label_file))
        tokenizer = WordPiece.from_file(vocab_file, do_lower_case)
        self.features = list(
            make_features(self.examples, tokenizer, max_seq_length, doc_stride, max_query_length)
        )
        self._names = INPUT_NAMES[: 2 if model_type in WITHOUT_TYPES else 3]

    def count(self) -> int:
        return len(self.features)

    def label(self, number: int) -> int:
        return self.features[number].unique_id

    def origin(self, number: int) -> str:
        return f"SQuAD question {self.examples[self.features[number].example_index].qas_id}"

    def read(self, number: int) -> tuple[dict[str, np.ndarray], int]:
        feature = self.features[number]
        columns = (feature.input_ids, feature.input_mask, feature.segment_ids)
        inputs = {
            name: np.asarray(column, dtype=np.int64)
            for name, column in zip(self._names, columns, strict=False)
        }
        return inputs, feature.unique_id


def read_articles(path: str | Path) -> list[Any]:
    """The articles of a SQuAD v1.1 json file."""
    place = existing_file(path, "SQuAD file")
    content = read_json(place)
    if not isinstance(content, Mapping) or not isinstance(content.get("data"), list):
        raise DataError(f"{place}: is not a SQuAD file: it should be a mapping with a list 'data'")
    if "2" in str(content.get("version", "1.1")).split(".")[0]:
        raise DataError(f"{place}: is SQuAD version {content['version']}; only v1.1 is supported")
    articles: list[Any] = content["data"]
    return articles


def make_examples(articles: list[Any], origin: str = "SQuAD") -> list[SquadExample]:
    """One example for each question; questions of a paragraph share its words."""
    examples: dict[str, SquadExample] = {}
    for number, article in enumerate(articles):
        try:
            for paragraph in article["paragraphs"]:
                words = split_words(paragraph["context"])
                for question in paragraph["qas"]:
                    example = _example(question, words, origin)
                    if example.qas_id in examples:
                        raise DataError(f"{origin}: question {example.qas_id!r} appears twice")
                    examples[example.qas_id] = example
        except (KeyError, TypeError, AttributeError) as error:
            title = article.get("title", number) if isinstance(article, Mapping) else number
            raise DataError(
                f"{origin}: article {title!r} lacks context, qas, id or question: {error}"
            ) from error
    if not examples:
        raise DataError(f"{origin}: holds no questions")
    return list(examples.values())


def _example(question: Mapping[str, Any], words: list[str], origin: str) -> SquadExample:
    answers = tuple(str(answer["text"]) for answer in question.get("answers", ()))
    example = SquadExample(str(question["id"]), str(question["question"]), words, answers)
    if question.get("is_impossible", False):
        raise DataError(
            f"{origin}: question {example.qas_id!r} is marked impossible, which is SQuAD v2; "
            "only v1.1 is supported"
        )
    if not words:
        raise DataError(f"{origin}: the paragraph of question {example.qas_id!r} is empty")
    return example


def split_words(text: str) -> list[str]:
    """The words of a paragraph, split at the white space SQuAD counts as such."""
    return [
        word for word in text.translate(dict.fromkeys(map(ord, WHITESPACE), " ")).split(" ") if word
    ]


def make_features(
    examples: list[SquadExample],
    tokenizer: WordPiece,
    max_seq_length: int = 384,
    doc_stride: int = 128,
    max_query_length: int = 64,
) -> Iterator[SquadFeatures]:
    """The windows of all examples, their ids counted up from 1000000000."""
    if doc_stride < 1 or max_seq_length < max_query_length + 4:
        raise ConfigError(
            f"max_seq_length {max_seq_length} leaves no room beside a question of "
            f"{max_query_length}, or doc_stride {doc_stride} is not positive"
        )
    unique_id = FIRST_ID
    paragraph: list[str] | None = None
    pieces: list[str] = []
    words: list[int] = []
    for number, example in enumerate(examples):
        if example.doc_tokens is not paragraph:
            paragraph = example.doc_tokens
            pieces, words = _pieces(paragraph, tokenizer)
        question = tokenizer.tokenize(example.question_text)[:max_query_length]
        spans = windows(len(pieces), max_seq_length - len(question) - 3, doc_stride)
        best = _best_window(spans, len(pieces))
        for order, span in enumerate(spans):
            shown = best[span.start : span.stop] == order
            yield _feature(
                (unique_id, number, order),
                question,
                pieces,
                words,
                span,
                shown,
                tokenizer,
                max_seq_length,
            )
            unique_id += 1


def _pieces(words: list[str], tokenizer: WordPiece) -> tuple[list[str], list[int]]:
    """All word pieces of a paragraph, and the word each is of."""
    split = [tokenizer.tokenize(word) for word in words]
    pieces = [piece for parts in split for piece in parts]
    return pieces, [number for number, parts in enumerate(split) for _ in parts]


def windows(count: int, room: int, stride: int) -> list[range]:
    """Overlapping ranges of at most `room` tokens that cover `count` tokens.

    >>> windows(10, 6, 3)
    [range(0, 6), range(3, 9), range(6, 10)]
    """
    spans = []
    start = 0
    while start < count:
        end = min(start + room, count)
        spans.append(range(start, end))
        if end == count:
            break
        start += min(end - start, stride)
    return spans


def _best_window(spans: list[range], count: int) -> np.ndarray:
    """For each token, the window that shows most of its surroundings on the poorer side."""
    place = np.arange(count)
    scores = np.full((max(len(spans), 1), count), -1.0)
    for row, span in zip(scores, spans, strict=False):
        inside = place[span.start : span.stop]
        poorer = np.minimum(inside - span.start, span.stop - 1 - inside)
        row[span.start : span.stop] = poorer + 0.01 * len(span)
    best: np.ndarray = np.argmax(scores, axis=0)
    return best


def _feature(
    numbers: tuple[int, int, int],
    question: list[str],
    pieces: list[str],
    words: list[int],
    span: range,
    shown: np.ndarray,
    tokenizer: WordPiece,
    length: int,
) -> SquadFeatures:
    start = len(question) + 2
    tokens = ["[CLS]", *question, "[SEP]", *pieces[span.start : span.stop], "[SEP]"]
    rest = length - len(tokens)
    return SquadFeatures(
        *numbers,
        tokens=tokens,
        token_to_orig_map=dict(enumerate(words[span.start : span.stop], start)),
        token_is_max_context=dict(enumerate(shown.tolist(), start)),
        input_ids=tokenizer.numbers(tokens) + [tokenizer.pad] * rest,
        input_mask=[1] * len(tokens) + [0] * rest,
        segment_ids=[0] * start + [1] * (len(span) + 1) + [0] * rest,
    )
