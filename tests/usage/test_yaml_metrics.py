"""Every option of every metric can be given in yaml, and arrives."""

from __future__ import annotations

import inspect
from typing import Any

import pytest

from lpot.config import load
from lpot.config.outline import keys_of, kind_at
from lpot.core.errors import ConfigError
from lpot.jobs.tune.evaluation import plain
from lpot.metric import METRICS, as_metric, multi_metrics

PLACE = ("evaluation", "accuracy", "metric")


@pytest.mark.parametrize("name", METRICS)
def test_the_schema_has_the_options_of_the_class(name: str) -> None:
    section = kind_at((*PLACE, name)).section
    assert section is not None
    assert set(keys_of(section)) == set(inspect.signature(METRICS[name]).parameters)


def made(metric: Any) -> Any:
    return as_metric(
        plain(load({"evaluation": {"accuracy": {"metric": metric}}}).evaluation.accuracy.metric)
    )


@pytest.mark.parametrize(
    ("metric", "attribute", "value"),
    [
        ({"topk": 3}, "k", 3),
        ({"topk": {"k": "3"}}, "k", 3),
        ({"Accuracy": {"threshold": "0"}}, "threshold", 0.0),
        ({"F1": {"average": "macro"}}, "average", "macro"),
        ({"F1": {"pos_label": 0, "threshold": 0.25}}, "threshold", 0.25),
        ({"MCC": {"threshold": 0.5}}, "threshold", 0.5),
        ({"mIOU": {"num_classes": 4, "ignore_label": [0, 255]}}, "num_classes", 4),
        ({"GLUE": {"task": "sts_b", "key": "pearson"}}, "key", "pearson"),
        ({"MSE": {"compare_label": "no"}}, "compare_label", False),
        ({"mAP": {"box_order": "xyxy"}}, "box_order", "xyxy"),
        ({"VOCmAP": {"map_points": 11}}, "map_points", 11),
        (
            {"COCOmAPv2": {"output_index_mapping": {"classes": 0, "boxes": 1, "scores": 2}}},
            "mapping",
            {"classes": 0, "boxes": 1, "scores": 2},
        ),
        ("SquadEM", "name", "SquadEM"),
        ({"Spearman": None}, "name", "Spearman"),
    ],
    ids=str,
)
def test_options_arrive(metric: Any, attribute: str, value: Any) -> None:
    assert getattr(made(metric), attribute) == value


def test_labels_to_ignore() -> None:
    assert made({"mIOU": {"ignore_label": "0, 255"}}).ignore.tolist() == [0, 255]
    assert made({"mIOU": {"ignore_label": None}}).ignore.tolist() == []
    assert made("mIOU").ignore.tolist() == [255]


def test_translation_options() -> None:
    pytest.importorskip("sacrebleu")
    scorer = made({"BLEU": {"tokenize": "char", "lowercase": True}}).scorer
    assert scorer.lowercase is True and "char" in scorer.tokenizer.signature()


@pytest.mark.parametrize(
    ("metric", "message"),
    [
        ({"F1": {"average": "macr"}}, "did you mean 'macro'"),
        ({"mAP": {"box_order": "xywh"}}, "allowed: yxyx | xyxy"),
        ({"mIOU": {"ignore_label": "x"}}, "expected a whole number"),
        ({"COCOmAP": {"iou_thrs": 2}}, "expected a number from 0 to 1"),
    ],
)
def test_values_that_are_refused(metric: Any, message: str) -> None:
    with pytest.raises(ConfigError) as caught:
        made(metric)
    assert message in str(caught.value)


def test_weights_follow_the_order_written() -> None:
    """Also through a change of another key, as options of the command line are."""
    from lpot.config import override

    section = {"MSE": {}, "my_own": {"a": 1}, "topk": 1, "weight": [1, 2, 3]}
    config = load({"evaluation": {"accuracy": {"multi_metrics": section}}})
    for one in (config, override(config, {"tuning.random_seed": 5})):
        several = one.evaluation.accuracy.multi_metrics
        assert several is not None
        assert several.names == ("MSE", "my_own", "topk")
        assert list(plain(several)) == list(section)
    made = multi_metrics({"MSE": {}, "topk": 1, "weight": [0.25, 0.75]})
    assert list(made.metrics) == ["MSE", "topk"] and made.weights == [-0.25, 0.75]
