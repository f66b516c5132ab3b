"""What has its name is on the disk: pieces are synced before the first of them is renamed."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from lpot.core.files.publish import drafting, publish


def test_pieces_are_synced_before_they_have_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    target, synced = tmp_path / "model.bin", []
    fsync = os.fsync

    def noted(number: int) -> None:
        name = Path(f"/proc/self/fd/{number}").resolve().name
        synced.append((name, target.exists()))
        fsync(number)

    backend = SimpleNamespace(name="toy", versions=dict)
    model: Any = SimpleNamespace(backend=backend, recipe=None, met=None, card={})
    with drafting(target) as draft:
        (draft / "model.bin").write_bytes(b"main")
        (draft / "weights.bin").write_bytes(b"data")
        monkeypatch.setattr(os, "fsync", noted)
        publish(model, draft, target, first=["weights.bin"])
    assert {("model.bin", False), ("weights.bin", False)} <= set(synced)
    assert target.read_bytes() == b"main" and (tmp_path / "weights.bin").read_bytes() == b"data"
