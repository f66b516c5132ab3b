"""Writes what is told of the schema: docs/yaml.md and template.yaml.

`python -m lpot.config.document` writes the two files anew; a test compares them.
"""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

from pydantic_core import PydanticUndefined

from lpot.config.availability import LATER, is_later, later_words
from lpot.config.dialects import MOVED
from lpot.config.outline import ANY_NAME, Key, Kind, dotted, walk
from lpot.config.schema import Config
from lpot.config.section import OneOf, Section
from lpot.config.template import flow, template

TEMPLATE = Path(__file__).with_name("template.yaml")
PAGE = Path(__file__).parents[3] / "docs" / "yaml.md"

_TYPES: dict[type | None, str] = {
    str: "text", int: "whole number", float: "number", bool: "true or false"
}  # fmt: skip
_INTRO = """\
# The configuration file

This page is generated from the schema by `python -m lpot.config.document`. It lists every key with
its default; `lpot schema` prints the same as JSON Schema for editors, and
`lpot template` prints a complete file to start from.

A typical file is short:

```yaml
model:
  name: resnet50
  framework: onnx

quantization:
  calibration:
    sampling_size: 100
  op_wise: {
    'fc': {activation: {dtype: ['fp32']}}
  }

tuning:
  accuracy_criterion:
    relative: 0.01
  exit_policy:
    timeout: 0
    max_trials: 100
  random_seed: 9527
```

In Python you can pass the same as a dict; `model` is optional there:

```python
from lpot.config import load

config = load({"tuning": {"accuracy_criterion": {"relative": 0.01}}})
assert config.tuning.exit_policy.max_trials == 100
```

## How to write values

- **Lists** as `a, b`, as `a b`, as a yaml list, or as one bare value.
- **Numbers** as `0.01`, `1e-2` or, for the accuracy criterion, `'1%'`. A relative criterion of `1`
  is rejected, since it could mean 1 % or 100 %. Numbers such as `017` are rejected, since yaml
  versions read them differently.
- **Strings** keep their spelling: `name: 1.10` is '1.10', `name: NO` is 'NO'.
- **Switches** as true, false, yes, no, on or off.
- **Empty sections**, such as `quantization:` alone, keep their defaults.
- **Comments, anchors, aliases and `<<`** work as in any yaml. Tags do not, except `!Pruner`.

Errors give file and line, the key's path, what was given, what is allowed and the closest match;
all of them are reported at once. Files larger than 1 MiB, nested deeper than 32 levels or holding
more than 100 000 values are rejected. The file is never modified.
"""


def page() -> str:
    """The text of docs/yaml.md."""
    return "\n".join([_INTRO, *_older(), *_later(), *_tables()])


def _older() -> Iterator[str]:
    yield "## Older spellings\n"
    yield "| written | read as |\n| --- | --- |"
    for old, new in MOVED.items():
        yield f"| `{dotted(old)}` | `{dotted(new)}` |"
    yield "| `tuning.strategy: basic` | `tuning.strategy: {name: basic}` |"
    yield "| `quantization.calibration.iterations` | batches instead of samples |\n"


def _later() -> Iterator[str]:
    yield "## What is not available yet\n"
    yield "These keys are read and checked; setting one to anything but its default gives a "
    "warning.\n"
    yield "| key | instead |\n| --- | --- |"
    for key, hint in LATER.items():
        yield f"| `{key.replace('=', ': ')}` | {hint} |"
    yield ""


def _tables() -> Iterator[str]:
    """One table for each kind of section, under the first place where it stands."""
    places: dict[type[Section], list[tuple[str, ...]]] = {Config: [()]}
    rows: dict[type[Section], list[Key]] = {Config: []}
    for key in walk():
        parent = _section_at(places, key.path[:-1])
        if all(known.path[-1] != key.path[-1] for known in rows[parent]):
            rows[parent].append(key)
        if key.kind.section is not None:
            below = key.path if key.kind.shape == "value" else (*key.path, ANY_NAME)
            places.setdefault(key.kind.section, []).append(below)
            rows.setdefault(key.kind.section, [])
    yield "## Keys\n"
    for section, paths in places.items():
        yield from _table(section, paths, rows[section])


def _section_at(
    places: dict[type[Section], list[tuple[str, ...]]], path: tuple[str, ...]
) -> type[Section]:
    return next(section for section, paths in places.items() if path in paths)


def _table(section: type[Section], paths: list[tuple[str, ...]], rows: list[Key]) -> Iterator[str]:
    title = dotted(paths[0])
    yield f"### {f'`{title}`' if title else 'The top level'}\n"
    if section.__doc__ and "__doc__" in vars(section):
        yield f"{inspect.cleandoc(section.__doc__)}\n"
    if len(paths) > 1:
        yield f"Also at {', '.join(f'`{dotted(path)}`' for path in paths[1:])}.\n"
    if issubclass(section, OneOf) and not rows:
        yield "One name, with a mapping of arguments below it.\n"
        return
    if not rows:
        return
    yield "| key | type | default | meaning | available |\n| --- | --- | --- | --- | --- |"
    for key in rows:
        yield _row(key)
    yield ""


def _row(key: Key) -> str:
    meaning = (key.field.description or "").replace("|", "\\|")
    if key.kind.words:
        meaning += f" Allowed: {', '.join(f'`{word}`' for word in key.kind.words)}."
    words = later_words(key.path)
    status = "later" if is_later(key.path) else "yes"
    if words:
        status += f"  except {', '.join(words)}"
    return f"| `{key.path[-1]}` | {_type(key.kind)} | {_default(key)} | {meaning} | {status} |"


def _type(kind: Kind) -> str:
    one = "section" if kind.section is not None else "word" if kind.words else ""
    one = one or _TYPES.get(kind.base, "anything")
    if kind.shape == "value":
        return one
    plural = "" if kind.base in (bool, None) and not kind.section else "s"
    return f"{kind.shape} of {one}{plural}"


def _default(key: Key) -> str:
    default = key.field.default
    if default is PydanticUndefined:
        return "required"
    if default is None or isinstance(default, Section):
        return ""
    return f"`{flow(default)}`"


def main() -> None:
    TEMPLATE.write_text(template(), encoding="utf-8")
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(page(), encoding="utf-8")


if __name__ == "__main__":
    main()
