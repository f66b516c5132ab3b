"""The embedded digits, tuned and loaded again."""

import tempfile
from pathlib import Path

import onnxruntime

import lpot
from lpot.demo import demo_data, demo_model_path

data = demo_data()


def accuracy(model):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (logits,) = session.run(None, {session.get_inputs()[0].name: data.images})
    return float((logits.argmax(1) == data.labels).mean())


with tempfile.TemporaryDirectory() as name:
    result = lpot.tune(
        demo_model_path(), [data.calib_images[:50]], accuracy, 0.01,
        workspace=name, output=Path(name, "int8.onnx"),
    )  # fmt: skip
    assert result.met, result
    assert accuracy(lpot.load(Path(name, "int8.onnx")).native) == result.accuracy
print(result)
