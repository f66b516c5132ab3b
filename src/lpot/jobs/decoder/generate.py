"""Text from a saved decoder, greedily, and the first token where two decoders part."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lpot.core.errors import DataError, HistoryError
from lpot.core.model import Model
from lpot.jobs.decoder.prepare import FP32_FOLDER, MODEL, OUT_FOLDER
from lpot.jobs.decoder.tokens import MASK, PLACES, feeds, is_cache, positions_in, tokenizer_in
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
    specs = tuple(model.inputs or ())
    caches = [spec.name for spec in specs if is_cache(spec)]
    if not caches:
        raise DataError(
            "the model has no KV cache to generate with: it has no input for past keys and values"
        )
    made = kept_in(caches, model.output_names)
    inputs = feeds(specs, prompt[None])
    found: list[int] = []
    for _ in range(count):
        outputs = model.backend.run(model, inputs)
        token = int(np.argmax(outputs[0][0, -1]))
        found.append(token)
        if token in ends:
            break
        past = len(prompt) + len(found) - 1
        inputs = _next(inputs, token, past) | {name: outputs[at] for name, at in made.items()}
    return tuple(found)


def kept_in(caches: Sequence[str], outputs: Sequence[str]) -> dict[str, int]:
    """Of each cache, the place of the output that goes into it next: the one with the same layer
    and the same part in its name.

    >>> kept_in(["past.0.key", "past.0.value"], ["logits", "present_value_0", "present_key_0"])
    {'past.0.key': 2, 'past.0.value': 1}
    """
    places = {
        _part(name): at
        for at, name in enumerate(outputs)
        if any(word in name for word in ("present", "past", "cache"))
    }
    missing = [name for name in caches if _part(name) not in places]
    if missing or len({_part(name) for name in caches}) < len(caches):
        raise DataError(
            f"no output of the model continues the cache {(missing or list(caches))[0]!r}: there "
            f"are {', '.join(outputs)}"
        )
    return {name: places[_part(name)] for name in caches}


def _part(name: str) -> tuple[tuple[str, ...], bool]:
    """The layer, and whether it is the values, as any exporter names them."""
    rest = re.sub(r"past_key_values|present_key_values|key_values|key_value", "", name)
    words = re.findall(r"[a-z]+|\d+", rest.lower())
    layer = tuple(word for word in words if word.isdigit())
    return layer, any(word in ("v", "value", "values") for word in words)


def _next(inputs: dict[str, np.ndarray], token: int, past: int) -> dict[str, np.ndarray]:
    """Everything but the cache for one more token."""
    found = {"input_ids": np.array([[token]], inputs["input_ids"].dtype)}
    if MASK in inputs:
        found[MASK] = np.ones((1, past + 1), inputs[MASK].dtype)
    if PLACES in inputs:
        found[PLACES] = np.array([[past]], inputs[PLACES].dtype)
    return found


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
