"""One finite number from whatever the user's code returned."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lpot.core.errors import EvaluationError, a_kind


def as_number(value: Any, who: str) -> float:
    """A score from what the user's code returned, or an error that names it.

    >>> as_number({"accuracy": np.float32(0.5)}, "eval_func f")
    0.5
    """
    if value is None:
        raise EvaluationError(
            f"{who} returned None: it must return the score (is a `return` missing?)"
        )
    if isinstance(value, Mapping):
        if len(value) != 1:
            raise EvaluationError(
                f"{who} returned {len(value)} numbers ({', '.join(map(str, value))}): "
                "return the one to tune by"
            )
        return as_number(next(iter(value.values())), who)
    if isinstance(value, str | bytes):
        raise EvaluationError(f"{who} returned the string {value!r}: it must return a number")
    if hasattr(value, "asnumpy"):  # MXNet
        value = value.asnumpy()
    if hasattr(value, "detach") and getattr(value, "numel", lambda: 0)() == 1:
        value = value.detach().item()  # a tensor of any device and dtype, bfloat16 included
    try:
        array = np.asarray(value)
        if array.dtype.kind in "cSUMmV" or np.ma.is_masked(value):
            raise TypeError(f"{array.dtype} is not a real number")
        array = array.astype(np.float64)
    except (TypeError, ValueError, OverflowError, NotImplementedError) as error:
        raise EvaluationError(
            f"{who} returned {a_kind(value)}, which is not a number ({error})"
        ) from error
    if array.size != 1:
        raise EvaluationError(
            f"{who} returned {array.size} numbers in {a_kind(value)}: return the one to tune by"
        )
    number = float(array.reshape(()))
    if not math.isfinite(number):
        raise EvaluationError(f"{who} returned {number}: it must return a finite number")
    return number
