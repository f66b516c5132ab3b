"""A folder as it is before and after every rename: all that a kill can leave behind."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest


def snapshots(
    folder: Path, work: Callable[[], Any], monkeypatch: pytest.MonkeyPatch, into: Path
) -> list[Path]:
    """Copies of `folder`, taken while `work` changes it."""
    taken: list[Path] = []
    real = os.replace

    def take() -> None:
        copy = into / f"moment{len(taken)}"
        shutil.copytree(folder, copy, symlinks=True)
        taken.append(copy)

    def watched(source: Any, target: Any, **more: Any) -> None:
        take()
        real(source, target, **more)
        take()

    with monkeypatch.context() as patch:
        patch.setattr(os, "replace", watched)
        work()
    take()
    return taken
