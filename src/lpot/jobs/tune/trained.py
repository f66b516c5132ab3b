"""The outcome of a training, as it lies in a workspace."""

from __future__ import annotations

from pathlib import Path

from lpot.core.backend import Backend, Trainable
from lpot.core.errors import HistoryError
from lpot.core.files.card import read_card
from lpot.core.model import Model

FOLDER = "trained"  # the FP32 model as training left it


def trained_model(backend: Backend, source: Model, workspace: Path, stamp: str) -> Model:
    """The trained model that a history's trials were made from."""
    card = read_card(workspace / FOLDER).get("training")
    if not isinstance(card, dict) or card.get("stamp") != stamp:
        raise HistoryError(
            f"{workspace / FOLDER}: the trained weights of this history no longer exist"
        )
    if not isinstance(backend, Trainable):
        raise HistoryError(f"{workspace / FOLDER}: backend {backend.name} can't train")
    found: Model = backend.resume_training(source, workspace / FOLDER)
    return found


def known_stamp(workspace: Path, origin: str) -> str | None:
    """The name of what an earlier training of the same origin left; None when there is none."""
    try:
        card = read_card(workspace / FOLDER).get("training")
    except HistoryError:
        return None
    known = isinstance(card, dict) and card.get("origin") == origin
    return str(card.get("stamp")) if known and card is not None else None
