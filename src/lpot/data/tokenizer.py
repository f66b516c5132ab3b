"""Text to token numbers: BERT's WordPiece from a vocab.txt, others from a model's folder."""

from __future__ import annotations

import re
import unicodedata
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lpot.core.errors import DataError
from lpot.core.tune import guarded
from lpot.data.files import read_json
from lpot.data.optional import require

LONGEST_WORD = 100  # a longer one is unknown, as BERT has it
WORDPIECE_MODELS = ("bert", "distilbert", "mobilebert")

_ASCII_WORDS = re.compile(r"[^\s!-/:-@\[-`{-~]+|[!-/:-@\[-`{-~]")
_ASCII_CONTROL = {code: None for code in (*range(9), 11, 12, *range(14, 32), 127)}
_CHINESE = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


@dataclass(frozen=True)
class Encoded:
    """Token numbers of one or two texts with their special tokens, and which text each is of."""

    ids: list[int]
    types: list[int]


class Tokenizer(Protocol):
    """What GLUE needs of a tokenizer."""

    pad: int

    def encode(self, first: str, second: str | None, limit: int) -> Encoded: ...


def basic_tokens(text: str, lower: bool) -> list[str]:
    """Words and punctuation marks, as BERT splits them before its word pieces.

    >>> basic_tokens("Don't stop!", lower=True)
    ['don', "'", 't', 'stop', '!']
    """
    if text.isascii():
        clean = text.translate(_ASCII_CONTROL)
        return _ASCII_WORDS.findall(clean.lower() if lower else clean)
    clean = "".join(_clean(char) for char in text)
    if lower:
        parts = unicodedata.normalize("NFD", clean)
        clean = "".join(c for c in parts if unicodedata.category(c) != "Mn").lower()
    return "".join(f" {c} " if _is_punctuation(c) else c for c in clean).split()


def _clean(char: str) -> str:
    code = ord(char)
    if char in "\t\n\r" or unicodedata.category(char) == "Zs":
        return " "
    if code in (0, 0xFFFD) or unicodedata.category(char).startswith("C"):
        return ""
    return f" {char} " if any(low <= code <= high for low, high in _CHINESE) else char


def _is_punctuation(char: str) -> bool:
    if char.isascii():
        return 33 <= ord(char) <= 126 and not char.isalnum()
    return unicodedata.category(char).startswith("P")


class WordPiece:
    """BERT's tokenizer from a list of its word pieces."""

    def __init__(self, vocabulary: dict[str, int], lower: bool, origin: str = "vocabulary") -> None:
        self.vocabulary = vocabulary
        self.lower = lower
        missing = [t for t in ("[UNK]", "[CLS]", "[SEP]", "[PAD]") if t not in vocabulary]
        if missing:
            raise DataError(f"{origin}: lacks {', '.join(missing)}; is it a BERT vocabulary?")
        self.pad = vocabulary["[PAD]"]
        self._pieces: dict[str, list[str]] = {}

    @classmethod
    def from_file(cls, path: str | Path, lower: bool = True) -> WordPiece:
        """From vocab.txt, one piece a line, or from the folder it lies in."""
        place = Path(path).expanduser()
        place = place / "vocab.txt" if place.is_dir() else place
        try:
            lines = place.read_text(encoding="utf-8").split("\n")
        except (OSError, UnicodeDecodeError) as error:
            raise DataError(f"{place}: can't be read as a vocabulary: {error}") from error
        words = (line.rstrip("\r") for line in lines)
        return cls({word: n for n, word in enumerate(words) if word}, lower, str(place))

    def tokenize(self, text: str) -> list[str]:
        """The word pieces of a text, without special tokens."""
        return [piece for word in basic_tokens(text, self.lower) for piece in self._split(word)]

    def numbers(self, tokens: list[str]) -> list[int]:
        """The pieces' numbers in the vocabulary."""
        return [self.vocabulary[token] for token in tokens]

    def encode(self, first: str, second: str | None, limit: int) -> Encoded:
        a = self.tokenize(first)
        b = self.tokenize(second) if second is not None else []
        a, b = shorten(a, b, limit - (3 if second is not None else 2))
        tokens = ["[CLS]", *a, "[SEP]", *b]
        types = [0] * (len(a) + 2)
        if second is not None:
            tokens.append("[SEP]")
            types += [1] * (len(b) + 1)
        return Encoded(self.numbers(tokens), types)

    def _split(self, word: str) -> list[str]:
        """The fewest pieces by taking the longest one that fits, again and again."""
        found = self._pieces.get(word)
        if found is None:
            found = self._pieces[word] = self._longest_first(word)
        return found

    def _longest_first(self, word: str) -> list[str]:
        pieces: list[str] = []
        start = 0
        if len(word) > LONGEST_WORD:
            return ["[UNK]"]
        while start < len(word):
            prefix = "##" if start else ""
            for end in range(len(word), start, -1):
                if prefix + word[start:end] in self.vocabulary:
                    break
            else:
                return ["[UNK]"]
            pieces.append(prefix + word[start:end])
            start = end
        return pieces


def shorten(first: list[str], second: list[str], limit: int) -> tuple[list[str], list[str]]:
    """Cut the longer of the two until both fit into `limit`.

    >>> shorten(list("abcdef"), list("xy"), 5)
    (['a', 'b', 'c'], ['x', 'y'])
    """
    if len(first) + len(second) <= limit:
        return first, second
    short, long = sorted((len(first), len(second)))
    long = max(short, limit - short) if short <= limit else short
    if short + long > limit:
        short = limit // 2
        long = limit - short
    if len(first) > len(second):
        short, long = long, short
    return first[:short], second[:long]


class _FolderTokenizer:
    """A tokenizer.json, run by the `tokenizers` package."""

    def __init__(self, path: Path, pad: int) -> None:
        content = read_json(path)
        if not isinstance(content, dict) or not isinstance(content.get("model"), dict):
            raise DataError(f"{path}: is not a tokenizer.json: it has no 'model'")
        package = require("tokenizers", f"reading {path}")
        self._tokenizer: Any = guarded(lambda: package.Tokenizer.from_file(str(path)))
        if isinstance(self._tokenizer, Exception):  # plain ones, of a library in Rust
            raise DataError(f"{path}: can't be read ({self._tokenizer})") from self._tokenizer
        self._tokenizer.no_padding()
        self.pad = pad if pad >= 0 else (self._tokenizer.token_to_id("<pad>") or 0)

    def encode(self, first: str, second: str | None, limit: int) -> Encoded:
        self._tokenizer.enable_truncation(limit)
        found: Any = guarded(lambda: self._tokenizer.encode(first, second))
        if isinstance(found, Exception):
            raise DataError(f"tokenizer.json can't tokenize this text ({found})") from found
        return Encoded(list(found.ids), list(found.type_ids))


class _LibraryTokenizer:
    """Whatever the `transformers` package makes of the folder."""

    def __init__(self, folder: Path, lower: bool) -> None:
        library = require("transformers", f"reading the tokenizer of {folder}")
        try:
            self._tokenizer: Any = library.AutoTokenizer.from_pretrained(
                str(folder), local_files_only=True, do_lower_case=lower
            )
        except (OSError, ValueError) as error:
            said = str(error).partition("\n")[0]
            raise DataError(
                f"{folder}: holds no vocab.txt, no tokenizer.json, and nothing else that "
                f"transformers accepts as a tokenizer: {said}"
            ) from error
        self.pad = int(self._tokenizer.pad_token_id or 0)

    def encode(self, first: str, second: str | None, limit: int) -> Encoded:
        found = self._tokenizer(
            first, second, truncation=True, max_length=limit, return_token_type_ids=True
        )
        return Encoded(list(found["input_ids"]), list(found["token_type_ids"]))


def load_tokenizer(folder: str | Path, lower: bool = True, model_type: str = "bert") -> Tokenizer:
    """The tokenizer of a model's local folder: vocab.txt, tokenizer.json, or other files."""
    top = Path(folder).expanduser()
    if not top.exists():
        raise DataError(
            f"{top}: there is no such folder. Give a local folder with the model's vocab.txt or "
            "tokenizer.json; lpot does not download anything"
        )
    if model_type in WORDPIECE_MODELS and (top.is_file() or (top / "vocab.txt").is_file()):
        return WordPiece.from_file(top, lower)
    if (top / "tokenizer.json").is_file():
        return _FolderTokenizer(top / "tokenizer.json", -1)
    return _LibraryTokenizer(top, lower)
