"""What all tests share."""

from __future__ import annotations

import gc
import os
import random
from itertools import groupby

import pytest
from hypothesis import settings

# Workers share the cores. With a thread pool of each framework in each of them, half of the time
# goes into pools that wait for each other. Run alone, everything has as many threads as ever.
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "LPOT_THREADS"):
        os.environ.setdefault(name, "1")

# Examples are never timed: on a busy machine, or an emulated CPU, a correct one takes seconds.
settings.register_profile("lpot", deadline=None)
settings.load_profile("lpot")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--shuffle", type=int, metavar="SEED", help="files, and tests in each, mixed")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """No test may need another one before it."""
    seed = config.getoption("--shuffle")
    if seed is None:
        return
    draw = random.Random(seed)
    files = [list(group) for _, group in groupby(items, key=lambda item: item.path)]
    draw.shuffle(files)
    for tests in files:
        draw.shuffle(tests)
    items[:] = [test for tests in files for test in tests]


def pytest_collection_finish(session: pytest.Session) -> None:
    """Modules stay until the end: no collection of garbage has to look through them again.

    With all frameworks imported that took 0.2 s for each tuning that gives its memory back.
    """
    gc.collect()
    gc.freeze()
