"""Base classes, array reading, faults that every metric must name, and lightness of import."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest

from lpot.core.errors import EvaluationError
from lpot.metric import METRICS, BaseMetric, SampleMean, get_metric
from lpot.metric.arrays import average_ranks, to_numpy

BATCHES = {
    "topk": ([[0.1, 0.9]], [1]),
    "Accuracy": ([[0.1, 0.9]], [1]),
    "F1": ([1], [1]),
    "MCC": ([1], [1]),
    "ROC": ([0.1, 0.7], [0, 1]),
    "MAE": ([0.5], [1.0]),
    "MSE": ([0.5], [1.0]),
    "RMSE": ([0.5], [1.0]),
    "Loss": ([0.5], [1.0]),
    "Pearson": ([0.5, 0.7], [1.0, 3.0]),
    "Spearman": ([0.5, 0.7], [1.0, 3.0]),
    "mAP": ([[[[0, 0, 1, 1]]], [[0.9]], [[1]]], ([[[0, 0, 1, 1]]], [[]], [[1]], ["a"])),
    "COCOmAP": ([[[[0, 0, 1, 1]]], [[0.9]], [[1]]], ([[[0, 0, 1, 1]]], [[]], [[1]], ["a"])),
    "COCOmAPv2": ([[[[0, 0, 1, 1]]], [[0.9]], [[1]]], ([[[0, 0, 1, 1]]], [[]], [[1]], ["a"])),
    "VOCmAP": ([[[[0, 0, 1, 1]]], [[0.9]], [[1]]], ([[[0, 0, 1, 1]]], [[]], [[1]], ["a"])),
    "mIOU": ([[[0, 1]]], [[[0, 1]]]),
    "BLEU": (["a cat sat there today"], ["a cat sat there today"]),
    "SquadF1": ({"q": "a"}, {"q": ["b"]}),
    "SquadEM": ({"q": "a"}, {"q": ["b"]}),
    "GLUE": ([[0.1, 0.9]], [1]),
    "perplexity": ([[[0.1, 0.9], [0.5, 0.5]]], [[0, 1]]),
    "last_word": ([[[0.1, 0.9], [0.5, 0.5]]], [[-100, 1]]),
}
NUMERIC = [name for name in METRICS if name not in ("BLEU", "SquadF1", "SquadEM")]


def test_every_metric_has_a_batch_here():
    assert set(BATCHES) == set(METRICS)


@pytest.mark.parametrize("name", METRICS)
def test_result_before_update_names_the_metric(name):
    with pytest.raises(EvaluationError, match=name.replace("GLUE", "GLUE/mrpc")):
        get_metric(name).result()


@pytest.mark.parametrize("name", METRICS)
def test_reset_forgets(name):
    metric = get_metric(name)
    metric.update(*BATCHES[name])
    first = metric.result()
    assert isinstance(first, float)
    metric.reset()
    with pytest.raises(EvaluationError, match="before any sample"):
        metric.result()
    metric.update(*BATCHES[name])
    assert metric.result() == first


@pytest.mark.parametrize("name", METRICS)
def test_labels_are_needed(name):
    if name == "Loss":
        pytest.skip("a loss needs no labels")
    with pytest.raises(EvaluationError, match="labels"):
        get_metric(name).update(BATCHES[name][0], None)


@pytest.mark.parametrize("name", METRICS)
def test_details_hold_the_result(name):
    metric = get_metric(name)
    metric.update(*BATCHES[name])
    assert metric.result() in metric.details.values()


@pytest.mark.parametrize("name", NUMERIC)
def test_nan_is_named_with_its_sample(name):
    good, labels = BATCHES[name]
    metric = get_metric(name)
    metric.update(good, labels)
    count = metric.seen if hasattr(metric, "seen") else metric.parts["acc"].seen
    bad, labels = ([good[0], [[np.nan]], good[2]], (*labels[:3], ["b"])) if "mAP" in name else (
        np.full(np.shape(good), np.nan),
        labels,
    )  # fmt: skip
    with pytest.raises(EvaluationError, match=f"sample {count}: .*NaN"):
        metric.update(bad, labels)


@pytest.mark.parametrize("name", [n for n in METRICS if n not in ("SquadF1", "SquadEM")])
def test_mismatched_lengths(name):
    preds, labels = BATCHES[name]
    if "mAP" in name:
        preds = [[*part, *part] for part in preds]
    elif name == "Loss":
        preds, labels = [1.0, 2.0, 3.0], [0, 1]
    else:
        preds = [*preds, *preds]
    with pytest.raises(EvaluationError, match="but"):
        get_metric(name).update(preds, labels)


def test_mean_metrics_agree_with_their_samples():
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(40, 5)), rng.integers(0, 5, 40)
    outputs, wanted = rng.normal(size=(40, 3)), rng.normal(size=(40, 3))
    cases = {"topk": (scores, labels), "Accuracy": (scores, labels), "MAE": (outputs, wanted)}
    cases["MSE"] = cases["MAE"]
    for name, (preds, truth) in cases.items():
        metric = get_metric(name)
        values = metric.per_sample(preds, truth)
        low, high = metric.bounds
        assert values.shape == (40,) and values.dtype == np.float64
        assert (values >= low).all() and (values <= high).all()
        for at in range(0, 40, 7):
            metric.update(preds[at : at + 7], truth[at : at + 7])
        np.testing.assert_allclose(metric.latest, values[35:])
        assert metric.result() == pytest.approx(values.mean(), abs=1e-12)
        assert metric.is_mean


def test_others_refuse_per_sample():
    for name in ("RMSE", "MCC", "ROC", "mAP", "BLEU", "mIOU", "Pearson", "Spearman"):
        metric = get_metric(name)
        assert not metric.is_mean
        with pytest.raises(EvaluationError, match="not a mean over samples"):
            metric.per_sample(*BATCHES[name])


def test_a_user_metric_needs_three_verbs():
    class Count(BaseMetric):
        def __init__(self) -> None:
            self.count = 0

        def update(self, preds, labels=None):
            self.count += len(preds)

        def reset(self):
            self.count = 0

        def result(self):
            return float(self.count)

    metric = Count()
    metric.update([1, 2])
    assert metric.result() == 2.0 and metric.name == "Count" and metric.details == {"Count": 2.0}
    with pytest.raises(NotImplementedError, match="result"):
        SampleMean.__base__().result()


@pytest.mark.filterwarnings("ignore:torch.quantize_per_tensor")
def test_to_numpy_of_torch():
    torch = pytest.importorskip("torch")
    value = torch.tensor([[1.0, 2.0]], requires_grad=True)
    assert to_numpy(value).tolist() == [[1.0, 2.0]]
    assert to_numpy(torch.ones(2, dtype=torch.bfloat16)).tolist() == [1.0, 1.0]
    assert to_numpy([torch.ones(2), torch.zeros(2)]).shape == (2, 2)
    quantized = torch.quantize_per_tensor(torch.tensor([0.5, 1.0]), 0.5, 0, torch.qint8)
    assert to_numpy(quantized).tolist() == [0.5, 1.0]


def test_to_numpy_of_what_tensorflow_and_mxnet_offer():
    ml_dtypes = pytest.importorskip("ml_dtypes")  # what TensorFlow's bfloat16 arrives as

    class Eager:
        def __array__(self, dtype=None, copy=None):
            return np.array([1.5, 2.5], dtype=ml_dtypes.bfloat16)

    class NDArray:
        def asnumpy(self):
            return np.array([3, 4])

    assert to_numpy(Eager()).tolist() == [1.5, 2.5]
    assert to_numpy(Eager()).dtype == np.float32
    assert to_numpy(NDArray()).tolist() == [3, 4]


def test_average_ranks_equal_scipy():
    stats = pytest.importorskip("scipy.stats")
    values = np.random.default_rng(1).integers(0, 20, 200).astype(float)
    np.testing.assert_array_equal(average_ranks(values), stats.rankdata(values))


def test_import_is_light():
    code = (
        "import sys, lpot.metric\n"
        "heavy = {'sklearn', 'scipy', 'pycocotools', 'sacrebleu', 'torch', 'tensorflow', 'onnx', "
        "'onnxruntime', 'mxnet', 'transformers', 'PIL', 'ruamel', 'pydantic'}\n"
        "print(sorted(heavy & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "sacrebleu.metrics", None)
    with pytest.raises(EvaluationError, match="pip install sacrebleu"):
        get_metric("BLEU")
    monkeypatch.setitem(sys.modules, "pycocotools.coco", None)
    with pytest.raises(EvaluationError, match="pip install pycocotools"):
        get_metric("COCOmAP")
