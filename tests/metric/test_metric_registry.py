"""Names, options, user metrics and multi_metrics."""

from __future__ import annotations

import numpy as np
import pytest

from lpot.core.errors import ConfigError, EvaluationError
from lpot.metric import (
    METRICS,
    BaseMetric,
    WeightedMetrics,
    as_metric,
    from_spec,
    get_metric,
    metric_class,
    metric_registry,
    metrics_of,
    multi_metrics,
    registry,
)


@pytest.fixture(autouse=True)
def clean(monkeypatch):
    monkeypatch.setattr(registry, "_overlay", {})


class Mine:
    def __init__(self, scale=1.0):
        self.scale, self.values = scale, []

    def update(self, preds, labels):
        self.values.append(np.mean(preds))

    def reset(self):
        self.values = []

    def result(self):
        return self.scale * float(np.mean(self.values))


def test_names_of_the_contract():
    contract = (
        "topk Accuracy F1 MAE MSE RMSE Loss mAP COCOmAP VOCmAP BLEU SquadF1 mIOU GLUE COCOmAPv2 ROC"
    )
    assert set(contract.split()) <= set(METRICS)
    for name, cls in METRICS.items():
        assert issubclass(cls, BaseMetric) and cls.name == name


def test_unknown_name_and_option():
    with pytest.raises(ConfigError, match=r"unknown metric 'top_k', did you mean 'topk'\?"):
        get_metric("top_k")
    with pytest.raises(ConfigError, match="Available: topk, Accuracy"):
        get_metric("zzz")
    with pytest.raises(ConfigError, match=r"COCOmAP\.anno_pat: .*did you mean 'anno_path'"):
        get_metric("COCOmAP", anno_pat="x")
    with pytest.raises(ConfigError, match="It takes: none"):
        get_metric("SquadF1", k=1)


def test_yaml_forms():
    assert from_spec({"topk": 5}).k == 5
    assert from_spec({"topk": {"k": 3}}).k == 3
    assert from_spec({"topk": None}).k == 1
    assert from_spec({"MSE": {"compare_label": False}}).compare_label is False
    assert from_spec({"GLUE": {"task": "qnli"}}).task == "qnli"
    assert from_spec({"SquadF1": {}}).name == "SquadF1"
    assert from_spec("Accuracy").name == "Accuracy"
    with pytest.raises(ConfigError, match="takes no options"):
        from_spec({"SquadF1": 3})
    with pytest.raises(ConfigError, match=r"2 metrics.*multi_metrics"):
        from_spec({"topk": 1, "MSE": {}})


def test_user_metrics_by_object_class_record_and_name():
    class Record:
        metric_cls, name, kwargs = Mine, "user_metric", {"scale": 2.0}

    own = Mine()
    assert as_metric(own) is own
    assert isinstance(as_metric(Mine), Mine)
    assert as_metric(Record()).scale == 2.0
    assert as_metric({"topk": 5}).k == 5
    with pytest.raises(ConfigError, match="no update and no result"):
        as_metric(3)

    class Needy(Mine):
        def __init__(self, path):
            super().__init__()

    with pytest.raises(ConfigError, match="Needy: metric Needy needs path"):
        as_metric(Needy)


def test_registry_decorator():
    @metric_registry("mine", "tensorflow, pytorch")
    class First(Mine):
        pass

    assert metric_class("mine") is First
    assert metric_class("mine", "pytorch") is First
    assert get_metric("mine", scale=3.0).scale == 3.0
    assert from_spec({"mine": {"scale": 2.0}}, "tensorflow").scale == 2.0
    with pytest.raises(ConfigError, match="not for mxnet"):
        metric_class("mine", "mxnet")
    assert metric_class("mine", "pytorch_fx") is First  # of the same family
    assert metric_class("mine", "torch") is First
    assert "mine" not in METRICS
    with pytest.raises(ConfigError, match="did you mean 'mine'"):
        get_metric("mien")

    @metric_registry("mine", "tensorflow, pytorch")  # a notebook cell run twice
    class Second(Mine):
        pass

    assert metric_class("mine") is Second

    @metric_registry("mine", "mxnet")
    class Third(Mine):
        pass

    with pytest.raises(ConfigError, match="differs by framework"):
        metric_class("mine")
    assert metric_class("mine", "mxnet") is Third
    assert metrics_of("mxnet") == {**METRICS, "mine": Third}
    assert metrics_of("tensorflow")["mine"] is Second
    assert metrics_of("onnxrt_qdq") == METRICS


def test_registry_refuses():
    with pytest.raises(ConfigError, match="did you mean 'pytorch'"):
        metric_registry("mine", "pytroch")
    with pytest.raises(ConfigError, match="built-in metric 'topk'"):
        metric_registry("topk", "pytorch")


def test_multi_metrics_weights_and_directions():
    rng = np.random.default_rng(0)
    scores, labels = rng.normal(size=(50, 4)), rng.integers(0, 4, 50)
    both = multi_metrics({"topk": 2, "Accuracy": {}, "weight": [0.25, 0.75]})
    both.update(scores[:20], labels[:20])
    both.update(scores[20:], labels[20:])
    details = both.details
    assert both.result() == pytest.approx(0.25 * details["topk"] + 0.75 * details["Accuracy"])
    assert both.is_mean and both.higher_is_better and both.bounds == (0.0, 1.0)
    assert both.per_sample(scores, labels).mean() == pytest.approx(both.result())
    both.reset()
    with pytest.raises(EvaluationError, match="before any sample"):
        both.result()


def test_multi_metrics_that_differ_in_direction():
    mixed = multi_metrics({"MSE": {}, "Pearson": {}, "weight": [2, 1]})
    assert mixed.higher_is_better and not mixed.is_mean and mixed.bounds == (-np.inf, 1.0)
    mixed.update([1.0, 2.0, 4.0], [1.0, 2.0, 3.0])
    assert mixed.result() == pytest.approx(mixed.details["Pearson"] - 2 * mixed.details["MSE"])
    with pytest.raises(EvaluationError, match="not a mean"):
        mixed.per_sample([1.0], [1.0])
    low = multi_metrics({"MSE": {}, "MAE": {}})
    low.update([1.0, 3.0], [1.0, 1.0])
    assert not low.higher_is_better
    assert low.result() == pytest.approx((2.0 + 1.0) / 2)
    told = multi_metrics({"mAP": {}, "Loss": {}, "higher_is_better": [True, True]})
    assert told.weights == [0.5, 0.5]


def test_multi_metrics_refuses():
    with pytest.raises(ConfigError, match=r"multi_metrics\.weight: 1 values for 2 metrics"):
        multi_metrics({"MSE": {}, "MAE": {}, "weight": [1]})
    with pytest.raises(ConfigError, match=r"multi_metrics\.weight"):
        multi_metrics({"MSE": {}, "weight": [0]})
    with pytest.raises(ConfigError, match="no metric was given"):
        WeightedMetrics({})
