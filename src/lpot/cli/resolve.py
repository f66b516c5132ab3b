"""What the user names on the command line: `pkg.mod:name` as an object, paths as models."""

from __future__ import annotations

import contextlib
import importlib
import re
import sys
from pathlib import Path
from types import TracebackType
from typing import Any

from lpot.core.blame import raised
from lpot.core.errors import (
    CalibrationError,
    ConfigError,
    LpotError,
    UnsupportedModel,
    a_kind,
    did_you_mean,
)
from lpot.core.interrupt import Terminated
from lpot.core.loader import is_loader

_REFERENCE = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


class Blame(contextlib.AbstractContextManager[None]):
    """What the user's own code raises becomes one of our errors, which names that code."""

    def __init__(self, kind: type[LpotError], what: str) -> None:
        self._kind = kind
        self._what = what

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if isinstance(error, SystemExit) and not isinstance(error, Terminated):
            raise self._kind(
                f"{self._what} called sys.exit({error.code!r}), which would have ended the program "
                "before anything was tuned"
            ) from error
        if isinstance(error, Exception) and not isinstance(error, LpotError):
            raise self._kind(f"{self._what} raised {raised(error)}") from error


def resolve(reference: str, option: str) -> Any:
    """The object behind `pkg.mod:name`; modules of the current directory are found too."""
    if not _REFERENCE.fullmatch(reference) or reference.partition(":")[0].endswith(".py"):
        raise ConfigError(f"given {reference!r}, expected pkg.mod:name{_hint(reference)}", option)
    look_here()
    module_name, _, name = reference.partition(":")
    found: Any = _import(module_name, option)
    for part in name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            near = did_you_mean(part, [word for word in dir(found) if not word.startswith("__")])
            raise ConfigError(f"{module_name!r} has no {name!r}{near}", option) from None
    return found


def look_here() -> None:
    """Let modules of the current directory be imported, as `python` itself does."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def _import(name: str, option: str) -> Any:
    try:
        with Blame(ConfigError, f"{option}: importing {name!r}"):
            return importlib.import_module(name)
    except ConfigError as error:
        missing = error.__cause__
        if not (isinstance(missing, ModuleNotFoundError) and _is_part(missing.name, name)):
            raise
        files = [path.stem for path in Path.cwd().glob("*.py")]
        raise ConfigError(
            f"no module {missing.name!r} in {Path.cwd()} or among the installed "
            f"packages{did_you_mean(name, files)}",
            option,
        ) from None


def _is_part(missing: str | None, name: str) -> bool:
    """Is it the module asked for, or a package around it, and not one that it imports?"""
    return missing is not None and (name == missing or name.startswith(f"{missing}."))


def _hint(reference: str) -> str:
    path, _, name = reference.partition(":")
    if path.endswith(".py"):
        module = path.removesuffix(".py").removeprefix("./").replace("/", ".")
        return f", such as {module}:{name or 'function'}"
    return ", such as my_module:my_function"


def model_source(text: str) -> Any:
    """A path that exists, or what `pkg.mod:factory` makes."""
    if Path(text).exists() or Path(f"{text}-symbol.json").exists():  # MXNet's prefix
        return text
    if not _REFERENCE.fullmatch(text):
        folder = Path(text).parent
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        near = did_you_mean(Path(text).name, names)
        raise ConfigError(
            f"{text!r} does not exist{near or '; give a file or pkg.mod:factory'}", "--model"
        )
    found = resolve(text, "--model")
    if not callable(found) or _is_model(found):
        return found
    with Blame(UnsupportedModel, f"--model: {text}()"):
        return found()


def _is_model(found: Any) -> bool:
    """Modules of PyTorch are callable, too: an object is a model, a function or class makes one."""
    return not isinstance(found, type) and not hasattr(found, "__code__")


def calibration_source(text: str) -> Any:
    """A loader, what the function named makes, or a file of text for a decoder."""
    place = Path(text)
    if place.is_file() and place.suffix != ".py":
        return place
    if not _REFERENCE.fullmatch(text) and place.suffix != ".py":
        raise ConfigError(
            f"given {text!r}, expected a file of text for a decoder, which this is not, or "
            "pkg.mod:name",
            "--calib",
        )
    found = resolve(text, "--calib")
    if isinstance(found, type) or not is_loader(found):
        if not callable(found):
            raise ConfigError(
                f"{text} is {a_kind(found)}: expected a data loader, or a function that "
                "returns one",
                "--calib",
            )
        with Blame(CalibrationError, f"--calib: {text}()"):
            found = found()
    return found


def model_name(text: str) -> str:
    """A name for the workspace of a model given without a configuration."""
    if Path(text).exists():
        return Path(text).stem or "model"
    return text.rpartition(":")[2].rpartition(".")[2] or "model"


def run_elsewhere(framework: str | None, model: str) -> int | None:
    """The exit status of this very command, run where the model's framework lives; None: here."""
    from lpot.backends import detect
    from lpot.backends.remote import elsewhere

    if framework is None:
        is_path = Path(model).exists() or Path(f"{model}-symbol.json").exists()
        try:
            framework = detect(Path(model)) if is_path else None
        except UnsupportedModel:  # said with more words when the model is loaded
            return None
    return None if framework is None else elsewhere(framework, sys.argv[1:])
