"""Text as windows of tokens, in the batches that a decoder with a KV cache is fed."""

from __future__ import annotations

import importlib
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.batch import InputSpec, as_array
from lpot.core.errors import CalibrationError, DataError
from lpot.core.tune import guarded
from lpot.jobs.decoder.inputs import feeds

FEWEST = 2  # tokens of a window: one to read and one to predict
IGNORED = -100  # a label that no metric asks for
TOKENIZER, GENAI = "tokenizer.json", "genai_config.json"
OLDER = ("tokenizer.model", "vocab.json")  # of other packages
LONGEST_PLACE = 256  # letters of a path


class TokenWindows:
    """Windows of equal length; each batch is (inputs, labels), the labels being the tokens.

    The model's inputs are told later (`bind`): a mask of ones and an empty cache go with them.
    """

    def __init__(
        self,
        ids: np.ndarray,
        batch_size: int = 1,
        words: np.ndarray | None = None,
        labels: np.ndarray | None = None,
    ) -> None:
        self.ids = ids
        self.words = words  # of each token, the number of its word; None where that is not known
        self.labels = ids if labels is None else labels
        self.batch_size = batch_size
        self.specs: tuple[InputSpec, ...] = ()

    def bind(self, specs: Sequence[InputSpec] | None) -> TokenWindows:
        self.specs = tuple(specs or ())
        return self

    def part(self, windows: slice) -> TokenWindows:
        words = None if self.words is None else self.words[windows]
        found = TokenWindows(self.ids[windows], self.batch_size, words, self.labels[windows])
        return found.bind(self.specs)

    def asking_last_words(self) -> TokenWindows:
        """The same, with labels for the last whole word of each window alone."""
        if self.words is None:
            raise DataError(
                "last_word needs text, not arrays of tokens: words can't be recognised in those"
            )
        last = self.words.max(axis=1, keepdims=True) - 1  # the last one may be cut off
        labels = np.where(self.words == last, self.ids, IGNORED)
        labels[:, 0] = IGNORED
        whole = (labels != IGNORED).any(axis=1)
        return TokenWindows(self.ids[whole], self.batch_size, self.words[whole], labels[whole])

    def __len__(self) -> int:
        return -(-len(self.ids) // self.batch_size)

    def __iter__(self) -> Iterator[tuple[dict[str, np.ndarray], np.ndarray]]:
        for start in range(0, len(self.ids), self.batch_size):
            part = self.ids[start : start + self.batch_size]
            yield feeds(self.specs, part), self.labels[start : start + self.batch_size]


def windows_of(source: Any, length: int, folder: Path | None, what: str) -> TokenWindows | None:
    """Text, a text file, a list of texts or an array of tokens as windows; None for a loader."""
    if isinstance(source, TokenWindows):
        return source
    if isinstance(source, Path) or (isinstance(source, str) and _is_file(source)):
        return cut(*tokens_of(_read(Path(source)), folder), length, what)
    if isinstance(source, str):
        if _is_place(source):
            raise DataError(
                f"{what}: {source!r} looks like a file, but there is none: give a file of text, or "
                "the text itself"
            )
        return cut(*tokens_of(source, folder), length, what)
    if isinstance(source, list | tuple) and source and all(isinstance(s, str) for s in source):
        return cut(*tokens_of("\n\n".join(source), folder), length, what)
    if _is_numbers(source):
        source = np.asarray(source)
    if isinstance(source, np.ndarray) or (hasattr(source, "detach") and hasattr(source, "shape")):
        array = as_array(source)
        if array.dtype.kind not in "iu" or array.ndim not in (1, 2):
            raise DataError(
                f"{what} is an array of {array.dtype} with {array.ndim} axes: expected tokens, "
                "whole numbers of the shape (tokens) or (windows, tokens)"
            )
        if array.ndim == 1:
            return cut(array, None, length, what)
        if array.shape[1] < FEWEST:
            raise DataError(
                f"{what} has windows of {array.shape[1]} tokens: expected at least two, one to "
                "read and one to predict"
            )
        return TokenWindows(array)
    return None


def cut(ids: np.ndarray, words: np.ndarray | None, length: int, what: str) -> TokenWindows:
    """Windows of `length` tokens; a text shorter than one is told."""
    if len(ids) < length:
        raise CalibrationError(
            f"{what} has {len(ids)} tokens, fewer than one window of {length}: give more text, or "
            "set quantization.weight_only.prompt_length lower"
        )
    count = len(ids) // length
    parts = [
        None if a is None else a[: count * length].reshape(count, length) for a in (ids, words)
    ]
    assert parts[0] is not None
    return TokenWindows(parts[0], words=parts[1])


def tokens_of(text: str, folder: Path | None) -> tuple[np.ndarray, np.ndarray]:
    """The text's tokens, without special ones, and the number of each one's word."""
    tokenizer = tokenizer_in(folder)
    found: Any = guarded(lambda: tokenizer.encode(text, add_special_tokens=False))
    if isinstance(found, Exception):
        raise DataError(f"{folder}: its {TOKENIZER} can't tokenize this text ({found})") from found
    words = np.asarray([-1 if word is None else word for word in found.word_ids], np.int64)
    return np.asarray(found.ids, np.int64), words


def tokenizer_in(folder: Path | None) -> Any:
    place = None if folder is None else folder / TOKENIZER
    if place is None or not place.is_file():
        where = "the model" if folder is None else str(folder)
        older = [name for name in OLDER if folder is not None and (folder / name).is_file()]
        way = (
            f"transformers makes one of the {older[0]} there "
            "(`AutoTokenizer.from_pretrained(folder).save_pretrained(folder)`)"
            if older
            else "save the tokenizer beside the model (`tokenizer.save_pretrained(folder)`)"
        )
        raise DataError(
            f"a text was given, but {where} has no {TOKENIZER} to tokenize it with: {way}, or "
            "give arrays of tokens"
        )
    try:
        tokenizers = importlib.import_module("tokenizers")
    except ImportError as error:
        raise DataError(
            "tokenizing text needs the package tokenizers: pip install tokenizers"
        ) from error
    found = guarded(lambda: tokenizers.Tokenizer.from_file(str(place)))
    if isinstance(found, Exception):  # plain Exceptions, of a library in Rust
        raise DataError(f"{place}: can't be read ({found}): save the tokenizer again") from found
    # Files that were written behind a training keep its limits: a text would end at 512 tokens.
    found.no_truncation()
    found.no_padding()
    return found


def positions_in(folder: Path) -> int | None:
    """How many positions the decoder in a folder has, where its genai_config.json tells."""
    try:
        return int(json.loads((folder / GENAI).read_text("utf-8"))["model"]["context_length"])
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError, RecursionError):
        return None


def _is_numbers(source: Any) -> bool:
    """A list of whole numbers, or of such lists that are equally long: what tokenizers return."""
    if not isinstance(source, list) or not source:
        return False
    rows = source if isinstance(source[0], list) else [source]
    return all(
        isinstance(row, list) and len(row) == len(rows[0]) and all(type(n) is int for n in row)
        for row in rows
    )


def _is_place(text: str) -> bool:
    """Is it meant as a file? Some languages write long texts without a space."""
    is_short = len(text) < LONGEST_PLACE and not text.split()[1:]
    return is_short and bool(Path(text).suffix or os.sep in text)


def _is_file(text: str) -> bool:
    try:
        return "\n" not in text and Path(text).is_file()
    except (OSError, ValueError):  # too long for a name, or no name at all
        return False


def _read(path: Path) -> str:
    try:
        return path.read_text("utf-8-sig")
    except OSError as error:
        raise DataError(f"{path}: can't be read ({error.strerror})") from error
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path}: can't be read as text ({error}): give a file of plain text in UTF-8"
        ) from error
