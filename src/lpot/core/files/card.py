"""The JSON card beside every saved model: how it was made, on what, and what to compare at load."""

from __future__ import annotations

import hashlib
import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

from lpot.core.cpu import this_cpu
from lpot.core.errors import HistoryError
from lpot.core.files.draft import sync_folder as sync_folder
from lpot.core.files.draft import write_text as write_text
from lpot.core.files.untrusted import damaged_fields, open_regular, read_json
from lpot.core.model import Model
from lpot.core.recipe import Recipe

logger = logging.getLogger(__name__)

FORMAT = 1
# Features that decide which integer kernels run, and so the last bits of a result.
KERNEL_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8", "asimddp", "i8mm")
ADVICE = "delete it to load the model without its card, or save the model again"


@dataclass(frozen=True)
class _Shape:
    """What a card must look like; all but its format may be missing."""

    format: int
    framework: str | None = None
    name: str | None = None
    file: str | None = None
    main: str | None = None
    sha256: str | None = None
    pieces: dict[str, str] | None = None
    architecture: str | None = None
    cpu: dict[str, bool] | None = None
    versions: dict[str, str] | None = None
    recipe: dict[str, Any] | None = None
    met: bool | None = None
    ends: dict[str, list[str]] | None = None
    params_sha256: str | None = None
    lpot: str | None = None


def card_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.card.json")


def make_card(
    model: Model, path: Path, main: str = "", pieces: Mapping[str, str] | None = None
) -> dict[str, Any]:
    """The card of a model that lies, or will lie, at `path`.

    `pieces` maps each of its files, relative to their folder, to its hash; `main` is the one that
    stands for all of them, inside of `path` if that is a folder.
    """
    known = pieces_of(path) if pieces is None else pieces
    first = main or path.name
    return {
        "format": FORMAT,
        "framework": model.backend.name,
        "file": path.name,
        **({"main": main} if main else {}),
        "sha256": known.get(first),
        "pieces": dict(sorted(known.items())),
        "architecture": this_cpu().architecture,
        "cpu": {name: this_cpu().has(name) for name in KERNEL_FEATURES},
        "versions": model.backend.versions(),
        "recipe": None if model.recipe is None else model.recipe.to_json(),
        "met": model.met,
        **model.card,
    }


def write_card(model: Model, path: Path) -> Path:
    """Describe the file or folder just written at `path`."""
    return put_card(path, make_card(model, path))


def put_card(path: Path, card: Mapping[str, Any]) -> Path:
    target = card_path(path)
    write_text(target, json.dumps(card, indent=1, ensure_ascii=False) + "\n")
    return target


def read_card(path: Path) -> dict[str, Any]:
    """What the card of a saved model tells; empty when there is none.

    A card is told about, never stumbled over: what is damaged, or of a later version and not
    understood, is left out with a warning, and the model is opened without it. While a model is
    replaced its card describes both, the new one and the one `before`: the hash tells which of
    them is there.
    """
    source = card_path(path)
    if not source.is_file():
        return {}
    try:
        card = read_json(source, ADVICE)
    except HistoryError as error:
        _warn(str(error))
        return {}
    card = sound_card(card, source)
    before = card.pop("before", None)
    if before is None or _main_hash(path, card) == card.get("sha256"):
        return card
    return sound_card(before, source)


def sound_card(card: Any, source: Path) -> dict[str, Any]:
    """A card without its damaged fields."""
    version = card.get("format") if isinstance(card, dict) else None
    if type(version) is not int or version < 1:
        _warn(f"{source}: not an lpot model card: {ADVICE}")
        return {}
    if version > FORMAT:
        _warn(
            f"{source}: the card was written by a newer version of lpot (format {version}, "
            f"this one is {FORMAT}): fields unknown to this version are ignored"
        )
    damaged = damaged_fields(_Shape, card)
    if damaged:
        _warn(f"{source}: the card's {', '.join(damaged)} can't be read and is ignored: {ADVICE}")
    return {key: value for key, value in card.items() if key not in damaged}


@lru_cache(maxsize=64)
def _warn(text: str) -> None:
    """Once: a model's card is read by the job and by its backend."""
    logger.warning("%s", text)


def recipe_of(card: Mapping[str, Any], path: Path) -> Recipe | None:
    """How the model was made; None, with a warning, where the card's words are not understood."""
    raw = card.get("recipe")
    if raw is None:
        return None
    try:
        return Recipe.from_json(raw)
    except (KeyError, TypeError, ValueError, IndexError, AttributeError) as error:
        _warn(f"{card_path(path)}: the recipe in the card can't be read ({error!r}): {ADVICE}")
        return None


def compare_card(card: Mapping[str, Any], path: Path, versions: Mapping[str, str]) -> list[str]:
    """What differs here from where the model was tuned; each is a sentence for the user."""
    if not card:
        return []
    found = []
    if card.get("sha256") and _main_hash(path, card) != card["sha256"]:
        found.append("the file is not the one its card describes (its hash differs)")
    if other := _other_cpu(card):
        found.append(f"it was tuned on {other}: accuracy and speed may differ, measure again")
    for name, version in (card.get("versions") or {}).items():
        if name in versions and versions[name] != version:
            found.append(f"it was tuned with {name} {version}, this is {versions[name]}")
    for text in found:
        logger.warning("%s: %s", path, text)
    return found


def _other_cpu(card: Mapping[str, Any]) -> str:
    """How the CPU of the card differs from this one; empty if it does not."""
    here = this_cpu()
    there = card.get("architecture") or here.architecture
    if there != here.architecture:
        return f"a CPU of another architecture ({there}, this one is {here.architecture})"
    known = card.get("cpu") or {}
    names = [name for name in KERNEL_FEATURES if name in known and known[name] != here.has(name)]
    return f"a CPU that differs in {', '.join(names)}" if names else ""


def is_whole(path: Path, card: Mapping[str, Any]) -> bool:
    """Is every piece of the model there, as its card has it?"""
    pieces = card.get("pieces") or ({path.name: card["sha256"]} if card.get("sha256") else {})
    folder = path if card.get("main") or path.is_dir() else path.parent
    try:
        return bool(pieces) and all(
            is_inside(name) and sha256(folder / name) == digest for name, digest in pieces.items()
        )
    except OSError:
        return False


def is_inside(name: str) -> bool:
    """A card is a foreign file: a piece's name must not lead out of the model's folder."""
    given = PurePosixPath(name)
    return not given.is_absolute() and ".." not in given.parts and "\0" not in name


def pieces_of(path: Path) -> dict[str, str]:
    """The hash of a file, or of every file in a folder, by name."""
    if path.is_file():
        return {path.name: sha256(path)}
    files = sorted(file for file in path.rglob("*") if file.is_file())
    return {file.relative_to(path).as_posix(): sha256(file) for file in files}


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with open_regular(path) as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def _main_hash(path: Path, card: Mapping[str, Any]) -> str | None:
    main = card.get("main") or ""
    place = path / main if main and is_inside(main) else path
    try:
        return sha256(place) if place.is_file() else None
    except OSError:
        return None
