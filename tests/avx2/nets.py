"""A net of integers from end to end and one with floats between its products, of each framework.

Imported here and in the emulated process, which needs torch's architectures again.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from lpot.backends import get_backend
from lpot.core.backend import Target
from lpot.core.model import Model
from lpot.core.space import restrict

BACKENDS = ("onnx", "pytorch", "tensorflow", "mxnet")
INTEGER, MIXED = "integer", "mixed"
TARGETS: tuple[Target, ...] = ("avx2", "vnni")


def net(framework: str, name: str) -> tuple[Any, list[Any]]:
    """The FP32 model, and its batches."""
    if framework == "onnx":
        from backends.onnx import nets as onnx_nets

        if name == INTEGER:
            return onnx_nets.cnn(), onnx_nets.images()
        return onnx_nets.mlp(), onnx_nets.tokens()
    if framework == "pytorch":
        from backends.torch import torch_nets

        if name == INTEGER:
            return torch_nets.seeded(torch_nets.Cnn()), torch_nets.images()
        return torch_nets.transformers_model("bert")
    if framework == "mxnet":
        from backends.mxnet import nets as mxnet_nets

        if name == INTEGER:
            return mxnet_nets.mlp(), mxnet_nets.pairs()
        # Of signed values oneDNN halves a convolution's weights where there is no VNNI.
        return mxnet_nets.cnn(), [tuple(map(abs, batch)) for batch in mxnet_nets.images()]
    from backends.tensorflow import nets as tf_nets

    if name == INTEGER:
        return tf_nets.cnn(), tf_nets.images(2)
    return tf_nets.block(), tf_nets.rows(2)


def built(framework: str, name: str, target: Target) -> tuple[Model, list[Any]]:
    """The net with everything in INT8 that can be, for a CPU of that kind."""
    backend = get_backend(framework)
    source, batches = net(framework, name)
    model = backend.load(source)
    recipe = restrict(backend.inspect(model, target=target), ()).default()
    observations = backend.observe(model, iter(batches), (0,))[0]
    return backend.build(model, recipe, observations), batches


def reopened(framework: str, name: str, path: Path) -> Model:
    backend: Any = get_backend(framework)
    if framework == "pytorch" and name == INTEGER:
        return backend.restore(path, net(framework, name)[0])
    return backend.restore(path)
