"""The peer on OpenVINO: NNCF's quantization after training, in an environment of its own.

build/nncf/bin/python benchmarks/nncf_peer.py MODEL.onnx SAMPLES.npz OUT.xml
"""

from __future__ import annotations

import sys
from pathlib import Path

import nncf
import numpy as np
import openvino


def main(model: str, samples: str, out: str) -> None:
    net = openvino.Core().read_model(model)
    with np.load(samples) as stored:
        rows = {name: stored[name] for name in stored.files}  # a sample for each first index
    count = len(next(iter(rows.values())))
    feeds = [{name: array[at] for name, array in rows.items()} for at in range(count)]
    attention = any(op.get_type_name() == "Softmax" for op in net.get_ops())
    quantized = nncf.quantize(
        net,
        nncf.Dataset(feeds),
        subset_size=count,
        model_type=nncf.ModelType.TRANSFORMER if attention else None,
    )
    partial = Path(out).with_suffix(".part.xml")
    openvino.save_model(quantized, partial, compress_to_fp16=False)
    partial.with_suffix(".bin").rename(Path(out).with_suffix(".bin"))
    partial.rename(out)


if __name__ == "__main__":
    main(*sys.argv[1:])
