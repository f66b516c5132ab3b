"""The peer neural-compressor-tf, run by an interpreter that has it: graph in, INT8 graph out.

python benchmarks/tensorflow_inc.py FP32.pb INT8.pb BATCHES.npz INPUT OUTPUT
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from pathlib import Path

os.environ["TF_ENABLE_ONEDNN_OPTS"] = "1"

import numpy as np
from neural_compressor.tensorflow import StaticQuantConfig, quantize_model
from neural_compressor.tensorflow.utils import Model


class Loader:
    batch_size = 1

    def __init__(self, path: str) -> None:
        with np.load(path) as arrays:
            self.batches = [arrays[name] for name in arrays.files]

    def __len__(self) -> int:
        return len(self.batches)

    def __iter__(self) -> Iterator[tuple[np.ndarray, int]]:
        for batch in self.batches:
            yield batch, 0


def main() -> None:
    source, target, data, first, last = sys.argv[1:]
    model = Model(source)
    model.input_tensor_names = [first]
    model.output_tensor_names = [last]
    loader = Loader(data)
    config = StaticQuantConfig(weight_granularity="per_channel")
    made = quantize_model(model, config, loader, calib_iteration=len(loader))
    Path(target).write_bytes(made.graph_def.SerializeToString())


if __name__ == "__main__":
    main()
