"""Where the answer of a training question lies among the tokens of each window."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

Tokenize = Callable[[str], list[str]]
WHITESPACE = " \t\r\n\u202f"


def answer_positions(
    articles: Sequence[Any], features: Sequence[Any], tokenize: Tokenize
) -> list[tuple[int, int]]:
    """First and last token of the answer in each window; (0, 0) where it is not shown."""
    wanted = [
        _words(paragraph["context"], question.get("answers", ()))
        for article in articles
        for paragraph in article["paragraphs"]
        for question in paragraph["qas"]
    ]
    return [_place(feature, wanted[feature.example_index], tokenize) for feature in features]


def _words(context: str, answers: Sequence[Mapping[str, Any]]) -> tuple[int, int, str] | None:
    """The numbers of the answer's first and last word, and its text."""
    if not answers:
        return None
    start, text = int(answers[0]["answer_start"]), str(answers[0]["text"])
    if not text.strip() or context[start : start + len(text)] != text:
        return None
    first = _word_at(context, start + len(text) - len(text.lstrip()))
    return first, _word_at(context, start + len(text.rstrip()) - 1), text


def _word_at(context: str, place: int) -> int:
    before = "".join(" " if letter in WHITESPACE else letter for letter in context[: place + 1])
    return len([word for word in before.split(" ") if word]) - 1


def _place(
    feature: Any, wanted: tuple[int, int, str] | None, tokenize: Tokenize
) -> tuple[int, int]:
    if wanted is None:
        return 0, 0
    first, last, text = wanted
    inside = [at for at, word in feature.token_to_orig_map.items() if first <= word <= last]
    words = {feature.token_to_orig_map[at] for at in inside}
    if not inside or first not in words or last not in words:
        return 0, 0
    low, high = min(inside), max(inside)
    # "(1895" holds the answer "1895": take just its pieces where they are found.
    pieces = tokenize(text)
    for start in range(low, high - len(pieces) + 2):
        if feature.tokens[start : start + len(pieces)] == pieces:
            return start, start + len(pieces) - 1
    return low, high
