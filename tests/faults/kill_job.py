"""One small tuning in each framework, whose scores depend on the model's outputs alone."""

from __future__ import annotations

import hashlib
import time
from pathlib import Path
from typing import Any

import numpy as np

import lpot

PAUSE = [0.0]  # seconds of an evaluation
WIDTH = 8
BEST = {
    "onnx": "best_model.onnx",
    "pytorch": "checkpoint",
    "tensorflow": "best_model.pb",
}


def data() -> list[np.ndarray]:
    draw = np.random.default_rng(7)
    return [draw.standard_normal((4, WIDTH)).astype(np.float32) for _ in range(2)]


def weights() -> list[np.ndarray]:
    draw = np.random.default_rng(3)
    return [draw.standard_normal((WIDTH, WIDTH)).astype(np.float32) for _ in range(3)]


def score(outputs: np.ndarray, is_low: bool) -> float:
    time.sleep(PAUSE[0])
    digest = hashlib.sha256(np.ascontiguousarray(outputs).tobytes()).hexdigest()
    return int(digest[:12], 16) / 16**12 if is_low else 2.0


# -- the model and its judge in each framework -----------------------------------------------------


def onnx_model(root: Path) -> Any:
    import onnx

    import onnx_models

    path = root / "fp32.onnx"
    if not path.exists():
        onnx.save(onnx_models.mlp(layers=3, width=WIDTH), path)
    return str(path)


def onnx_judge(model: Any) -> float:
    import onnx_models

    is_low = any("Quantize" in node.op_type for node in model.graph.node)
    name = model.graph.input[0].name
    return score(onnx_models.run(model, {name: data()[0]})[0], is_low)


def pytorch_model(root: Path) -> Any:
    import torch

    torch.set_num_threads(1)
    layers: list[Any] = []
    for weight in weights():
        layer = torch.nn.Linear(WIDTH, WIDTH)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight))
            layer.bias.zero_()
        layers += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*layers)


def pytorch_judge(model: Any) -> float:
    import torch

    is_low = any(hasattr(module, "facts") for module in model.modules())
    with torch.inference_mode():
        return score(model(torch.from_numpy(data()[0])).numpy(), is_low)


def tensorflow_model(root: Path) -> Any:
    path = root / "fp32.pb"
    if path.exists():
        return str(path)
    import tensorflow as tf

    v1 = tf.compat.v1
    with tf.Graph().as_default() as graph:
        x = v1.placeholder(tf.float32, (None, WIDTH), name="x")
        for weight in weights():
            x = tf.nn.relu(v1.nn.bias_add(tf.matmul(x, weight), np.zeros(WIDTH, np.float32)))
        tf.identity(x, name="y")
        path.write_bytes(graph.as_graph_def().SerializeToString())
    return str(path)


def tensorflow_judge(graph: Any) -> float:
    import tensorflow as tf

    is_low = any("Quantize" in node.type for node in graph.get_operations())
    with tf.compat.v1.Session(graph=graph) as session:
        return score(session.run("y:0", {"x:0": data()[0]}), is_low)


def tune(framework: str, executor: str, folder: Path, trials: int) -> lpot.Result:
    model = globals()[f"{framework}_model"](folder.parent)
    judge = globals()[f"{framework}_judge"]
    workers = {"name": "process", "workers": 2} if executor == "process" else executor
    return lpot.tune(
        model,
        data(),
        judge,
        framework=framework,
        strategy="random",
        max_trials=trials,
        executor=workers,
        workspace=folder,
        measure_speed=False,
    )


def best(framework: str, folder: Path) -> tuple[str, float] | None:
    """The digest of the recipe that the model on disk has, and its score; None if there is none."""
    path = folder / BEST[framework]
    main = path / "model.safetensors" if framework == "pytorch" else path
    if not main.exists():
        return None
    module = pytorch_model(folder) if framework == "pytorch" else None
    model = lpot.load(path, module=module)
    assert model.recipe is not None, "the model lost its recipe"
    return model.recipe.digest, globals()[f"{framework}_judge"](model.native)
