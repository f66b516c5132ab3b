"""What all tests share."""

from __future__ import annotations

import gc
import importlib
import os
import random
import sys
from functools import partial
from itertools import groupby
from typing import Any

import pytest
from hypothesis import settings

# Workers share the cores. With a thread pool of each framework in each of them, half of the time
# goes into pools that wait for each other. Run alone, everything has as many threads as ever.
if "PYTEST_XDIST_WORKER" in os.environ:
    for name in ("OMP_NUM_THREADS", "TF_NUM_INTRAOP_THREADS", "LPOT_THREADS"):
        os.environ.setdefault(name, "1")

# Hundreds of processes are started here: each would compile what it imports once more.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False

# After what NumPy and children look at.
from lpot.core.results.benchmark import Settings  # noqa: E402

# Quick tests never judge speed: that it is measured can be seen in a moment. Once a package is
# imported, our module that times is changed so.
MOMENTS: dict[tuple[str, str], dict[str, Any]] = {
    ("lpot", "jobs.finish.speed"): {
        "SETTINGS": Settings(seconds=0.15),
        "PROFILE_SECONDS": 0.1,
        "RIVALS": False,
    },
    ("lpot", "jobs.benchmark.plan"): {"Settings": partial(Settings, seconds=0.3)},
    ("lpot", "jobs.benchmark.order"): {"Settings": partial(Settings, seconds=0.3)},
    ("lpot", "jobs.benchmark.quick_look"): {"SECONDS": 0.02},
    # Evaluations of tests are often a constant; those of `test_sense.py` are not let off.
    ("lpot", "jobs.tune.sense"): {"BLIND": False},
    ("lpot", "jobs.decoder.job"): {"SECONDS": 0.02, "TURN": 0.02},
    ("onnxruntime", "backends.onnx.weight_only.guard"): {
        "SECONDS": 0.001,
        "ROUNDS": 1,
        "MOST_COPIES": 4,
    },
    ("torch", "backends.torch.weight_only.kernels"): {"SECONDS": 0.005},
}
FULL: dict[str, dict[str, Any]] = {}  # as they were
FSYNC = os.fsync

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


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    slow = item.get_closest_marker("slow") is not None
    for (package, name), moment in MOMENTS.items():
        if package in sys.modules:
            values = vars(importlib.import_module(f"lpot.{name}"))
            full = FULL.setdefault(name, {key: values[key] for key in moment})
            values.update(full if slow else moment)
    # Hundreds of tunings, none of which must outlive a power cut.
    os.fsync = FSYNC if slow else lambda handle: None


@pytest.fixture(autouse=True, scope="session")
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Times of ops are those of these tests, not of the user's earlier tunings."""
    os.environ.setdefault("LPOT_CACHE", str(tmp_path_factory.mktemp("cache")))


def pytest_collection_finish(session: pytest.Session) -> None:
    """Modules stay until the end: no collection of garbage has to look through them again.

    With all frameworks imported that took 0.2 s for each tuning that gives its memory back.
    """
    gc.collect()
    gc.freeze()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish() -> None:
    """A worker writes what `make coverage` counts while the others still wait for it.

    At its exit it has ten seconds, in which frameworks are taken down as well. Then pytest-xdist
    kills it, in the middle of the file.
    """
    if "PYTEST_XDIST_WORKER" in os.environ and "coverage" in sys.modules:
        counting = sys.modules["coverage"].Coverage.current()
        if counting is not None:
            counting.stop()
            counting.save()
