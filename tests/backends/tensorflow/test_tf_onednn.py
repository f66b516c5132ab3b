"""A saved graph gives the same on every setting of oneDNN, and on CPUs that it was built for."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from backends.tensorflow.nets import cnn, images
from lpot.backends.tensorflow import TensorflowBackend, runtime
from lpot.backends.tensorflow.model import TensorflowModel
from lpot.backends.tensorflow.runtime import SWITCH, switch_onednn
from lpot.core.backend import Target
from lpot.core.space import restrict

BACKEND = TensorflowBackend()
CHILD = """
import os, sys
os.environ["TF_CPP_MIN_LOG_LEVEL"] = "3"
import numpy as np
import tensorflow as tf
v1 = tf.compat.v1
path, data, out = sys.argv[1:]
graph_def = v1.GraphDef.FromString(open(path, "rb").read())
with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
    tf.graph_util.import_graph_def(graph_def, name="")
    np.save(out, session.run("logits:0", {"x:0": np.load(data)}))
"""


def built(target: Target) -> TensorflowModel:
    model = BACKEND.load(cnn())
    recipe = restrict(BACKEND.inspect(model, target=target), ()).default()
    return BACKEND.build(model, recipe, BACKEND.observe(model, images(2), (0,))[0])


def elsewhere(folder: Path, **environment: str) -> np.ndarray:
    """The saved graph's output from a process without lpot, under these settings."""
    files = [str(folder / name) for name in ("net.pb", "x.npy", "y.npy")]
    names = {"TF_ENABLE_ONEDNN_OPTS", "ONEDNN_MAX_CPU_ISA"}
    kept = {key: value for key, value in os.environ.items() if key not in names}
    command = [sys.executable, "-c", CHILD, *files]
    done = subprocess.run(command, env={**kept, **environment}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return np.load(files[2])


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    np.save(tmp_path / "x.npy", images(1)[0][0])
    return tmp_path


def test_the_switch_changes_nothing(folder: Path) -> None:
    model = built("this")
    model.save(folder / "net.pb")
    (here,) = BACKEND.run(model, images(1)[0])
    np.testing.assert_array_equal(elsewhere(folder, TF_ENABLE_ONEDNN_OPTS="0"), here)


@pytest.mark.slow
def test_seven_bits_are_the_same_with_and_without_vnni(folder: Path) -> None:
    model = built("avx2")
    model.save(folder / "net.pb")
    (here,) = BACKEND.run(model, images(1)[0])
    for switch in ("0", "1"):
        found = elsewhere(folder, TF_ENABLE_ONEDNN_OPTS=switch, ONEDNN_MAX_CPU_ISA="AVX2")
        np.testing.assert_array_equal(found, here)


@pytest.mark.slow
def test_the_self_test_sees_a_cpu_without_vnni() -> None:
    code = "from lpot.backends.tensorflow.saturation import saturates; print(saturates())"
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX2", "TF_CPP_MIN_LOG_LEVEL": "3"}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True
    )
    assert done.stdout.strip() == "True"


@pytest.mark.parametrize(
    ("imported", "is_on", "value", "after", "words"),
    [
        (False, False, None, "1", ""),
        (False, False, "1", "1", ""),
        (False, False, "0", "0", "oneDNN is off"),
        (True, False, None, None, "imported before"),
        (True, True, None, None, ""),
    ],
)
def test_the_switch_is_set_in_time_or_the_user_is_told(
    imported: bool,
    is_on: bool,
    value: str | None,
    after: str | None,
    words: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.delenv(SWITCH, raising=False)
    if value is not None:
        monkeypatch.setenv(SWITCH, value)
    if not imported:
        monkeypatch.delitem(sys.modules, "tensorflow")
    monkeypatch.setattr(runtime, "has_onednn", lambda: is_on)
    switch_onednn()
    assert os.environ.get(SWITCH) == after
    assert words in caplog.text
    assert bool(words) == bool(caplog.text)


def test_who_imports_lpot_first_is_not_warned() -> None:
    code = (
        "import lpot, tensorflow, logging; logging.basicConfig(); "
        "from lpot.backends.tensorflow.runtime import has_onednn; print(has_onednn())"
    )
    environment = {key: value for key, value in os.environ.items() if key != SWITCH}
    command = [sys.executable, "-c", code]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.stdout.strip() == "True" and "imported before" not in done.stderr
