"""Putting a saved model in place: at every moment there is one whole model, old or new.

Renaming one file is all that a disk does at once. So every form of a model has one main file that
holds all it needs, or names the other files it needs by names that no other model uses: renaming
it over the old one is the moment at which the new model is the one. The card, which describes
both for that moment, comes before; what only people and older tools read comes after.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from lpot.core.errors import HistoryError
from lpot.core.files.card import card_path, is_inside, make_card, put_card, read_card, sha256
from lpot.core.files.draft import draft_folder, sync_folder
from lpot.core.model import Model


@contextlib.contextmanager
def drafting(path: Path, folder: bool = False) -> Iterator[Path]:
    """Where to write the pieces of a model that will lie at `path`, on the same disk.

    `folder`: the model is a folder, which is made if it is missing.
    """
    place = path if folder else path.parent
    place.mkdir(parents=True, exist_ok=True)
    with draft_folder(place) as draft:
        yield draft


def publish(
    model: Model, draft: Path, path: Path, main: str = "", first: Iterable[str] = ()
) -> None:
    """Move the pieces in `draft` to where the model at `path` has them, and write its card.

    `main`: the file inside of the folder `path` that makes the model; `path` itself if empty.
    `first`: pieces that the main file needs, which must have names that the old one does not use.
    """
    folder = path if main else path.parent
    chief = main or path.name
    names = sorted(piece.relative_to(draft).as_posix() for piece in draft.rglob("*"))
    files = [name for name in names if (draft / name).is_file()]
    _settle(draft, files)
    old = _old_card(path)
    new = make_card(model, path, main, {name: sha256(draft / name) for name in files})
    put_card(path, {**new, "before": old})
    for name in names:
        if (draft / name).is_dir():
            (folder / name).mkdir(exist_ok=True)
    needed = list(first)
    for name in (*needed, chief, *(name for name in files if name not in (*needed, chief))):
        (draft / name).replace(folder / name)
    sync_folder(folder)
    put_card(path, new)
    for name, digest in ((old or {}).get("pieces") or {}).items():
        if name not in files and is_inside(name):
            with contextlib.suppress(OSError):
                if sha256(folder / name) == digest:  # else the user's, whatever the card says
                    (folder / name).unlink()


def _old_card(path: Path) -> dict[str, Any] | None:
    """Of the model that is there; None where there is none, or one without a card."""
    if not path.exists() or not card_path(path).is_file():
        return None
    try:
        return read_card(path) or None
    except HistoryError:
        return None


def _settle(draft: Path, files: Iterable[str]) -> None:
    """Readable for whom the user's own files are, and on the disk before they have a name."""
    probe = draft / ".mode"
    probe.touch()
    mode = probe.stat().st_mode & 0o777 | 0o600
    probe.unlink()
    for name in files:
        (draft / name).chmod(mode)
        with (draft / name).open("rb") as stream:
            os.fsync(stream.fileno())
