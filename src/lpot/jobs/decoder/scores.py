"""What a decoder makes of a text: perplexity, and the last words of its windows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lpot.core.errors import DataError, UnsupportedModel, a_kind
from lpot.core.evaluation.evaluate import run_all
from lpot.jobs.decoder.prepare import MODEL, OUT_FOLDER
from lpot.jobs.decoder.tokens import TokenWindows, positions_in, windows_of
from lpot.jobs.load import load
from lpot.metric.base import BaseMetric
from lpot.metric.language import LastWord, Perplexity


def perplexity(model: str | Path, text: Any, length: int = 512) -> float:
    """The perplexity of a decoder on a text.

    Args:
        model: a decoder as ONNX (its folder or file), or the workspace of its tuning.
        text: a text, a file of it, a list of texts, or an array of tokens.
        length: tokens that are read at a time, at most the model's positions.
    """
    return _score(model, text, length, Perplexity())


def last_word(model: str | Path, text: Any, length: int = 64) -> float:
    """The share of windows of the text whose last whole word the decoder predicts exactly.

    Arguments as for `perplexity`; the text must be words, not tokens.
    """
    return _score(model, text, length, LastWord())


def _score(model: str | Path, text: Any, length: int, metric: BaseMetric) -> float:
    path = _decoder(Path(model))
    most = positions_in(path.parent)
    found = windows_of(text, length if most is None else min(length, most), path.parent, "the text")
    if found is None:
        raise DataError(
            f"the text is {a_kind(text)}: expected a text, a file of it, a list of texts, or an "
            "array of tokens"
        )
    windows: TokenWindows = found.asking_last_words() if isinstance(metric, LastWord) else found
    opened = load(path)
    for inputs, labels in windows.bind(opened.inputs):
        metric.update(run_all(opened, inputs), labels)
    return metric.result()


def _decoder(place: Path) -> Path:
    """Its model.onnx, beside which the tokenizer lies."""
    for path in (place / OUT_FOLDER / MODEL, place / MODEL, place):
        if path.is_file() and path.suffix == ".onnx":
            return path
    raise UnsupportedModel(
        f"{place}: no decoder as ONNX in it: give the workspace of a tuning with `approach: "
        "weight_only`, its folder decoder/ or fp32/, or the folder of another model.onnx"
    )
