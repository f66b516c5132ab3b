"""ResNet-20 with its ranges torn apart, on every backend: the floor is two evaluations."""

from __future__ import annotations

import math
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lpot.core.results.result import Result
from lpot.jobs.tune.api import tune

DATA = Path(os.environ.get("LPOT_DATA") or Path(__file__).parents[3] / "shared" / "data")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not (DATA / "race").is_dir(), reason="LPOT_DATA has no race"),
]


def images() -> tuple[np.ndarray, np.ndarray]:
    with np.load(DATA / "cifar10_keras_cnn" / "cifar10_test2000.npz") as arrays:
        x, labels = arrays["x"].astype(np.float32), arrays["y"].reshape(-1)
    mean, spread = np.array([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]], np.float32) * 255
    return (x - mean) / spread, labels


def batches(turned: bool) -> list[tuple[np.ndarray, np.ndarray]]:
    x, labels = images()
    x = np.ascontiguousarray(x.transpose(0, 3, 1, 2)) if turned else x
    return [(x[at : at + 100], labels[at : at + 100]) for at in range(0, len(x), 100)]


def search(model: Any, turned: bool, folder: Path, **options: Any) -> Result:
    data = batches(turned)
    return tune(
        model,
        calib=[(batch[:50],) for batch, _ in data[:4]],
        eval_loader=data,
        metric={"topk": 1},
        goal=0.01,
        workspace=folder,
        measure_speed=False,
        **options,
    )


def check(result: Result) -> None:
    assert result.met and result.evaluations <= 3
    assert result.float_ops == ()
    assert result.interval is not None


def test_onnx(tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    check(search(str(DATA / "race" / "resnet20_hard.onnx"), True, tmp_path))


def test_torch(tmp_path: Path) -> None:
    torch = pytest.importorskip("torch")
    from backends.torch.test_torch_real import ResNet20

    module = ResNet20()
    module.load_state_dict(torch.load(DATA / "race" / "resnet20_hard.pt", weights_only=True))
    check(search(module, True, tmp_path))


def torn_stream(seed: int) -> Any:
    """The easy twin with its residual stream torn, shortcuts with zeros included."""
    torch = pytest.importorskip("torch")
    from backends.torch.test_torch_real import ResNet20

    net: Any = ResNet20()
    net.load_state_dict(torch.load(DATA / "race" / "resnet20.pt", weights_only=True))
    rng = np.random.default_rng(seed)

    def factors(count: int) -> Any:
        return torch.from_numpy(np.exp(rng.uniform(-3, 3, count)).astype(np.float32))

    with torch.no_grad():
        stream = factors(16)
        net.stem.weight *= stream.reshape(-1, 1, 1, 1)
        net.stem.bias *= stream
        for block in net.blocks:
            block.conv1.weight /= stream.reshape(1, -1, 1, 1)
            wider = factors(block.conv2.out_channels)
            if block.pad:
                wider[block.pad : -block.pad] = stream
            stream = wider if block.pad else stream
            block.conv2.weight *= stream.reshape(-1, 1, 1, 1)
            block.conv2.bias *= stream
        net.fc.weight /= stream
    return net.eval()


@pytest.mark.parametrize("seed", [0, 1])
def test_a_torn_stream_is_mended_on_onnx(seed: int, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    net = torn_stream(seed)
    import torch

    path = tmp_path / "net.onnx"
    example = (torch.zeros(2, 3, 32, 32),)
    axes = {"x": {0: "n"}}
    torch.onnx.export(net, example, str(path), input_names=["x"], dynamic_axes=axes, dynamo=False)
    check(search(str(path), True, tmp_path / "run"))


def test_the_readers_of_a_torn_stream_are_named_on_torch(tmp_path: Path) -> None:
    result = search(torn_stream(1), True, tmp_path)
    assert result.met and result.evaluations <= 2 + math.ceil(math.log2(20))
    assert all(name.endswith("conv1") or name == "fc" for name in result.float_ops)


def test_tensorflow(tmp_path: Path) -> None:
    pytest.importorskip("tensorflow")
    check(search(str(DATA / "race" / "resnet20_hard.pb"), False, tmp_path))
