"""Times are measured once and kept; a table that can't be kept is no fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from lpot.core.files.timetable import Timetable


def test_measured_once_and_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LPOT_CACHE", str(tmp_path / "new"))
    table = Timetable.of_this_machine({"runtime": "1"})
    assert table.seconds("conv", lambda: 0.5) == 0.5
    table.save()
    again = Timetable.of_this_machine({"runtime": "1"})
    assert again.seconds("conv", lambda: 0.9) == 0.5
    other = Timetable.of_this_machine({"runtime": "2"})
    assert other.seconds("conv", lambda: 0.9) == 0.9


@pytest.mark.parametrize("text", ["", "not json", "[1, 2]", '{"conv": "fast"}'])
def test_a_damaged_table_is_begun_anew(tmp_path: Path, text: str) -> None:
    path = tmp_path / "times.json"
    path.write_text(text)
    assert Timetable(path).seconds("conv", lambda: 0.5) == 0.5


def test_a_folder_that_can_not_be_written(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    table = Timetable(blocked / "below" / "times.json")
    assert table.seconds("conv", lambda: 0.5) == 0.5
    table.save()
