"""A yaml file as plain data with the line of every key. Nothing in it is ever executed."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path as FilePath
from typing import IO, Any

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from lpot.config.node import PRUNER_TAG, Builder, Node
from lpot.config.outline import Path
from lpot.core.errors import ConfigError, first_line, nearest

MAX_BYTES = 1 << 20
STDIN = "-"


class ConfigFileMissing(ConfigError, FileNotFoundError):
    """There is no such file."""

    def __str__(self) -> str:
        return str(self.args[0])


@dataclass(frozen=True)
class Mistake:
    """One complaint. `line` 0 means that no file was read."""

    path: Path
    message: str
    line: int = 0


@dataclass(frozen=True)
class Document:
    """Plain data, the line of each key in it, and what is wrong with its form.

    `spelled` maps a path of the schema to the older one the user wrote.
    """

    data: Mapping[str, Any]
    lines: Mapping[Path, int]
    file: str = ""
    mistakes: tuple[Mistake, ...] = ()
    spelled: Mapping[Path, Path] = field(default_factory=dict)


def read(path: FilePath) -> Document:
    """The file's document; `-` is standard input. The file itself is only ever read."""
    file = "<stdin>" if str(path) == STDIN else str(path)
    text = _decode(_bytes(path), file)
    try:
        root = Builder(file).build(YAML(typ="safe", pure=True).parse(text))
    except MarkedYAMLError as error:
        raise _syntax(error, text, file) from error
    except YAMLError as error:  # a character that no yaml may hold
        line = text.count("\n", 0, getattr(error, "position", None) or 0) + 1
        message = f"not yaml: {first_line(error)}"
        raise ConfigError(message, where=f"{file}:{line}") from error
    except AssertionError as error:  # how the parser meets a %YAML line of no known version
        raise ConfigError("not yaml of version 1.1 or 1.2", where=file) from error
    if root is None or (root.entries is None and root.value is None):
        raise ConfigError(
            "the file is empty; it needs at least a model section: `model: {name: my_model}`",
            where=file,
        )
    if root.entries is None or root.is_list:
        raise ConfigError(
            f"the file holds {'a list' if root.is_list else 'a string'}, expected a mapping "
            "such as `model: {name: my_model}`",
            where=f"{file}:{root.line}",
        )
    lines: dict[Path, int] = {}
    mistakes: list[Mistake] = []
    data = _unfold(root, (), lines, mistakes)
    return Document(data, lines, file, tuple(mistakes))


def _opened(path: FilePath) -> contextlib.AbstractContextManager[IO[bytes]]:
    if str(path) == STDIN:
        return contextlib.nullcontext(sys.stdin.buffer)
    return path.open("rb")


def _bytes(path: FilePath) -> bytes:
    try:
        with _opened(path) as stream:
            raw = stream.read(MAX_BYTES + 1)
    except FileNotFoundError as error:
        raise ConfigFileMissing(f"no such file{_siblings(path)}", where=str(path)) from error
    except IsADirectoryError as error:
        raise ConfigError("is a folder, expected a yaml file", where=str(path)) from error
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise ConfigError(f"can't be read: {reason}", where=str(path)) from error
    if len(raw) > MAX_BYTES:
        raise ConfigError(
            f"is larger than {MAX_BYTES >> 20} MiB, too large for a configuration", where=str(path)
        )
    return raw


def _siblings(path: FilePath) -> str:
    try:
        names = [item.name for item in path.parent.iterdir() if item.suffix in (".yaml", ".yml")]
    except OSError:
        return f"; the folder {str(path.parent)!r} can't be listed"
    close = nearest(path.name, names)
    return f", did you mean {' or '.join(map(repr, close))}?" if close else ""


def _decode(raw: bytes, file: str) -> str:
    if b"\0" in raw:
        raise ConfigError(
            "is not a text file: it contains zero bytes (UTF-16 or binary)", where=file
        )
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = raw.count(b"\n", 0, error.start) + 1
        raise ConfigError(
            f"byte {raw[error.start]:#04x} is not UTF-8; save the file as UTF-8",
            where=f"{file}:{line}",
        ) from error


def _syntax(error: MarkedYAMLError, text: str, file: str) -> ConfigError:
    mark = error.problem_mark or error.context_mark
    line = mark.line if mark is not None else 0
    problem = error.problem or error.context or "not yaml"
    if "'\\t'" in problem:
        problem = "a tab: yaml uses spaces for indentation and between key and value"
    elif "mapping values are not allowed" in problem:
        problem = "unexpected ':'; check the indentation, or put the text in quotes"
    rows = text.splitlines()
    shown = rows[line].strip()[:60] if line < len(rows) else ""
    tail = f", in {shown!r}" if shown else ""
    return ConfigError(f"not yaml: {problem}{tail}", where=f"{file}:{line + 1}")


def _unfold(node: Node, path: Path, lines: dict[Path, int], mistakes: list[Mistake]) -> Any:
    """Plain data of a node; fills in the line of every path below it."""
    if node.entries is None:
        return node.value
    if node.tag == PRUNER_TAG and path[:1] != ("pruning",):
        mistakes.append(Mistake(path, "the tag !Pruner belongs under pruning", node.line))
    data: dict[str | int, Any] = {}
    for key, line, child in node.entries:
        here = (*path, key)
        if here in lines:
            message = f"given twice, first on line {lines[here]}: keep only one"
            mistakes.append(Mistake(here, message, line))
            continue
        lines[here] = line
        data[key] = _unfold(child, here, lines, mistakes)
    return list(data.values()) if node.is_list else data
