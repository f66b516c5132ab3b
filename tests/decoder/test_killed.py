"""A rounding killed in the middle of the layers goes on there, and comes to the same weights."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import onnx
import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

LAYERS = 24
CHILD = """
import sys
from pathlib import Path

import numpy as np

from lpot.backends.onnx.weight_only import WeightOnlyBackend
from lpot.backends.onnx.weight_only.guard import Guard
from lpot.core.space import restrict
from lpot.jobs.decoder.tokens import TokenWindows

Guard.allows = lambda *given: True
backend = WeightOnlyBackend()
model = backend.load(Path(sys.argv[1]))
backend.keep_in(Path(sys.argv[2]))
ids = np.random.default_rng(0).integers(3, 97, (6, 32))
windows = TokenWindows(ids).bind(model.inputs)
observations = backend.observe(model, [inputs for inputs, _ in windows], (0,))[0]
backend.build(model, restrict(backend.inspect(model), ()).default(), observations)
"""


def _start(model: Path, folder: Path) -> subprocess.Popen[bytes]:
    environment = {**os.environ, "LPOT_CACHE": str(folder.parent / "cache"), "LPOT_THREADS": "1"}
    line = [sys.executable, "-c", CHILD, str(model), str(folder)]
    return subprocess.Popen(line, env=environment, stderr=subprocess.PIPE)


def _files(folder: Path) -> dict[str, tuple[int, bytes]]:
    return {
        path.name: (path.stat().st_mtime_ns, path.read_bytes()) for path in folder.glob("*.npz")
    }


@pytest.mark.slow
def test_a_killed_rounding_goes_on_in_its_layer(tmp_path: Path) -> None:
    import torch
    import transformers

    from lpot.backends import export_decoder

    torch.manual_seed(0)
    sizes = {"vocab_size": 97, "hidden_size": 64, "intermediate_size": 96}
    heads = {"num_attention_heads": 4, "num_hidden_layers": LAYERS}
    config = transformers.LlamaConfig(**sizes, **heads, max_position_embeddings=128)
    model = export_decoder(transformers.LlamaForCausalLM(config).eval(), tmp_path / "fp32")
    killed, whole = tmp_path / "killed", tmp_path / "whole"
    child = _start(model, killed)
    nodes = onnx.load(model, load_external_data=False).graph.node
    products = sum(node.op_type == "MatMul" for node in nodes)
    while len(list(killed.glob("*.npz"))) < products * 20 // LAYERS:
        assert child.poll() is None, child.stderr.read().decode() if child.stderr else ""
        time.sleep(0.002)
    child.send_signal(signal.SIGKILL)
    child.wait()
    before = _files(killed)
    assert len(before) < products
    assert _start(model, killed).wait() == 0 and _start(model, whole).wait() == 0
    after, truth = _files(killed), _files(whole)
    assert set(after) == set(truth) and len(after) >= products
    readable = [name for name in before if after[name] == before[name]]
    assert len(readable) >= len(before) - 1  # the file in the making may be made again
    for name in truth:
        with np.load(killed / name) as one, np.load(whole / name) as other:
            assert one.files == other.files
            for part in one.files:
                np.testing.assert_array_equal(one[part], other[part])
