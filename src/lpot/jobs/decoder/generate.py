"""Text from a saved decoder, greedily, and the first token where two decoders part."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.errors import DataError, HistoryError
from lpot.core.model import Model
from lpot.jobs.decoder.inputs import is_cache
from lpot.jobs.decoder.prepare import FP32_FOLDER, MODEL, OUT_FOLDER
from lpot.jobs.decoder.reading import reader
from lpot.jobs.decoder.tokens import positions_in, tokenizer_in
from lpot.jobs.load import load


@dataclass(frozen=True)
class Continuation:
    """What FP32 and the low-precision model make of a prompt.

    `parts_at` counts the tokens that both agree on; None where they agree to the end, or where
    there is no FP32 model beside.
    """

    prompt: str
    low: str
    fp32: str | None
    tokens: tuple[int, ...]
    fp32_tokens: tuple[int, ...] | None
    parts_at: int | None

    def to_json(self) -> dict[str, Any]:
        return {
            "prompt": self.prompt,
            "low": self.low,
            "fp32": self.fp32,
            "tokens": list(self.tokens),
            "fp32_tokens": None if self.fp32_tokens is None else list(self.fp32_tokens),
            "parts_at": self.parts_at,
        }


def continue_text(run: Path, prompt: str, count: int = 32) -> Continuation:
    """The workspace's decoder on a prompt, with FP32 beside it where that is there."""
    folder = run / OUT_FOLDER
    if not (folder / MODEL).is_file():
        if (run / FP32_FOLDER / MODEL).is_file():
            raise HistoryError(
                f"{run}: there is no decoder in low precision in it: the tuning ended with FP32, "
                "or has not ended yet (its report says which)"
            )
        raise HistoryError(
            f"{run}: no {OUT_FOLDER}/{MODEL} in it: give the workspace of a tuning of a decoder "
            "with `approach: weight_only`"
        )
    tokenizer = tokenizer_in(folder)
    ids = np.asarray(tokenizer.encode(prompt).ids, np.int64)
    if not len(ids):
        raise DataError("the prompt is empty: it has no token to continue from")
    positions = positions_in(folder)
    if positions is not None:
        if len(ids) > positions:
            raise DataError(
                f"the prompt has {len(ids)} tokens, but the model has {positions} positions: give "
                "a shorter one"
            )
        count = min(count, positions - len(ids) + 1)
    ends = _ends(folder)
    low = generate(load(folder / MODEL), ids, count, ends)
    reference = run / FP32_FOLDER / MODEL
    fp32 = generate(load(reference), ids, count, ends) if reference.is_file() else None
    return Continuation(
        prompt,
        tokenizer.decode(list(low)),
        None if fp32 is None else tokenizer.decode(list(fp32)),
        low,
        fp32,
        None if fp32 is None else first_difference(low, fp32),
    )


def generate(
    model: Model, prompt: np.ndarray, count: int, ends: tuple[int, ...] = ()
) -> tuple[int, ...]:
    """The likeliest tokens behind the prompt, one by one with the cache."""
    if not any(is_cache(spec) for spec in model.inputs or ()):
        raise DataError(
            "the model has no KV cache to generate with: it has no input for past keys and values"
        )
    reading = reader(model, 1, len(prompt) + count)
    found: list[int] = []
    read, new = 0, prompt
    for _ in range(count):
        logits = reading.call(new[None], read)()
        read += len(new)
        found.append(int(np.argmax(logits[0, -1])))
        if found[-1] in ends:
            break
        new = np.array(found[-1:])
    return tuple(found)


def first_difference(one: tuple[int, ...], other: tuple[int, ...]) -> int | None:
    """How many tokens two texts share from the start; None for equal ones.

    >>> first_difference((5, 6, 7), (5, 9)), first_difference((5,), (5,))
    (1, None)
    """
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return None if len(one) == len(other) else min(len(one), len(other))


def _ends(folder: Path) -> tuple[int, ...]:
    """The tokens that end a text, from generation_config.json or config.json."""
    for name in ("generation_config.json", "config.json"):
        try:
            found = json.loads((folder / name).read_text("utf-8")).get("eos_token_id")
            if found is not None:
                return tuple(map(int, found)) if isinstance(found, list) else (int(found),)
        except (OSError, ValueError, AttributeError, TypeError, ArithmeticError, RecursionError):
            continue
    return ()
