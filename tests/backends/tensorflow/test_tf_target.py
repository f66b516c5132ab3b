"""Models built for another CPU: `avx2` is right on every one, `vnni` is told where it is not."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("tensorflow")

from backends.tensorflow.nets import block, cnn, images, rows
from lpot.backends.tensorflow import TensorflowBackend
from lpot.backends.tensorflow.abilities import weight_bits
from lpot.backends.tensorflow.model import TensorflowModel
from lpot.backends.tensorflow.runtime import GraphDef
from lpot.backends.tensorflow.saturation import FUSED, saturates, worst_error
from lpot.core.backend import Target
from lpot.core.space import restrict

BACKEND = TensorflowBackend()
NETS = {"cnn": (cnn(), images(2)), "block": (block(), rows(2))}
CHILD = """
import os, sys
os.environ.update(TF_CPP_MIN_LOG_LEVEL="3", TF_ENABLE_ONEDNN_OPTS="1")
import numpy as np
import tensorflow as tf
v1 = tf.compat.v1
for path in sys.argv[1:]:
    graph_def = v1.GraphDef.FromString(open(path, "rb").read())
    with tf.Graph().as_default() as graph, v1.Session(graph=graph) as session:
        tf.graph_util.import_graph_def(graph_def, name="")
        name = "logits:0" if "cnn" in path else "y:0"
        np.save(path + ".there.npy", session.run(name, {"x:0": np.load(path + ".x.npy")}))
"""


def built(graph_def: GraphDef, batches: list[tuple[np.ndarray]], target: Target) -> TensorflowModel:
    model = BACKEND.load(graph_def)
    recipe = restrict(BACKEND.inspect(model, target=target), ()).default()
    return BACKEND.build(model, recipe, BACKEND.observe(model, batches, (0,))[0])


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("target", ["vnni", "avx2"])
def test_the_wrong_cpu_is_told_with_what_was_measured(
    name: str, target: Target, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    saved = built(*NETS[name], target).save(tmp_path / "net.pb")
    caplog.set_level(logging.WARNING)
    BACKEND.restore(Path(saved))
    wrong = target == "vnni" and saturates("MatMul")
    assert ("all 8 bits, for a CPU with VNNI" in caplog.text) == wrong
    assert (f"loses {worst_error('MatMul'):.0%}" in caplog.text) == wrong


@pytest.mark.parametrize("kind", FUSED)
def test_seven_bits_are_chosen_where_eight_overflow(kind: str) -> None:
    assert weight_bits(kind, "this") == (7 if saturates(kind) else 8)
    assert weight_bits(kind, "vnni") == 8
    assert weight_bits(kind, "avx2") == (8 if kind == "DepthwiseConv2dNative" else 7)


@pytest.mark.slow
def test_a_model_for_avx2_gives_the_same_under_emulation(tmp_path: Path) -> None:
    emulator = shutil.which("qemu-x86_64")
    assert emulator is not None, "the package qemu-user has the emulator: apt install qemu-user"
    paths = []
    for name, (graph_def, batches) in NETS.items():
        model = built(graph_def, batches, "avx2")
        paths.append(tmp_path / f"{name}.pb")
        model.save(paths[-1])
        np.save(f"{paths[-1]}.x.npy", batches[0][0])
        np.save(f"{paths[-1]}.here.npy", BACKEND.run(model, batches[0])[0])
    command = [emulator, "-cpu", "max", sys.executable, "-c", CHILD, *map(str, paths)]
    done = subprocess.run(command, env=dict(os.environ), capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    for path in paths:
        here, there = np.load(f"{path}.here.npy"), np.load(f"{path}.there.npy")
        if path.stem == "cnn":  # integers from the first op to the last
            np.testing.assert_array_equal(there, here)
        else:  # softmax and GELU are floats, whose last bits are the CPU's
            np.testing.assert_allclose(there, here, rtol=0, atol=0.01 * np.abs(here).max())
