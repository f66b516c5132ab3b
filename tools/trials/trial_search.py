"""The strategies that optuna carries, on the embedded digits."""

import tempfile

import onnxruntime

import lpot
from lpot.demo import demo_data, demo_model_path

data = demo_data()


def accuracy(model):
    session = onnxruntime.InferenceSession(model.SerializeToString())
    (logits,) = session.run(None, {session.get_inputs()[0].name: data.images})
    return float((logits.argmax(1) == data.labels).mean())


for strategy in ("tpe", "bayesian"):
    with tempfile.TemporaryDirectory() as name:
        result = lpot.tune(
            demo_model_path(), [data.calib_images[:50]], accuracy, 0.01, strategy=strategy,
            max_trials=20, workspace=name, measure_speed=False,
        )  # fmt: skip
        assert result.evaluations > 1, result
        print(strategy, result.met, result.accuracy, result.evaluations)
