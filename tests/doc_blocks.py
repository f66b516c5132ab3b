"""The code blocks of a page, run in the order a reader meets them.

A block whose first line is a comment with a file's name (`# conf.yaml`) is written to that file;
other Python blocks run one after the other in one namespace, shell blocks line by line. Other yaml
is read as a configuration. Commands that are only shown, in `console` blocks and within sentences,
must exist with all of their options.
"""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", flags=re.DOTALL | re.MULTILINE)
_FILE = re.compile(r"# ([\w.-]+\.\w+)$")


@dataclass(frozen=True)
class Block:
    language: str
    text: str
    line: int

    @property
    def file(self) -> str | None:
        """The file that the block is, where its first line says so."""
        found = _FILE.match(self.text.partition("\n")[0])
        return found[1] if found else None


def blocks(page: Path) -> list[Block]:
    text = page.read_text("utf-8")
    return [
        Block(found[1], found[2], text[: found.start(2)].count("\n") + 1)
        for found in _BLOCK.finditer(text)
    ]


def run_page(page: Path, folder: Path) -> dict[str, Any]:
    """Run everything on the page in `folder`, which is the working directory; gives the names."""
    names: dict[str, Any] = {}
    for block in blocks(page):
        if block.file is not None:
            (folder / block.file).write_text(block.text, "utf-8")
        elif block.language == "python":
            code = "\n" * (block.line - 1) + block.text  # so that errors name the page's lines
            exec(compile(code, str(page), "exec"), names)
        elif block.language in ("sh", "shell"):
            run_shell(block, folder)
        elif block.language == "yaml":
            check_yaml(block)
    return names


def check_yaml(block: Block) -> None:
    """A part of a configuration: every key and value of it is accepted."""
    from ruamel.yaml import YAML

    from lpot.config import load

    load(YAML(typ="safe", pure=True).load(block.text))


def commands(page: Path) -> list[list[str]]:
    """Every `lpot` command that the page shows, as words."""
    text = page.read_text("utf-8")
    shown = re.findall(r"`(lpot [a-z]+[^`]*)`", text)
    shown += re.findall(r"^\$ (lpot .*)$", text, flags=re.MULTILINE)
    shown += [line for line in text.splitlines() if line.startswith("lpot ") and " -" in line]
    return [shlex.split(line.replace("…", "x"), comments=True) for line in shown]


def wrong_words(command: list[str]) -> list[str]:
    """What the command line does not know of it."""
    from lpot.cli import cli

    known = cli.commands.get(command[1])
    if known is None:
        return [command[1]]
    options = {name for option in known.params for name in (*option.opts, *option.secondary_opts)}
    options |= {"--help", "-h"}
    given = [word.partition("=")[0].rstrip(",.") for word in command[2:] if word.startswith("-")]
    return [word for word in given if word not in options and word != "-"]


def run_shell(block: Block, folder: Path) -> None:
    """Each command; `make` is the reader's to run: its targets are what runs the tests."""
    for number, line in enumerate(block.text.splitlines(), block.line):
        if not line.strip() or line.startswith(("make ", "#")):
            continue
        run = run_lpot if line.startswith("lpot ") else run_bash
        status, told = run(line, folder)
        assert status == 0, f"line {number}: {line}\n{told}"


def run_bash(line: str, folder: Path) -> tuple[int, str]:
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", line],
        cwd=folder,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    return done.returncode, f"{done.stdout}\n{done.stderr}"


def run_lpot(line: str, folder: Path) -> tuple[int, str]:
    """In this process, where frameworks are imported already, as if in a new one."""
    from click.testing import CliRunner

    from lpot.cli import cli

    paths = list(sys.path)
    _forget(folder)
    try:
        done = CliRunner().invoke(cli, shlex.split(line, comments=True)[1:])
    finally:
        sys.path[:] = paths
        _forget(folder)
    return done.exit_code, done.output


def _forget(folder: Path) -> None:
    """Pages have modules of one name."""
    for file in folder.glob("*.py"):
        sys.modules.pop(file.stem, None)
