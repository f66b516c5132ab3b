"""`lpot.load`: open a saved model again, with its card."""

from __future__ import annotations

from pathlib import Path

from lpot.backends import detect, get_backend
from lpot.core.card import read_card
from lpot.core.model import Model


def load(path: str | Path, framework: str | None = None) -> Model:
    """The model at `path`; warns when CPU or versions differ from those it was tuned on."""
    place = Path(path)
    card = read_card(place)
    backend = get_backend(framework or card.get("framework") or detect(place))
    return backend.restore(place)
