"""The JSON card beside every saved model: how it was made, on what, and what to compare at load."""

from __future__ import annotations

import hashlib
import json
import logging
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lpot.core.cpu import this_cpu
from lpot.core.errors import HistoryError
from lpot.core.model import Model
from lpot.core.recipe import Recipe

logger = logging.getLogger(__name__)

FORMAT = 1
# Features that decide which integer kernels run, and so the last bits of a result.
KERNEL_FEATURES = ("avx2", "avx512f", "avx512_vnni", "avx_vnni", "amx_int8")


def card_path(path: Path) -> Path:
    return path.with_name(f"{path.name}.card.json")


def write_card(model: Model, path: Path) -> Path:
    """Describe the file just written at `path`."""
    card: dict[str, Any] = {
        "format": FORMAT,
        "framework": model.backend.name,
        "file": path.name,
        "sha256": sha256(path) if path.is_file() else None,
        "cpu": {name: this_cpu().has(name) for name in KERNEL_FEATURES},
        "versions": model.backend.versions(),
        "recipe": None if model.recipe is None else model.recipe.to_json(),
        "met": model.met,
        **model.card,
    }
    target = card_path(path)
    write_text(target, json.dumps(card, indent=1, ensure_ascii=False) + "\n")
    return target


def read_card(path: Path) -> dict[str, Any]:
    """The card of a saved model; empty when there is none."""
    source = card_path(path)
    if not source.is_file():
        return {}
    try:
        card = json.loads(source.read_text("utf-8"))
    except ValueError as error:
        raise HistoryError(f"{source}: the card is not valid JSON ({error})") from error
    if not isinstance(card, dict) or card.get("format") != FORMAT:
        raise HistoryError(f"{source}: written by another version of lpot, or not a card")
    return card


def recipe_of(card: Mapping[str, Any], path: Path) -> Recipe | None:
    raw = card.get("recipe")
    if raw is None:
        return None
    try:
        return Recipe.from_json(raw)
    except (KeyError, TypeError, ValueError, IndexError) as error:
        raise HistoryError(
            f"{card_path(path)}: the recipe in the card is damaged ({error!r})"
        ) from error


def compare_card(card: Mapping[str, Any], path: Path, versions: Mapping[str, str]) -> list[str]:
    """What differs here from where the model was tuned; each is a sentence for the user."""
    if not card:
        return []
    found = []
    if card.get("sha256") and path.is_file() and sha256(path) != card["sha256"]:
        found.append("the file is not the one its card describes (its hash differs)")
    cpu = card.get("cpu", {})
    differing = [
        name for name in KERNEL_FEATURES if name in cpu and cpu[name] != this_cpu().has(name)
    ]
    if differing:
        found.append(
            f"it was tuned on a CPU that differs in {', '.join(differing)}: "
            "accuracy and speed may differ, measure again"
        )
    for name, version in card.get("versions", {}).items():
        if name in versions and versions[name] != version:
            found.append(f"it was tuned with {name} {version}, here is {versions[name]}")
    for text in found:
        logger.warning("%s: %s", path, text)
    return found


def sha256(path: Path) -> str:
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        while block := stream.read(1 << 20):
            digest.update(block)
    return digest.hexdigest()


def write_text(path: Path, text: str) -> None:
    """Whole or not at all: written beside, synced, then renamed over."""
    beside = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    with beside.open("w", encoding="utf-8") as stream:
        stream.write(text)
        stream.flush()
        os.fsync(stream.fileno())
    beside.replace(path)
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """A new or renamed file is safe from a power cut only when its folder is synced, too."""
    if os.name != "posix":
        return
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
