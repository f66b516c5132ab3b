"""Models of every framework, as files to mutate: each maker gives the file and how it is opened."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import lpot

Opener = Callable[[], Any]


def onnx(root: Path) -> tuple[Path, Opener]:
    import onnx_models
    from lpot.backends.onnx import OnnxBackend

    path = root / "model.onnx"
    path.write_bytes(onnx_models.mlp(layers=2).SerializeToString())
    backend = OnnxBackend()
    return path, lambda: backend.inspect(backend.load(path))


def pb(root: Path) -> tuple[Path, Opener]:
    from faults import kill_job
    from lpot.backends.tensorflow import TensorflowBackend

    path = Path(kill_job.tensorflow_model(root))
    backend = TensorflowBackend()
    return path, lambda: backend.inspect(backend.load(path))


def keras(root: Path) -> tuple[Path, Opener]:
    return _keras(root / "net.keras")


def h5(root: Path) -> tuple[Path, Opener]:
    return _keras(root / "net.h5")


def _keras(path: Path) -> tuple[Path, Opener]:
    import keras

    from lpot.backends.tensorflow import TensorflowBackend

    keras.Sequential([keras.layers.Input((4,)), keras.layers.Dense(2)]).save(path)
    backend = TensorflowBackend()
    return path, lambda: backend.inspect(backend.load(path))


def saved_model(root: Path) -> tuple[Path, Opener]:
    import numpy as np
    import tensorflow as tf

    from lpot.backends.tensorflow import TensorflowBackend

    module = tf.Module()
    module.w = tf.Variable(np.ones((4, 2), np.float32))
    spec = tf.TensorSpec((None, 4), tf.float32)
    call = tf.function(lambda x: tf.matmul(x, module.w), input_signature=[spec])
    tf.saved_model.save(module, str(root / "saved"), signatures=call)
    backend = TensorflowBackend()
    return root / "saved" / "saved_model.pb", lambda: backend.inspect(backend.load(root / "saved"))


def _torch(root: Path) -> tuple[Path, Any, Any]:
    import torch

    from lpot.backends.torch import TorchBackend
    from lpot.core.recipe import Recipe

    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    backend = TorchBackend()
    model = backend.load(net)
    seen = backend.observe(model, [(torch.randn(4, 8),)], (0,))[0]
    recipe = Recipe({info.key: info.choices[0] for info in backend.inspect(model).low()})
    return backend.save(backend.build(model, recipe, seen), root / "checkpoint"), backend, net


def safetensors(root: Path) -> tuple[Path, Opener]:
    folder, backend, net = _torch(root)
    return folder / "model.safetensors", lambda: backend.restore(folder, net)


def lpot_json(root: Path) -> tuple[Path, Opener]:
    folder, backend, net = _torch(root)
    return folder / "lpot.json", lambda: backend.restore(folder, net)


def pruned(root: Path) -> tuple[Path, Opener]:
    """A net from which channels were cut, which is opened into the whole one."""
    import numpy as np
    import torch

    from lpot.backends.torch import TorchBackend
    from lpot.core.compress.groups import Left

    torch.manual_seed(1)
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.ReLU(), torch.nn.Linear(8, 4))
    backend = TorchBackend()
    model = backend.load(net)
    batches = [(np.random.default_rng(1).standard_normal((4, 8)).astype(np.float32),)]
    parts = backend.parts(model, batches)
    (group,) = parts.groups
    small = backend.pruned(model, parts, Left({group.name: tuple(range(group.units // 2))}))
    folder = backend.save(small, root / "pruned-50")
    return folder / "lpot.json", lambda: backend.run(backend.reopen(model, folder), batches[0])


def configure(root: Path) -> tuple[Path, Opener]:
    folder, backend, net = _torch(root)
    backend.save_weights(folder)
    (folder / "lpot.json").unlink()
    return folder / "best_configure.yaml", lambda: backend.load_checkpoint(folder, net)


def weights(root: Path) -> tuple[Path, Opener]:
    folder, backend, net = _torch(root)
    backend.save_weights(folder)
    (folder / "lpot.json").unlink()
    return folder / "best_model_weights.pt", lambda: backend.load_checkpoint(folder, net)


def torch_card(root: Path) -> tuple[Path, Opener]:
    folder, _, net = _torch(root)
    return folder.with_name("checkpoint.card.json"), lambda: lpot.load(folder, module=net)


def transformers_config(root: Path) -> tuple[Path, Opener]:
    """A folder as save_pretrained writes it."""
    import transformers

    from lpot.backends.torch.files.load import load_folder

    sizes = {"hidden_size": 8, "num_hidden_layers": 1, "num_attention_heads": 2}
    config = transformers.BertConfig(
        **sizes, intermediate_size=16, vocab_size=16, max_position_embeddings=16
    )
    transformers.BertForSequenceClassification(config).save_pretrained(root / "net")
    return root / "net" / "config.json", lambda: load_folder(root / "net")


def symbol(root: Path) -> tuple[Path, Opener]:
    return _mxnet(root, "net-symbol.json")


def params(root: Path) -> tuple[Path, Opener]:
    return _mxnet(root, "net-0000.params")


def _mxnet(root: Path, name: str) -> tuple[Path, Opener]:
    from backends.mxnet.nets import mlp
    from lpot.backends.mxnet import MxnetBackend

    backend = MxnetBackend()
    backend.save(backend.load(mlp()), root / "net")
    return root / name, lambda: backend.restore(root / "net")
