"""What scores a model: the user's function, or loader and metric from code or yaml."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from lpot.config.schema import Config
from lpot.config.section import Section
from lpot.core.errors import ConfigError, DataError
from lpot.core.evaluation.evaluate import Evaluator, FunctionEvaluator, MetricEvaluator
from lpot.core.model import Model
from lpot.jobs.decoder.tokens import TokenWindows
from lpot.jobs.tune.request import Request

Note = Callable[[str], None]

ACCURACY = "evaluation.accuracy"
DIRECTION = "tuning.accuracy_criterion.higher_is_better"


def make_evaluator(
    request: Request, reference: Model, note: Note = lambda text: None
) -> Evaluator | None:
    """eval_func first, then metric and loader; None when there is nothing to evaluate with."""
    if request.eval_func is not None:
        idle = _idle(request)
        if idle:
            note(f"{request.door.evaluate} evaluates, so that {' and '.join(idle)} have no effect")
        return FunctionEvaluator(request.eval_func, request.listener, request.door.evaluate)
    section, door = request.config.evaluation.accuracy, request.door
    metric = _metric(request)
    if metric is None:
        if request.eval_loader is not None:
            raise ConfigError(
                f"an evaluation loader was given without a metric: give {door.metric}, name one in "
                f"`{ACCURACY}.metric` in the yaml, or give {door.evaluate} a function",
                path=door.eval_loader,
            )
        return None
    loader = request.eval_loader
    if loader is None and section.dataloader is not None:
        loader = yaml_loader(request.config, section.dataloader, f"{ACCURACY}.dataloader")
    if loader is None:
        raise ConfigError(
            f"a metric was given without data to evaluate on: give {door.eval_loader}, or "
            f"`{ACCURACY}.dataloader` in the yaml",
            path=door.metric,
        )
    if section.iteration < 0 and getattr(getattr(loader, "dataset", None), "endless", False):
        raise ConfigError(
            "the evaluation dataset never ends: say how many batches to evaluate",
            path=f"{ACCURACY}.iteration",
            where=request.config.where(f"{ACCURACY}.dataloader"),
        )
    for text in _remarks(request.config, metric):
        note(text)
    if isinstance(loader, TokenWindows):
        from lpot.jobs.decoder.paired import PairedPerplexity
        from lpot.metric.language import Perplexity

        if isinstance(metric, Perplexity):
            return PairedPerplexity(loader, metric, request.listener)
    post = _postprocess(request)
    return MetricEvaluator(loader, metric, post, section.iteration, request.listener, reference)


def _idle(request: Request) -> list[str]:
    """What is set beside a function that evaluates by itself."""
    set_beside = {
        request.door.eval_loader: request.eval_loader,
        request.door.metric: request.metric,
        "postprocess": request.postprocess,
    }
    return [name for name, value in set_beside.items() if value is not None]


def calibration_loader(request: Request) -> Any:
    """The loader given, or the one the yaml describes; None when there is none."""
    if request.calib is not None:
        return request.calib
    section = request.config.quantization.calibration.dataloader
    if section is None:
        return None
    return yaml_loader(request.config, section, "quantization.calibration.dataloader")


def _metric(request: Request) -> Any:
    """The metric given in code, or the one or several of the yaml."""
    from lpot.metric import as_metric, multi_metrics

    framework = request.config.model.framework
    if request.metric is not None:
        return as_metric(request.metric, framework)
    section = request.config.evaluation.accuracy
    if section.multi_metrics is not None:
        with _placed(request.config, f"{ACCURACY}.multi_metrics"):
            return multi_metrics(plain(section.multi_metrics), framework)
    if section.metric is None:
        return None
    with _placed(request.config, f"{ACCURACY}.metric"):
        return as_metric(plain(section.metric), framework)


def _remarks(config: Config, metric: Any) -> Iterator[str]:
    """What the user should know about a metric and settings that don't go together."""
    wanted = config.tuning.accuracy_criterion.higher_is_better
    better = getattr(metric, "higher_is_better", wanted)
    if better is not wanted:
        name = getattr(metric, "name", type(metric).__name__)
        word = "higher" if better else "lower"
        yield (
            f"warning: {_at(config, DIRECTION)}{DIRECTION} is {str(wanted).lower()}, but for the "
            f"metric {name} {word} is better: set it to {str(better).lower()}, "
            "or worse models will pass"
        )
    given = sorted(config.evaluation.accuracy.configs.model_fields_set)
    if given:
        place = f"{ACCURACY}.configs"
        yield (
            f"{_at(config, place)}{place} ({', '.join(given)}) has no effect while tuning: "
            "accuracy does not depend on it, and the whole processor is used; `lpot benchmark` has "
            "--threads, --instances and --cores-per-instance"
        )


def yaml_loader(config: Config, section: Any, path: str) -> Any:
    """The loader that a `dataloader` section of the yaml describes."""
    from lpot.data import build_loader

    with _placed(config, path):
        return build_loader(plain(section), path, seed=config.tuning.random_seed)


def _postprocess(request: Request) -> Callable[[Any], Any] | None:
    from lpot.data.postprocess import as_postprocess

    given: Any = request.postprocess
    if given is not None:
        made: Callable[[Any], Any] = as_postprocess(given)
        return made
    path = f"{ACCURACY}.postprocess.transform"
    steps = plain(request.config.evaluation.accuracy.postprocess).get("transform") or {}
    if not steps:
        return None
    with _placed(request.config, path):
        chain: Callable[[Any], Any] = as_postprocess(steps, path)
        return chain


@contextlib.contextmanager
def _placed(config: Config, path: str) -> Iterator[None]:
    """Errors of what is made from a section of the yaml say where in the file it stands."""
    try:
        yield
    except ConfigError as error:
        place = _place(path, error.path)
        said = str(error).removeprefix(f"{error.path}: ")
        raise ConfigError(said, place, config.where(place)) from error
    except DataError as error:
        where = config.where(f"{path}.dataset") or f"{path}.dataset"
        raise DataError(f"{where}: {error}") from error


def _place(section: str, inside: str) -> str:
    """The whole path of what an error names inside a section.

    >>> _place("evaluation.accuracy.metric", "topk.k"), _place("a.metric", "metric")
    ('evaluation.accuracy.metric.topk.k', 'a.metric')
    """
    if inside == section or inside.startswith(f"{section}."):
        return inside
    name = section.rpartition(".")[2]
    inside = "" if inside == name else inside.removeprefix(f"{name}.")
    return f"{section}.{inside}" if inside else section


def _at(config: Config, path: str) -> str:
    where = config.where(path)
    return f"{where}: " if where else ""


def plain(section: Any) -> Any:
    """A config section as plain dicts and lists, with only what the user set."""
    if isinstance(section, Section):
        return section.model_dump(exclude_unset=True)
    return dict(section) if isinstance(section, Mapping) else section
