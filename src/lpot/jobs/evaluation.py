"""What scores a model: the user's function, or loader and metric from code or yaml."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from lpot.core.errors import ConfigError
from lpot.core.evaluate import Evaluator, FunctionEvaluator, MetricEvaluator
from lpot.core.model import Model

if TYPE_CHECKING:
    from lpot.jobs.quantize import Request


def make_evaluator(request: Request, reference: Model) -> Evaluator | None:
    """eval_func first, then metric and loader; None when there is nothing to evaluate with."""
    if request.eval_func is not None:
        return FunctionEvaluator(request.eval_func)
    section = request.config.evaluation.accuracy
    given = request.metric if request.metric is not None else section.metric
    if given is None:
        if request.eval_loader is not None:
            raise ConfigError(
                "an evaluation loader was given without a metric: name one in "
                "`evaluation.accuracy.metric`, set `quantizer.metric`, or give eval_func",
                path="evaluation.accuracy.metric",
            )
        return None
    loader = request.eval_loader
    if loader is None and section.dataloader is not None:
        loader = _from_section(section.dataloader, request.config.tuning.random_seed)
    if loader is None:
        raise ConfigError(
            "a metric was given without data to evaluate on: give eval_dataloader, or "
            "`evaluation.accuracy.dataloader` in the yaml",
            path="evaluation.accuracy.dataloader",
        )
    from lpot.metric import as_metric

    metric = as_metric(plain(given), request.config.model.framework)
    post = _postprocess(request)
    return MetricEvaluator(loader, metric, post, section.iteration, request.listener, reference)


def calibration_loader(request: Request) -> Any:
    """The loader given, or the one the yaml describes; None when there is none."""
    if request.calib is not None:
        return request.calib
    section = request.config.quantization.calibration.dataloader
    return None if section is None else _from_section(section, request.config.tuning.random_seed)


def _from_section(section: Any, seed: int) -> Any:
    from lpot.data import build_loader

    return build_loader(plain(section), seed=seed)


def _postprocess(request: Request) -> Callable[[Any], Any] | None:
    given = request.postprocess
    if given is None:
        steps = plain(request.config.evaluation.accuracy.postprocess).get("transform") or {}
        if not steps:
            return None
        given = steps
    from lpot.data.postprocess import as_postprocess

    made: Callable[[Any], Any] = as_postprocess(given)
    return made


def plain(section: Any) -> Any:
    """A config section as plain dicts and lists, with only what the user set."""
    if hasattr(section, "model_dump"):
        return section.model_dump(exclude_unset=True)
    return dict(section) if isinstance(section, Mapping) else section
