"""Memory that a TensorFlow tuning takes at most, in its own process and in those that time it.

    python benchmarks/tensorflow_memory.py resnet50v2     about a minute
    python benchmarks/tensorflow_memory.py bert_large     some minutes, with 16 GB free

The model is frozen by a process of its own, so that what made it is not counted.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from models import CACHE

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
SIZES = {"resnet50v2": (224, 224, 3), "bert_large": (128,)}


def _resnet50v2() -> Any:
    import tensorflow as tf

    return tf.keras.applications.ResNet50V2(weights=None)


def _bert_large() -> Any:
    import tensorflow_nets as nets

    nets.WIDTH, nets.HEADS, nets.LAYERS, nets.VOCABULARY = 1024, 16, 24, 30522
    return nets._bert()


MAKERS: dict[str, Callable[[], Any]] = {"resnet50v2": _resnet50v2, "bert_large": _bert_large}


def peak(who: int = resource.RUSAGE_SELF) -> float:
    """GB of the process, or of the biggest of its children."""
    return resource.getrusage(who).ru_maxrss * 1024 / 1e9


def freeze(name: str, path: Path) -> None:
    from lpot.backends import get_backend

    backend = get_backend("tensorflow")
    backend.save(backend.load(MAKERS[name]()), path)


def tune(name: str, path: Path) -> None:
    import lpot
    from lpot.backends import get_backend

    get_backend("tensorflow").inspect(_tiny())  # what any use of TensorFlow takes
    own = peak()
    draw = np.random.default_rng(0)
    shape = (1, *SIZES[name])
    data = [
        draw.integers(0, 8000, shape).astype(np.int32)
        if len(shape) == 2
        else draw.standard_normal(shape).astype(np.float32)
        for _ in range(4)
    ]
    with tempfile.TemporaryDirectory() as folder:
        result = lpot.tune(
            path, data, lambda graph: float(graph(data[0]).shape[0]), workspace=folder
        )
    print(
        f"{name}: a graph of {path.stat().st_size / 1e9:.2f} GB; TensorFlow itself {own:.2f} GB, "
        f"tuning {peak():.2f} GB, the biggest of the timed processes "
        f"{peak(resource.RUSAGE_CHILDREN):.2f} GB; {result.speed}",
        flush=True,
    )


def _tiny() -> Any:
    import tensorflow as tf

    from lpot.backends import get_backend

    given = tf.keras.Input((8,))
    return get_backend("tensorflow").load(tf.keras.Model(given, tf.keras.layers.Dense(4)(given)))


def main() -> None:
    if len(sys.argv) == 4:
        {"freeze": freeze, "tune": tune}[sys.argv[1]](sys.argv[2], Path(sys.argv[3]))
        return
    CACHE.mkdir(parents=True, exist_ok=True)
    for name in sys.argv[1:] or MAKERS:
        path = CACHE / f"tf_{name}.pb"
        steps = ["tune"] if path.exists() else ["freeze", "tune"]
        for step in steps:
            subprocess.run([sys.executable, __file__, step, name, str(path)], check=True)


if __name__ == "__main__":
    main()
