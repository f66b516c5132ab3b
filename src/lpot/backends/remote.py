"""A command run again by another interpreter, for frameworks that need an environment of their own.

MXNet's last release works only beside an old numpy. `LPOT_MXNET_PYTHON` names the interpreter of an
environment that has it; the whole command runs there, with this very lpot, as a child process.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from lpot.backends import get_backend
from lpot.core.errors import BackendUnavailable, ConfigError

PACKAGE = Path(__file__).parents[1]
PROBE_SECONDS = 60.0
LEAST_PYTHON = (3, 11)
_PROBE = """
import importlib, json, sys
missing = []
for name in sys.argv[1:]:
    try:
        importlib.import_module(name)
    except ImportError:
        missing.append(name)
print(json.dumps([list(sys.version_info[:2]), missing]))
"""
# Module → package, of what our own code needs over there.
_OURS: Mapping[str, str] = {
    "numpy": "numpy",
    "pydantic": "pydantic",
    "ruamel.yaml": "ruamel.yaml",
    "rich": "rich",
    "click": "click",
}


@dataclass(frozen=True)
class Home:
    """Where a framework lives when it can't live here."""

    variable: str  # names the interpreter
    install: str  # what pip has to install there


HOMES: Mapping[str, Home] = {
    "mxnet": Home("LPOT_MXNET_PYTHON", 'mxnet==1.9.1 "numpy<1.24"'),
}


def elsewhere(framework: str, arguments: Sequence[str]) -> int | None:
    """Run `lpot <arguments>` where the framework lives, and give its exit status.

    None when the framework can be used right here. Raises when it can't be used anywhere.
    """
    home = HOMES.get(framework)
    if home is None:
        return None
    try:
        get_backend(framework)
    except BackendUnavailable:
        interpreter = os.environ.get(home.variable)
        if not interpreter:
            raise
    else:
        return None
    _check(interpreter, home)
    with _importable() as environment:
        return _run([interpreter, "-m", "lpot.cli", *arguments], environment)


def _check(interpreter: str, home: Home) -> None:
    """Is it a Python that we can run in? What is missing is told before anything is started."""
    try:
        done = subprocess.run(
            [interpreter, "-c", _PROBE, *_OURS],
            capture_output=True,
            text=True,
            timeout=PROBE_SECONDS,
            env=_environment(),
        )
        found = json.loads(done.stdout.splitlines()[-1]) if done.stdout else None
    except (OSError, ValueError, subprocess.TimeoutExpired) as error:
        raise ConfigError(
            f"given {interpreter!r}, which can't be run as a Python interpreter ({error})",
            path=home.variable,
        ) from error
    if found is None:
        last = (done.stderr.strip().splitlines() or ["it said nothing"])[-1]
        raise ConfigError(
            f"given {interpreter!r}, which is not a Python interpreter ({last})", path=home.variable
        )
    version, missing = tuple(found[0]), found[1]
    if version < LEAST_PYTHON:
        need = ".".join(map(str, LEAST_PYTHON))
        raise ConfigError(
            f"given {interpreter!r}, a Python {'.'.join(map(str, version))}: at least {need} is "
            "needed",
            path=home.variable,
        )
    if missing:
        packages = " ".join(_OURS[name] for name in missing)
        raise ConfigError(
            f"given {interpreter!r}, which lacks {packages}: "
            f"{interpreter} -m pip install {home.install} {packages}",
            path=home.variable,
        )


@contextmanager
def _importable() -> Iterator[dict[str, str]]:
    """An environment whose Python finds this lpot, and none of the packages around it."""
    with tempfile.TemporaryDirectory(prefix="lpot-elsewhere-") as folder:
        (Path(folder) / PACKAGE.name).symlink_to(PACKAGE, target_is_directory=True)
        environment = _environment()
        known = environment.get("PYTHONPATH")
        environment["PYTHONPATH"] = os.pathsep.join([folder, *([known] if known else [])])
        yield environment


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if name != "PYTHONHOME"}


def _run(command: Sequence[str], environment: Mapping[str, str]) -> int:
    """The child has the terminal, and Ctrl-C with it; a request to end is passed on."""
    sys.stdout.flush()
    sys.stderr.flush()
    process = subprocess.Popen(command, env=dict(environment))
    if threading.current_thread() is not threading.main_thread():
        return _status(process.wait())
    before = {
        signal.SIGINT: signal.signal(signal.SIGINT, signal.SIG_IGN),
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: process.terminate()),
    }
    try:
        return _status(process.wait())
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _status(code: int) -> int:
    """As a shell tells it: 128 and the signal's number for a process that was killed."""
    return code if code >= 0 else 128 - code
