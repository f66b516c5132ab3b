"""kill -9 at any moment: the rerun ends as an undisturbed run does; one trial at most is lost."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

DRIVER = Path(__file__).with_name("crash_driver.py")


def test_killed_at_any_moment(tmp_path: Path, environment: Any) -> None:
    """Twenty random moments, every single write, and one workspace killed six times."""
    done = subprocess.run(
        [sys.executable, str(DRIVER), str(tmp_path), "20"],
        env=environment(),
        capture_output=True,
        text=True,
        timeout=3000,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    assert len(found["moments"]) == 20
    # The kills really fell all over the run.
    assert len(set(found["moments"])) > 2, found
    assert set(found["writes"]) == {0, 1, 2, 3}, found
