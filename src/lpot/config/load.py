"""`load`: a yaml file, dict or Config becomes a Config, or one error that tells every mistake."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path as FilePath
from typing import Any

from pydantic import ValidationError

from lpot.config.dialects import translate, written
from lpot.config.mistakes import ConfigMistakes, mistakes_of
from lpot.config.node import MAX_DEPTH
from lpot.config.outline import Path, dotted
from lpot.config.read import Document, Mistake, read
from lpot.config.schema import Config, Source
from lpot.core.errors import ConfigError, a_kind


def load(
    source: str | os.PathLike[str] | Mapping[str, Any] | Config | None = None,
    *,
    extra_strategies: Iterable[str] = (),
) -> Config:
    """The configuration that `source` describes.

    A file is only read, never written. Names in `extra_strategies` are accepted beside the known
    ones.

    >>> load({"tuning": {"strategy": "random"}}).tuning.strategy.name
    'random'
    >>> load({"tuning": {"strategy": "randon"}})
    Traceback (most recent call last):
    lpot.config.mistakes.ConfigMistakes: tuning.strategy: given 'randon', allowed: basic | ...
    """
    if isinstance(source, Config):
        return source
    document = translate(_document(source))
    return _validate(document, _source(document), extra_strategies)


# Keys of which one at most may be given: setting one takes the other away.
_RIVALS = {
    "tuning.accuracy_criterion.relative": "tuning.accuracy_criterion.absolute",
    "quantization.calibration.sampling_size": "quantization.calibration.iterations",
    "evaluation.accuracy.metric": "evaluation.accuracy.multi_metrics",
    "tuning.objective": "tuning.multi_objectives",
}
_RIVALS |= {rival: path for path, rival in _RIVALS.items()}


def override(
    config: Config,
    changes: Mapping[str, Any],
    *,
    extra_strategies: Iterable[str] = (),
) -> Config:
    """The configuration with some keys set, by their dotted paths; None takes a key away.

    >>> override(load(), {"tuning.exit_policy.max_trials": 5}).tuning.exit_policy.max_trials
    5
    """
    data: dict[str, Any] = config.model_dump(exclude_unset=True)
    for path, value in changes.items():
        if path in _RIVALS:
            _set(data, _RIVALS[path], None)
        _set(data, path, value)
    lines: dict[Path, int] = {}
    _index(data, (), lines)
    # A name that a third party added was accepted when the configuration was loaded.
    strategies = (*extra_strategies, config.tuning.strategy.name)
    return _validate(Document(data, lines), config.source, strategies)


def _set(data: dict[str, Any], path: str, value: Any) -> None:
    *sections, name = path.split(".")
    for section in sections:
        below = data.get(section)
        data[section] = dict(below) if isinstance(below, Mapping) else {}
        data = data[section]
    if value is None:
        data.pop(name, None)
    else:
        data[name] = value


def _validate(document: Document, source: Source, strategies: Iterable[str]) -> Config:
    mistakes = list(document.mistakes)
    if document.file and not _has_name(document.data):
        mistakes.append(
            Mistake(
                ("model", "name"),
                "is missing: a file must name its model, e.g. `model: {name: resnet50}`",
                document.lines.get(("model",), 0),
            )
        )
    context = {"strategies": tuple(strategies), "source": source}
    try:
        config = Config.model_validate(document.data, context=context)
    except ValidationError as error:
        mistakes += mistakes_of(error, document)
        raise ConfigMistakes(document, mistakes) from None
    if mistakes:
        raise ConfigMistakes(document, mistakes)
    return config


def _document(source: Any) -> Document:
    if source is None:
        return Document({}, {})
    if isinstance(source, Mapping):
        lines: dict[Path, int] = {}
        _index(source, (), lines)
        return Document(source, lines)
    if not isinstance(source, str | os.PathLike):
        raise ConfigError(
            f"given {a_kind(source)}, expected the path of a yaml file, a dict or a Config"
        )
    if isinstance(source, str) and ("\n" in source or not source.strip()):
        raise ConfigError(
            "given a string that is not a path; give the path of a yaml file, or a dict"
        )
    return read(FilePath(source))


def _index(value: Any, path: Path, lines: dict[Path, int]) -> None:
    """Which keys a dict has: the same as lines of a file, without numbers."""
    if len(path) > MAX_DEPTH:
        raise ConfigError(f"nested deeper than {MAX_DEPTH} levels", path=dotted(path[:4]))
    entries: Iterable[tuple[Any, Any]] = ()
    if isinstance(value, Mapping):
        entries = value.items()
    elif isinstance(value, list | tuple):
        entries = enumerate(value)
    for key, item in entries:
        here = (*path, key)
        lines[here] = 0
        _index(item, here, lines)


def _has_name(data: Mapping[str, Any]) -> bool:
    model = data.get("model")
    # A model that is no mapping is told of by the schema.
    return not isinstance(model, Mapping | None) or "name" in (model or {})


def _source(document: Document) -> Source:
    if not document.file:
        return Source()
    lines = {dotted(path): line for path, line in document.lines.items()}
    lines |= {dotted(written(document, path)): line for path, line in document.lines.items()}
    return Source(document.file, lines)
