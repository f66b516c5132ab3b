"""Models made for one kind of CPU and run on the other: natively here, and on an emulated AVX2 CPU.

On a machine without VNNI both are of the same kind, and the same must hold.
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from avx2.nets import BACKENDS, INTEGER, MIXED, TARGETS, built
from lpot.core.cpu import this_cpu

pytestmark = pytest.mark.slow
ROOT = Path(__file__).parents[2]
PACKAGES = {
    "onnx": "onnxruntime",
    "pytorch": "torch",
    "tensorflow": "tensorflow",
    "mxnet": "mxnet",
}
# Two products of 16 bits, cut to one; MXNet takes off what it had shifted signed values by, too.
MOST_LOST = {"mxnet": 100}
LOSS = re.compile(r"the worst case loses (\d+)% of the result")


@dataclass(frozen=True)
class Journey:
    """What models gave where they were built, and what an emulated process told of them."""

    framework: str
    folder: Path
    here: dict[str, list[np.ndarray]]
    warned_here: dict[str, list[str]]
    kind: str
    warned_there: dict[str, list[str]]

    def there(self, name: str) -> list[np.ndarray]:
        with np.load(self.folder / f"{name}.out.npz") as arrays:
            return list(arrays.values())


@pytest.fixture(scope="session")
def emulated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter on the emulated CPU."""
    if "avx2" in sys.prefix:
        pytest.skip("this process is emulated already")
    folder = tmp_path_factory.mktemp("avx2")
    program = [sys.executable, str(ROOT / "tools" / "emulate.py"), str(folder)]
    done = subprocess.run(program, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(done.stderr.strip())
    return Path(done.stdout.strip())


@pytest.fixture(scope="module", params=BACKENDS)
def journey(
    request: pytest.FixtureRequest, emulated: Path, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Journey]:
    """Built and saved here, opened there; one emulated process a framework."""
    framework: str = request.param
    pytest.importorskip(PACKAGES[framework])
    folder = tmp_path_factory.mktemp(framework)
    here: dict[str, list[np.ndarray]] = {}
    for name in (INTEGER, MIXED):
        for target in TARGETS:
            model, batches = built(framework, name, target)
            place = folder / f"{name}-{target}" / getattr(model.backend, "best_name", "model")
            model.backend.save(model, place)
            outputs = [out for batch in batches for out in model.backend.run(model, batch)]
            here[f"{name}-{target}"] = [np.asarray(out) for out in outputs]
    warned_here = _visited(Path(sys.executable), framework, folder)["warnings"]
    found = _visited(emulated, framework, folder)
    yield Journey(framework, folder, here, warned_here, found["kind"], found["warnings"])


def _visited(python: Path, framework: str, folder: Path) -> dict[str, Any]:
    path = os.pathsep.join((str(ROOT / "tests"), str(ROOT / "src")))
    program = [str(python), str(Path(__file__).with_name("visit.py")), framework, str(folder)]
    done = subprocess.run(
        program, env={**os.environ, "PYTHONPATH": path}, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def test_a_model_for_avx2_gives_the_same_there(journey: Journey) -> None:
    assert journey.kind == "avx2"
    for one, other in zip(
        journey.here[f"{INTEGER}-avx2"], journey.there(f"{INTEGER}-avx2"), strict=True
    ):
        np.testing.assert_array_equal(one, other)  # integers from the first op to the last
    for one, other in zip(
        journey.here[f"{MIXED}-avx2"], journey.there(f"{MIXED}-avx2"), strict=True
    ):  # the last bits of softmax and GELU are the CPU's own, and may move a code
        np.testing.assert_allclose(one, other, rtol=0, atol=0.02 * np.abs(one).max())


@pytest.mark.parametrize("name", [INTEGER, MIXED])
def test_a_model_for_vnni_is_told_where_it_overflows(journey: Journey, name: str) -> None:
    (told,) = (text for text in journey.warned_there[f"{name}-vnni"] if "overflow" in text)
    loss = LOSS.search(told)
    assert loss is not None and 10 <= int(loss[1]) <= MOST_LOST.get(journey.framework, 60)
    assert "`target: avx2`" in told
    assert not any("overflow" in text for text in journey.warned_there[f"{name}-avx2"])


@pytest.mark.parametrize("name", [INTEGER, MIXED])
def test_a_cpu_of_the_other_kind_is_named(journey: Journey, name: str) -> None:
    other = this_cpu().kind != journey.kind
    for target in TARGETS:
        told = any("CPU that differs" in text for text in journey.warned_there[f"{name}-{target}"])
        assert told is other


@pytest.mark.parametrize("name", [INTEGER, MIXED])
def test_here_it_is_told_only_if_the_self_test_says_so(journey: Journey, name: str) -> None:
    has_vnni = this_cpu().kind in ("vnni", "amx")
    told = [text for text in journey.warned_here[f"{name}-vnni"] if "overflow" in text]
    assert bool(told) is not has_vnni
    assert journey.warned_here[f"{name}-avx2"] == []
