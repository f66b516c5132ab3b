"""What users may rely on, a line each: names, parameters, attributes, commands and their options.

    python tools/public_names.py                 print them
    python tools/public_names.py --write         record them in tests/public_names.txt

A line that is recorded stays until its deprecation has run its course: see docs/stability.md.
"""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

import lpot
from lpot.cli import cli
from lpot.core.backend import Backend
from lpot.core.model import Model

LIST = Path(__file__).resolve().parents[1] / "tests" / "public_names.txt"
CLASSES = {"lpot.core.model.Model": Model, "lpot.core.backend.Backend": Backend}


def public_names() -> list[str]:
    named = {f"lpot.{name}": getattr(lpot, name) for name in lpot.__all__} | CLASSES
    lines = {line for name, item in named.items() for line in _of(name, item)}
    return sorted({*lines, *_commands(cli, "lpot")})


def _of(name: str, item: Any) -> Iterator[str]:
    yield name
    if inspect.isclass(item):
        fields = getattr(item, "__dataclass_fields__", {})
        for attribute in {*dir(item), *fields}:
            if not attribute.startswith("_") and attribute not in dir(Exception):
                yield f"{name}.{attribute}"
    elif callable(item):
        for parameter in inspect.signature(item).parameters:
            yield f"{name}({parameter})"


def _commands(command: click.Command, name: str) -> Iterator[str]:
    for parameter in command.params:
        if not getattr(parameter, "hidden", False):
            yield f"$ {name} {max(parameter.opts, key=len)}"
    if isinstance(command, click.Group):
        context = click.Context(command)
        for word in command.list_commands(context):
            found = command.get_command(context, word)
            if found is not None and not found.hidden:
                yield f"$ {name} {word}"
                yield from _commands(found, f"{name} {word}")


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--write", action="store_true")
    text = "\n".join(public_names()) + "\n"
    if parser.parse_args().write:
        LIST.write_text(text, encoding="utf-8")
    else:
        print(text, end="")


if __name__ == "__main__":
    main()
