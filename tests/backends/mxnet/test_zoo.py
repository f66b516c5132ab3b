"""The families of Gluon's model zoo: tuned at first try, and read back in a fresh process."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("mxnet")

import mxnet as mx

import lpot
from lpot.backends import get_backend
from lpot.core.recipe import Recipe

# Family → size of its images.
FAMILIES = {
    "resnet18_v1": 64,
    "resnet18_v2": 64,
    "mobilenet0.25": 64,
    "mobilenetv2_0.25": 64,
    "squeezenet1.1": 224,
    "densenet121": 224,
    "alexnet": 224,
    "vgg11": 64,
    "vgg11_bn": 64,
    "inceptionv3": 299,
}
QUICK = ("mobilenet0.25", "resnet18_v2")
# Stock MXNet alone: what lpot wrote is a symbol and its parameters.
CHILD = """
import json, sys
import mxnet as mx, numpy as np
prefix, data, out = sys.argv[1:]
symbol, args, auxs = mx.model.load_checkpoint(prefix, 0)
x = mx.nd.array(np.load(data))
names = [n for n in symbol.list_inputs() if n not in args and n not in auxs]
block = mx.gluon.SymbolBlock(symbol, [mx.sym.var(n) for n in names])
own = block.collect_params()
for name, value in {**args, **auxs}.items():
    if name in own:
        # Weights of 7 bits, for CPUs without VNNI, are stored as integers.
        own[name]._load_init(value, mx.cpu(), cast_dtype=True, dtype_source="saved")
np.save(out, block(x).asnumpy())
assert "lpot" not in sys.modules
print(json.dumps(names))
"""


def net(name: str) -> Any:
    mx.random.seed(3)
    made = mx.gluon.model_zoo.vision.get_model(name, classes=10)
    made.initialize(mx.init.Xavier(magnitude=2.0))
    return made


def tuned(name: str, folder: Path) -> Any:
    random = np.random.default_rng(5)
    size = FAMILIES[name]
    data = [random.normal(size=(2, 3, size, size)).astype(np.float32) for _ in range(2)]
    model = net(name)
    model(mx.nd.array(data[0]))
    result = lpot.tune(model, data, workspace=folder, measure_speed=False)
    assert result.precisions["int8"] > 0, result.precisions
    found = result.model(data[0])[0]
    assert np.isfinite(found).all()
    np.save(folder / "x.npy", data[0])
    prefix = str(result.path).removesuffix("-symbol.json")
    command = [sys.executable, "-c", CHILD, prefix, str(folder / "x.npy"), str(folder / "y.npy")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    assert json.loads(done.stdout.splitlines()[-1])
    np.testing.assert_array_equal(np.load(folder / "y.npy"), found)
    return result


def test_running_the_fp32_model_leaves_the_int8_one_as_it_is() -> None:
    backend = get_backend("mxnet")
    data = np.random.default_rng(5).normal(size=(2, 3, 64, 64)).astype(np.float32)
    block = net("mobilenetv2_0.25")
    block(mx.nd.array(data))
    model = backend.load(block)
    seen = backend.observe(model, [[data]])[0]
    able = {key: op.choices[0] for key, op in backend.inspect(model).ops.items() if op.can_be_low}
    low = backend.build(model, Recipe(able), seen)
    before = backend.run(low, [data])[0]
    assert before.any()
    backend.run(model, [data])
    np.testing.assert_array_equal(backend.run(low, [data])[0], before)


@pytest.mark.parametrize("name", QUICK)
def test_a_family_that_is_quick(name: str, tmp_path: Path) -> None:
    tuned(name, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in FAMILIES if name not in QUICK])
def test_a_family(name: str, tmp_path: Path) -> None:
    tuned(name, tmp_path)
