"""From a name, class or object to a metric: the list of names, and what users add to it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, Protocol, TypeVar, runtime_checkable

from lpot.core.errors import ConfigError, did_you_mean
from lpot.core.framework import family, known
from lpot.core.options import check_options
from lpot.metric.base import BaseMetric
from lpot.metric.classification import F1, MCC, ROC, Accuracy, TopK
from lpot.metric.detection import CocoMAP, CocoMAPv2, MeanAP, VocMAP
from lpot.metric.glue import GLUE
from lpot.metric.language import LastWord, Perplexity
from lpot.metric.regression import MAE, MSE, RMSE, Loss, Pearson, Spearman
from lpot.metric.segmentation import MeanIoU
from lpot.metric.squad import SquadEM, SquadF1
from lpot.metric.text import BLEU
from lpot.metric.weighted import WeightedMetrics


class _Metrics(dict[str, type[BaseMetric]]):
    """The built-in names; called with a framework's name, the user's own for it as well."""

    def __call__(self, framework: str) -> dict[str, type[Any]]:
        return metrics_of(framework)


METRICS = _Metrics(
    {
        "topk": TopK,
        "Accuracy": Accuracy,
        "F1": F1,
        "MCC": MCC,
        "ROC": ROC,
        "MAE": MAE,
        "MSE": MSE,
        "RMSE": RMSE,
        "Loss": Loss,
        "Pearson": Pearson,
        "Spearman": Spearman,
        "mAP": MeanAP,
        "COCOmAP": CocoMAP,
        "COCOmAPv2": CocoMAPv2,
        "VOCmAP": VocMAP,
        "mIOU": MeanIoU,
        "BLEU": BLEU,
        "SquadF1": SquadF1,
        "SquadEM": SquadEM,
        "GLUE": GLUE,
        "perplexity": Perplexity,
        "last_word": LastWord,
    }
)

_overlay: dict[str, dict[str, type[Any]]] = {}  # name → framework → class, of this process

C = TypeVar("C", bound=type[Any])


@runtime_checkable
class MetricRecord(Protocol):
    """A class that is still to be made, as `lpot.experimental.common.Metric` holds it."""

    name: str
    metric_cls: type[Any]
    kwargs: Mapping[str, Any]


def metric_registry(metric_type: str, framework: str) -> Callable[[C], C]:
    """Class decorator that makes a metric known by name, for the frameworks in a comma list.

    A built-in name is refused; the user's own name may be registered again, the last one counts.
    """
    names = [name.strip() for name in framework.split(",") if name.strip()]
    for name in names:
        if name not in known():
            raise ConfigError(
                f"metric {metric_type!r} is registered for the unknown framework {name!r}"
                f"{did_you_mean(name, known())} Available: {', '.join(known())}"
            )
    if metric_type in METRICS:
        raise ConfigError(f"there is a built-in metric {metric_type!r}: choose another name")

    def register(cls: C) -> C:
        _overlay.setdefault(metric_type, {}).update(dict.fromkeys(names, cls))
        return cls

    return register


def metric_class(name: str, framework: str | None = None) -> type[Any]:
    """The class behind a name; `framework` matters for metrics users registered for some only."""
    if name in METRICS:
        return METRICS[name]
    if name not in _overlay:
        metrics = {**METRICS, **_overlay}
        raise ConfigError(
            f"unknown metric {name!r}{did_you_mean(name, metrics) or ':'} "
            f"Available: {', '.join(metrics)}",
            path=f"metric.{name}",
        )
    by_framework = _overlay[name]
    found = by_framework
    if framework is not None:
        found = {key: cls for key, cls in found.items() if key == framework} or {
            key: cls for key, cls in found.items() if family(key) == family(framework)
        }
    if not found:
        raise ConfigError(
            f"metric {name!r} is registered for {', '.join(by_framework)}, not for {framework}",
            path="metric",
        )
    classes = list(dict.fromkeys(found.values()))
    if len(classes) > 1:
        raise ConfigError(
            f"metric {name!r} differs by framework ({', '.join(by_framework)}): name the framework",
            path="metric",
        )
    return classes[0]


def metrics_of(framework: str) -> dict[str, type[Any]]:
    """All names that can be used with a framework: the built-in ones and the user's own."""
    own = {
        name: metric_class(name, framework)
        for name, by_framework in _overlay.items()
        if any(family(key) == family(framework) for key in by_framework)
    }
    return {**METRICS, **own}


def get_metric(name: str, /, **options: Any) -> Any:
    """A metric by its name in yaml.

    >>> get_metric("topk", k=5).k
    5
    """
    return _build(name, metric_class(name), options)


def _build(name: str, cls: type[Any], options: Mapping[str, Any]) -> Any:
    check_options(f"metric {name}", cls, options, name)
    return cls(**options)


def from_spec(spec: str | Mapping[str, Any], framework: str | None = None) -> Any:
    """A metric as yaml writes it: a name, {name: options}, {name: value of its first option}.

    >>> from_spec({"topk": 5}).k, from_spec("Accuracy").name
    (5, 'Accuracy')
    """
    if isinstance(spec, str):
        spec = {spec: None}
    if len(spec) != 1:
        raise ConfigError(
            f"{len(spec)} metrics ({', '.join(map(str, spec))}) where one is expected: "
            "use multi_metrics for several",
            path="metric",
        )
    ((name, value),) = spec.items()
    cls = metric_class(name, framework)
    if value is None or value == {}:
        return _build(name, cls, {})
    if isinstance(value, Mapping):
        return _build(name, cls, value)
    first = next(iter(inspect.signature(cls).parameters), None)
    if first is None:
        raise ConfigError(f"takes no options, but {value!r} was given", path=name)
    return _build(name, cls, {first: value})


def multi_metrics(section: Mapping[str, Any], framework: str | None = None) -> WeightedMetrics:
    """The `multi_metrics` section of yaml: metrics beside `weight` and `higher_is_better`.

    >>> multi_metrics({"topk": 1, "MSE": {"compare_label": False}, "weight": [1, 2]}).weights
    [1.0, -2.0]
    """
    extra = {key: section[key] for key in ("weight", "higher_is_better") if key in section}
    metrics = {
        name: from_spec({name: value}, framework)
        for name, value in section.items()
        if name not in extra
    }
    return WeightedMetrics(metrics, **extra)


def as_metric(given: Any, framework: str | None = None) -> Any:
    """A metric from what a user gave: name, yaml mapping, class, record of a class, or object."""
    if isinstance(given, str | Mapping):
        return from_spec(given, framework)
    if isinstance(given, MetricRecord):
        return _build(given.name, given.metric_cls, given.kwargs)
    if isinstance(given, type):
        given = _build(given.__name__, given, {})
    missing = [verb for verb in ("update", "result") if not callable(getattr(given, verb, None))]
    if missing:
        raise ConfigError(
            f"{given!r} can't be used as a metric: it has no {' and no '.join(missing)}; expected "
            "a name, a class, or an object with update(preds, labels), reset() and result()",
            path="metric",
        )
    return given
