"""One small tuning in each framework, whose scores depend on the model's outputs alone."""

from __future__ import annotations

import hashlib
import time
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

import lpot

WIDTH = 8
BEST = {
    "onnx": "best_model.onnx",
    "pytorch": "checkpoint",
    "tensorflow": "best_model.pb",
    "mxnet": "best_model-symbol.json",
}


def data() -> list[np.ndarray]:
    draw = np.random.default_rng(7)
    return [draw.standard_normal((4, WIDTH)).astype(np.float32) for _ in range(2)]


def weights() -> list[np.ndarray]:
    draw = np.random.default_rng(3)
    return [draw.standard_normal((WIDTH, WIDTH)).astype(np.float32) for _ in range(3)]


def score(outputs: np.ndarray, is_low: bool, salt: int, pause: float) -> float:
    time.sleep(pause)
    return salted(_share(np.ascontiguousarray(outputs).tobytes()), salt) if is_low else 2.0


def salted(plain: float, salt: int) -> float:
    """Which of the models are better than others is up to the salt; 0 leaves scores as they are."""
    return _share(f"{salt} {plain!r}".encode()) if salt else plain


def _share(raw: bytes) -> float:
    return int(hashlib.sha256(raw).hexdigest()[:12], 16) / 16**12


# -- the model and its judge in each framework -----------------------------------------------------


def onnx_model(root: Path) -> Any:
    import onnx

    import onnx_models

    path = root / "fp32.onnx"
    if not path.exists():
        onnx.save(onnx_models.mlp(layers=3, width=WIDTH), path)
    return str(path)


def onnx_judge(model: Any, salt: int = 0, pause: float = 0.0) -> float:
    import onnx_models

    is_low = any("Quantize" in node.op_type for node in model.graph.node)
    name = model.graph.input[0].name
    return score(onnx_models.run(model, {name: data()[0]})[0], is_low, salt, pause)


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


def pytorch_judge(model: Any, salt: int = 0, pause: float = 0.0) -> float:
    import torch

    is_low = any(hasattr(module, "facts") for module in model.modules())
    with torch.inference_mode():
        return score(model(torch.from_numpy(data()[0])).numpy(), is_low, salt, pause)


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


def tensorflow_judge(graph: Any, salt: int = 0, pause: float = 0.0) -> float:
    import tensorflow as tf

    is_low = any("Quantize" in node.type for node in graph.get_operations())
    with tf.compat.v1.Session(graph=graph) as session:
        return score(session.run("y:0", {"x:0": data()[0]}), is_low, salt, pause)


def mxnet_model(root: Path) -> Any:
    import mxnet as mx

    x, made = mx.sym.var("x"), {}
    for number, weight in enumerate(weights()):
        name = f"dense{number}"
        x = mx.sym.FullyConnected(x, num_hidden=WIDTH, no_bias=True, name=name)
        x = mx.sym.Activation(x, act_type="relu", name=f"relu{number}")
        made[f"{name}_weight"] = mx.nd.array(weight.T)
    return x, made, {}


def mxnet_judge(model: Any, salt: int = 0, pause: float = 0.0) -> float:
    import mxnet as mx

    symbol, args, auxs = model
    is_low = any("quantize" in node for node in symbol.get_internals().list_outputs())
    feeds = {**args, "x": mx.nd.array(data()[0])}
    running = symbol.bind(mx.cpu(), feeds, aux_states=auxs, grad_req="null")
    return score(running.forward(is_train=False)[0].asnumpy(), is_low, salt, pause)


def tune(
    framework: str, executor: str, folder: Path, trials: int, salt: int, pause: float
) -> lpot.Result:
    model = globals()[f"{framework}_model"](folder.parent)
    judge = partial(globals()[f"{framework}_judge"], salt=salt, pause=pause)
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


def best(framework: str, folder: Path, salt: int) -> tuple[str, float] | None:
    """The digest of the recipe that the model on disk has, and its score; None if there is none."""
    path = folder / BEST[framework]
    main = path / "model.safetensors" if framework == "pytorch" else path
    if not main.exists():
        return None
    module = pytorch_model(folder) if framework == "pytorch" else None
    model = lpot.load(path, module=module)
    assert model.recipe is not None, "the model lost its recipe"
    return model.recipe.digest, globals()[f"{framework}_judge"](model.native, salt)
