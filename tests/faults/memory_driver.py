"""How much memory a long search, and a long calibration, take; test_memory.py starts it.

memory_driver.py trials FRAMEWORK FOLDER COUNT     MiB after each trial, as JSON
memory_driver.py calibrate FRAMEWORK FOLDER COUNT  MiB at most, with so many batches
memory_driver.py long toy FOLDER COUNT             seconds of CPU of each trial, 10 000 ops
"""

from __future__ import annotations

import json
import os
import resource
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

import lpot
from lpot.core.backend import Observations
from lpot.core.progress import Listener
from lpot.core.trial import Trial

LAYERS, WIDTH, WIDE = 12, 16, 512


def weights(layers: int, width: int) -> list[np.ndarray]:
    draw = np.random.default_rng(3)
    shape = (layers, width, width)
    return list((draw.standard_normal(shape) / np.sqrt(width)).astype(np.float32))


def onnx(layers: int, width: int) -> Any:
    from onnx import TensorProto, helper, numpy_helper

    nodes, stored, last = [], [], "x"
    for index, weight in enumerate(weights(layers, width)):
        stored.append(numpy_helper.from_array(weight, f"w{index}"))
        stored.append(numpy_helper.from_array(np.zeros(width, np.float32), f"b{index}"))
        ends = [last, f"w{index}", f"b{index}"], [f"g{index}"]
        nodes.append(helper.make_node("Gemm", *ends, f"gemm{index}"))
        nodes.append(helper.make_node("Relu", [f"g{index}"], [f"r{index}"], f"relu{index}"))
        last = f"r{index}"
    ends = [
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["n", width])]
        for name in ("x", last)
    ]
    graph = helper.make_graph(nodes, "net", *ends, stored)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=10)


def pytorch(layers: int, width: int) -> Any:
    import torch

    torch.set_num_threads(1)
    made: list[Any] = []
    for weight in weights(layers, width):
        layer = torch.nn.Linear(width, width)
        with torch.no_grad():
            layer.weight.copy_(torch.from_numpy(weight))
        made += [layer, torch.nn.ReLU()]
    return torch.nn.Sequential(*made)


def tensorflow(layers: int, width: int) -> Any:
    import tensorflow as tf

    with tf.Graph().as_default() as graph:
        x = tf.compat.v1.placeholder(tf.float32, (None, width), name="x")
        for weight in weights(layers, width):
            bias = np.zeros(width, np.float32)
            x = tf.nn.relu(tf.compat.v1.nn.bias_add(tf.matmul(x, weight), bias))
        tf.identity(x, name="y")
        return graph.as_graph_def()


def resident() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


class Watching(Listener):
    def __init__(self) -> None:
        self.found: list[float] = []
        self.times: list[float] = []

    def trial(self, trial: Trial, best: Trial | None) -> None:
        assert trial.error is None, trial.error
        self.found.append(round(resident(), 2))
        self.times.append(time.process_time())


def run(framework: str, native: Any) -> None:
    """As an eval_func does: the model is run."""
    x = np.random.default_rng(5).standard_normal((4, WIDTH)).astype(np.float32)
    if framework == "onnx":
        import onnx_models

        onnx_models.run(native, {"x": x})
    elif framework == "pytorch":
        import torch

        with torch.inference_mode():
            native(torch.from_numpy(x))
    else:
        import tensorflow as tf

        with tf.compat.v1.Session(graph=native) as session:
            session.run("y:0", {"x:0": x})


def fill_caches() -> None:
    """TensorFlow keeps the last 1024 INT8 kernels of each of its threads, whoever ran them: in an
    eval_func's own session that is beyond our reach, and the cache is full before we look.
    """
    from lpot.backends import get_backend
    from lpot.core.space import restrict

    backend: Any = get_backend("tensorflow")
    model = backend.load(tensorflow(300, WIDTH))
    recipe = restrict(backend.inspect(model), ()).default()
    x = np.random.default_rng(1).standard_normal((4, WIDTH)).astype(np.float32)
    observed = backend.observe(model, [(x,)], (0,))[0]
    for _ in range(8):  # in sessions of their own; which thread runs which op is chance
        run("tensorflow", backend.build(model, recipe, observed).native)


def trials(framework: str, folder: Path, count: int) -> list[float]:
    draw = np.random.default_rng(9)
    listener, calls = Watching(), [0]

    def judge(native: Any) -> float:
        run(framework, native)
        calls[0] += 1
        return 2.0 if calls[0] == 1 else float(draw.random())

    feed = draw.standard_normal((4, WIDTH)).astype(np.float32)
    options: dict[str, Any] = {"strategy": "random", "max_trials": count, "listener": listener}
    model = globals()[framework](LAYERS, WIDTH)
    if framework == "tensorflow":
        fill_caches()
    lpot.tune(model, [feed], judge, workspace=folder, measure_speed=False, **options)
    return listener.found


def calibrate(framework: str, folder: Path, count: int) -> float:
    from lpot.backends import get_backend

    backend: Any = get_backend(framework)
    model = backend.load(globals()[framework](3, WIDE))
    draw = np.random.default_rng(2)

    def batches() -> Iterator[Any]:
        for _ in range(count):
            x = draw.standard_normal((512, WIDE)).astype(np.float32)  # a MiB each
            yield (x,) if model.input_names is None else {model.input_names[0]: x}

    assert backend.observe(model, batches(), (0,))[0].samples == count * 512
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**10


def long(framework: str, folder: Path, count: int) -> list[float]:
    """Ten thousand ops of a framework that does nothing: what is left is the search itself."""
    import toy_backend

    class Idle(toy_backend.ToyBackend):
        def build(self, model: Any, recipe: Any, observations: Any = None) -> Any:
            return toy_backend.ToyModel(self, model.net, recipe)

        def run(self, model: Any, inputs: Any) -> list[np.ndarray]:
            return [np.ones(1)]

        def observe(self, model: Any, batches: Any, sizes: Any = (0,)) -> Any:
            return {size: Observations(2, {}) for size in sizes}

    net = toy_backend.make_net(*([1] * 10_001))
    listener, calls = Watching(), [0]

    def judge(native: Any) -> float:
        calls[0] += 1
        return 2.0 if calls[0] == 1 else 1.0 / calls[0]

    lpot.tune(
        net,
        [np.ones((2, 1), np.float32)],
        judge,
        framework=Idle(),
        strategy="random",
        max_trials=count,
        workspace=folder,
        measure_speed=False,
        listener=listener,
    )
    return [float(step) for step in np.diff(listener.times)]


if __name__ == "__main__":
    os.fsync = lambda handle: None  # type: ignore[assignment]
    what, word, place, number = sys.argv[1:]
    print(json.dumps(globals()[what](word, Path(place), int(number))))
