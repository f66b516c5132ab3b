"""`lpot.load`: open a saved model again, with its card."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

from lpot.backends import detect, get_backend, named_in
from lpot.core.errors import UnsupportedModel, a_kind
from lpot.core.files.card import read_card
from lpot.core.model import Model
from lpot.core.trust import trusting
from lpot.jobs.benchmark.plan import deployed
from lpot.jobs.storage.workspace import fetched
from lpot.version import VERSION

logger = logging.getLogger(__name__)

# What a card says of the file itself; the rest is what the tuning said of the model.
_OF_THE_FILE = ("format", "framework", "file", "sha256", "cpu", "versions", "recipe", "met")


def load(
    path: str | Path, framework: str | None = None, module: Any = None, trust: bool = False
) -> Model:
    """The model at `path`; warns when CPU or versions differ from those it was tuned on.

    Args:
        path: a saved model, or the workspace (or deploy.yaml) of a tuning: its best model.
        framework: read from the card or the file if omitted.
        module: the architecture, for PyTorch models other than those of transformers: a freshly
            made module is enough.
        trust: trust the model's file: allow ops that read or write files or call Python.

    `model.card` holds what the tuning recorded: name, seed, goal, accuracy, calibration.
    """
    if not isinstance(path, str | os.PathLike):
        raise UnsupportedModel(
            f"load opens saved models, and was given {a_kind(path)}: give the path of a "
            "file or folder. A model in memory needs no loading: lpot.tune takes it as it is"
        )
    place = fetched(Path(path) if isinstance(path, os.PathLike) else path)
    found = deployed(place)
    if found is not None:
        place = found.model
    card = read_card(place)
    backend = get_backend(framework or named_in(card) or detect(place))
    with trusting(trust):
        model = backend.restore(place) if module is None else backend.restore_into(place, module)
    model.card = {key: value for key, value in card.items() if key not in _OF_THE_FILE}
    if card.get("lpot") not in (None, VERSION):
        logger.warning("%s: it was tuned with lpot %s, this is %s", place, card["lpot"], VERSION)
    return model
