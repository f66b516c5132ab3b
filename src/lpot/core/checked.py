"""Files that come back from a disk are foreign: their shape is checked before they are believed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, TypeVar

from pydantic import TypeAdapter, ValidationError

from lpot.core.errors import HistoryError, LpotError
from lpot.core.regular import open_regular

Value = TypeVar("Value")

LARGEST = 1 << 30  # bytes: no JSON of ours comes near


def read_json(path: Path, advice: str, error: type[LpotError] = HistoryError) -> Any:
    """What a JSON file holds; `advice` says what to do when it can't be read."""
    try:
        with open_regular(path) as stream:
            raw = stream.read(LARGEST + 1)
        if len(raw) > LARGEST:
            raise error(f"{path}: larger than {LARGEST >> 20} MiB, too large for a file of lpot")
        return json.loads(raw)
    except OSError as failure:
        raise error(f"{path}: can't be read ({failure.strerror}): {advice}") from failure
    except (ValueError, RecursionError) as failure:
        raise error(f"{path}: damaged, not valid JSON ({_short(failure)}): {advice}") from failure


def checked(
    kind: type[Value],
    raw: Any,
    where: Path | str,
    advice: str,
    error: type[LpotError] = HistoryError,
) -> Value:
    """`raw` as a `kind` (a dataclass, usually). What it does not know is left out."""
    try:
        # As JSON, where a list may be a tuple and nothing else is taken for what it is not.
        found: Value = _adapter(kind).validate_json(_as_json(raw), strict=True)
        return found
    except ValidationError as failure:
        first = failure.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, first["loc"])) or "the whole"
        told = f"{place}: {first['msg'][:1].lower()}{first['msg'][1:]}"
        raise error(f"{where}: damaged ({told}): {advice}") from failure


def damaged_fields(kind: type[Any], raw: Any) -> list[str]:
    """The fields of `raw` that are not what a `kind` holds there."""
    try:
        _adapter(kind).validate_json(_as_json(raw), strict=True)
    except ValidationError as failure:
        errors = failure.errors(include_url=False, include_input=False)
        return sorted({str(error["loc"][0]) for error in errors if error["loc"]})
    return []


def _as_json(raw: Any) -> bytes:
    """Half a character, which no JSON has, must not keep the rest from being looked at."""
    return json.dumps(raw, ensure_ascii=False).encode("utf-8", "replace")


_ADAPTERS: dict[Any, TypeAdapter[Any]] = {}


def _adapter(kind: Any) -> TypeAdapter[Any]:
    if kind not in _ADAPTERS:
        _ADAPTERS[kind] = TypeAdapter(kind)
    return _ADAPTERS[kind]


def _short(failure: Exception) -> str:
    return str(failure).splitlines()[0][:120] if str(failure) else type(failure).__name__
