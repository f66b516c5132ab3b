"""How tests wait for other processes: by what these do, never by how long it should take."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any

# Seconds after which something is broken, however busy the machine is.
PATIENCE = 300.0


def wait_until(condition: Callable[[], Any], process: subprocess.Popen[Any] | None = None) -> Any:
    """What the condition comes to; `process` is the one that should bring it about."""
    end = time.monotonic() + PATIENCE
    while not (found := condition()):
        assert process is None or process.poll() is None, process.communicate()
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.01)
    return found
