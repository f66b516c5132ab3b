"""The part of a configuration that decides results: what history is compared by."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from lpot.config.schema import Config

_SECRETS = {"sigopt_api_token"}
_DECIDING_MODEL = {"framework", "runtime", "inputs", "outputs"}
_DECIDING_TUNING = {
    "strategy",
    "accuracy_criterion",
    "objective",
    "multi_objectives",
    "random_seed",
}


def identity(config: Config) -> dict[str, Any]:
    """Everything that decides results, ready for JSON; defaults are left out.

    Limits, workspace, name and version may change without making history worthless. A key that is
    written with its default says the same as an absent one, and so does one added to the schema.

    >>> from lpot.config.load import load
    >>> identity(load({"model": {"name": "a"}, "device": "cpu"}))
    {'tuning': {'accuracy_criterion': {'relative': 0.01}}}
    """
    raw = config.model_dump(
        exclude_defaults=True,
        include={
            "model": _DECIDING_MODEL,
            "device": True,
            "use_bf16": True,
            "graph_optimization": True,
            "mixed_precision": True,
            "quantization": True,
            "tuning": _DECIDING_TUNING,
            "evaluation": True,
        },
    )
    # The tolerance is written out even where it is the default one: a reader wants to see it.
    criterion = config.tuning.accuracy_criterion.model_dump(
        exclude_defaults=True,
        exclude={"really"},  # an answer to a question, no wish
    )
    raw = {**raw, "tuning": {**raw.get("tuning", {}), "accuracy_criterion": criterion}}
    raw = {key: value for key, value in raw.items() if value != {}}
    plain: dict[str, Any] = json.loads(json.dumps(public(raw), default=_name, sort_keys=True))
    return plain


def public(value: Any) -> Any:
    """Without secrets: what may stand in a file."""
    if isinstance(value, Mapping):
        return {key: public(item) for key, item in value.items() if key not in _SECRETS}
    return [public(item) for item in value] if isinstance(value, list | tuple) else value


def _name(value: Any) -> str:
    """An object of the user's, such as a loss: its class is what can be told of it."""
    return f"{type(value).__module__}.{type(value).__qualname__}"
