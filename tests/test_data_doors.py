"""The registries of data and metrics under the original's names, and users' own classes in yaml."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

pytest.importorskip("onnxruntime")

import lpot
import onnx_models
from lpot.data import DATASETS, TRANSFORMS
from lpot.metric import registry

FRAMEWORKS = ("tensorflow", "pytorch", "pytorch_fx", "onnxrt_qlinearops", "mxnet")


@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_registries_by_framework(framework: str) -> None:
    from lpot.experimental import data, metric

    dataset = data.DATASETS(framework)["dummy"](shape=[4, 2, 2], label=True)
    loader = data.DATALOADERS[framework](dataset, batch_size=2)
    assert [inputs.shape for inputs, _ in loader] == [(2, 2, 2)] * 2
    steps = data.TRANSFORMS(framework, "preprocess")
    image, label = steps["Compose"]([steps["Resize"](4), steps["ToTensor"]()])(
        (np.zeros((8, 8, 3), np.uint8), 1)
    )
    assert image.shape == (3, 4, 4) and label == 1
    assert data.TRANSFORMS(framework, "postprocess")["LabelShift"](1)((0, [3])) == (0, [2])
    assert data.TRANSFORMS(framework, "general")["Cast"]("float32")
    assert data.FILTERS(framework)["LabelBalance"](1)
    top = metric.METRICS(framework)["topk"](5)
    assert top.k == 5


def test_both_doors_are_one_room() -> None:
    import lpot.data
    import lpot.metric
    from lpot.experimental import data, metric

    assert data.DATASETS is lpot.data.DATASETS
    assert metric.METRICS is lpot.metric.METRICS
    assert metric.BaseMetric is lpot.metric.BaseMetric


CONF = """
model: {name: own, framework: onnxrt_qlinearops}
quantization:
  calibration:
    sampling_size: 8
    dataloader: &loader
      batch_size: 4
      dataset: {my_numbers: {count: 12}}
      transform: {my_scale: {by: 0.5}}
evaluation:
  accuracy:
    metric: {my_share: {above: 0.0}}
    dataloader: *loader
tuning: {accuracy_criterion: {absolute: 1.0, really: true}}
"""


def test_own_classes_by_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A dataset, a transform and a metric registered in code and named in the yaml."""
    from lpot.experimental.data import Dataset, dataset_registry, transform_registry
    from lpot.experimental.metric import BaseMetric, metric_registry

    monkeypatch.chdir(tmp_path)
    seen: list[float] = []

    @dataset_registry("my_numbers", "onnxrt_qlinearops, tensorflow", "")
    class Numbers(Dataset):
        def __init__(self, count: int, transform: Any = None, filter: Any = None) -> None:
            super().__init__(transform, filter)
            self.total = count

        def count(self) -> int:
            return self.total

        def read(self, number: int) -> tuple[np.ndarray, int]:
            return np.random.default_rng(number).standard_normal(8).astype(np.float32), 1

    @transform_registry("my_scale", "preprocess", "onnxrt_qlinearops")
    class Scale:
        def __init__(self, by: float) -> None:
            self.by = by

        def __call__(self, sample: tuple[np.ndarray, int]) -> tuple[np.ndarray, int]:
            return sample[0] * np.float32(self.by), sample[1]

    @metric_registry("my_share", "onnxrt_qlinearops")
    class Share(BaseMetric):
        def __init__(self, above: float) -> None:
            self.above = above
            self.reset()

        def reset(self) -> None:
            self.hits: list[bool] = []

        def update(self, preds: Any, labels: Any = None) -> None:
            self.hits += (np.asarray(preds)[:, 0] > self.above).tolist()

        def result(self) -> float:
            seen.append(float(np.mean(self.hits)))
            return seen[-1]

    try:
        (tmp_path / "conf.yaml").write_text(CONF)
        onnx.save(onnx_models.mlp(), tmp_path / "net.onnx")
        quantizer = lpot.Quantization("conf.yaml")
        quantizer.measure_speed = False
        quantizer("net.onnx")
    finally:
        DATASETS.remove("my_numbers")
        TRANSFORMS.remove("my_scale")
        registry._overlay.pop("my_share")
    assert quantizer.result is not None and quantizer.result.met is True
    assert quantizer.result.baseline is not None
    assert quantizer.result.baseline.accuracy == seen[0]
    assert quantizer.result.baseline.samples == 12
