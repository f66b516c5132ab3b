"""Pruned and trained models as they lie in a workspace, with their calibration statistics."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from lpot.core.backend import Backend
from lpot.core.compress.prunable import Prunable
from lpot.core.errors import HistoryError
from lpot.core.files.card import read_card
from lpot.core.files.journal import Fingerprint
from lpot.core.files.store import load_observations, save_observations
from lpot.core.model import Model
from lpot.core.numerics.observations import Observations


def folder_of(workspace: Path, word: str) -> Path:
    """
    >>> folder_of(Path("w"), "pruned 35%").name
    'pruned-35'
    """
    return workspace / word.replace(" ", "-").rstrip("%")


def keep_statistics(folder: Path, observed: Mapping[int, Observations]) -> None:
    save_observations(_statistics(folder), observed)


def origin_of(fingerprint: Fingerprint) -> str:
    """The run that a trained level belongs to, as its card has it."""
    told = json.dumps(dict(fingerprint), sort_keys=True)
    return hashlib.sha256(told.encode()).hexdigest()[:32]


def attach(backend: Backend, source: Model, workspace: Path, word: str, origin: str) -> None:
    """The pruned model of an earlier run, so that its recipes can be built again."""
    folder = folder_of(workspace, word)
    card = read_card(folder).get("pruning") if folder.is_dir() else None
    if not isinstance(backend, Prunable) or not isinstance(card, dict):
        raise HistoryError(
            f"{folder}: the pruned model of this trial is no longer there: run the job again"
        )
    if card.get("origin") != origin:
        raise HistoryError(f"{folder}: the pruned model there is that of another run")
    place = _statistics(folder)
    observed = load_observations(place) if place.is_file() else {}
    backend.keep_variant(source, word, backend.reopen(source, folder), observed)


def _statistics(folder: Path) -> Path:
    return folder.with_name(f"{folder.name}-observations.npz")
