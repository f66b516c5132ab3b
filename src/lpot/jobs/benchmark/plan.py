"""What a yaml's `evaluation` section asks of a benchmark: settings, batches, a score."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from lpot.backends import detect, get_backend, named_in
from lpot.config.rules import model_spec
from lpot.config.schema import Config
from lpot.core.backend import Backend
from lpot.core.errors import ConfigError
from lpot.core.files.card import read_card
from lpot.core.files.untrusted import read_json
from lpot.core.model import Model
from lpot.core.progress import Listener
from lpot.core.results.benchmark import Settings
from lpot.core.trial import Score
from lpot.jobs.benchmark.feed import Feed, from_loader
from lpot.jobs.component.records import as_loader
from lpot.jobs.tune.evaluation import make_evaluator, yaml_loader
from lpot.jobs.tune.request import Request

ACCURACY, PERFORMANCE = "accuracy", "performance"
MODES = (PERFORMANCE, ACCURACY)
SECTION = "evaluation.performance"
DEPLOY = "deploy.yaml"
# Settings → the yaml's own words for them.
_KEYS: Mapping[str, str] = {
    "instances": "configs.num_of_instance",
    "cores_per_instance": "configs.cores_per_instance",
    "threads": "configs.intra_num_of_threads",
    "inter": "configs.inter_num_of_threads",
    "iteration": "iteration",
    "warmup": "warmup",
}


@dataclass(frozen=True, eq=False)
class TimingPlan:
    """How one or several models are to be timed, and on which batches (None: made up)."""

    settings: Settings
    environment: Mapping[str, str]
    feeds: Sequence[Feed] | None = None
    notes: tuple[str, ...] = ()


def plan(
    config: Config, names: Sequence[str] | None, loader: Any = None, **changes: Any
) -> TimingPlan:
    """What the section says; `changes` to the settings win over it, and so does a loader given."""
    section = config.evaluation.performance
    configs = section.configs
    wanted = section.iteration if section.iteration > 0 else None
    said = {
        "warmup": section.warmup,
        "iteration": wanted,
        "threads": configs.intra_num_of_threads,
        "inter": configs.inter_num_of_threads,
        "instances": configs.num_of_instance,
        "cores_per_instance": configs.cores_per_instance,
        **{name: value for name, value in changes.items() if value is not None},
    }
    settings = Settings(**{name: value for name, value in said.items() if value is not None})
    environment = {
        variable: str(value)
        for variable, value in (
            ("KMP_BLOCKTIME", configs.kmp_blocktime),
            ("KMP_AFFINITY", configs.kmp_affinity),
        )
        if value is not None
    }
    loader = as_loader(loader) if loader is not None else _own_loader(config)
    if loader is None:
        return TimingPlan(settings, environment)
    feeds, whole = from_loader(loader, names, settings.iteration)
    notes: tuple[str, ...] = ()
    if settings.iteration is None:
        # "All of them", and round again while there is time: one pass may be over in a blink.
        settings = replace(settings, minimum=len(feeds))
        if not whole:
            notes = (f"the first {len(feeds)} batches of the loader are timed, in turn",)
    return TimingPlan(settings, environment, feeds, notes)


def _own_loader(config: Config) -> Any:
    """The yaml's loader for timing, or the one for accuracy: both give the model's inputs."""
    sections = config.evaluation
    for name, section in (("performance", sections.performance), ("accuracy", sections.accuracy)):
        if section.dataloader is not None:
            return yaml_loader(config, section.dataloader, f"evaluation.{name}.dataloader")
    return None


@contextlib.contextmanager
def placed(config: Config) -> Iterator[None]:
    """Errors about settings name the yaml's key and line where the yaml said it."""
    try:
        yield
    except ConfigError as error:
        path = f"{SECTION}.{_KEYS.get(error.path, '')}"
        section = config.evaluation.performance
        inside = {*section.model_fields_set, *section.configs.model_fields_set}
        if error.path not in _KEYS or path.rpartition(".")[2] not in inside:
            raise
        said = str(error).removeprefix(f"{error.path}: ")
        raise ConfigError(said, path, config.where(path)) from error


def open_model(config: Config, source: Any, framework: str | Backend[Any] | None = None) -> Model:
    """The model behind a path, an object of a framework, or a handle."""
    if isinstance(source, Model):
        return source
    path = Path(source) if isinstance(source, str | Path) else None
    card = {} if path is None else read_card(path)
    named = framework or named_in(card) or config.model.framework or detect(source)
    backend = get_backend(named)
    if card and path is not None:
        return backend.restore(path)
    return backend.opened(source, model_spec(config))


def score(
    config: Config,
    model: Model,
    loader: Any = None,
    metric: Any = None,
    postprocess: Any = None,
    listener: Listener | None = None,
    evaluate: Callable[[Any], Any] | None = None,
) -> Score:
    """The model's accuracy, by the section's metric and data or by those given."""
    request = Request(
        config=config,
        model=None,
        eval_loader=as_loader(loader),
        metric=metric,
        eval_func=evaluate,
        postprocess=postprocess,
        listener=listener or Listener(),
    )
    evaluator = make_evaluator(request, model)
    if evaluator is None:
        raise ConfigError(
            "accuracy can't be measured without a metric: name one in "
            "`evaluation.accuracy.metric`, or set `metric`, and give data to evaluate on; a model "
            "that was tuned with a function is evaluated by it (--eval my_eval:accuracy)",
            path="evaluation.accuracy.metric",
            where=config.where("evaluation.accuracy"),
        )
    return evaluator(model)


@dataclass(frozen=True)
class Deployed:
    """What a tuning left: its deploy.yaml, and the model that it is about."""

    config: Path
    model: Path


def deployed(place: str | Path) -> Deployed | None:
    """The tuning behind a workspace or its deploy.yaml; None when it is neither."""
    path = Path(place)
    config = path / DEPLOY if path.is_dir() else path
    if config.name != DEPLOY or not config.is_file():
        return None
    result = config.with_name("result.json")
    advice = "tune again in that workspace, or name the model as well"
    raw = read_json(result, advice, ConfigError)
    name = raw.get("model", "") if isinstance(raw, dict) else ""
    if name is None:
        raise ConfigError(f"{config}: the tuning could not write its model; name one as well")
    # The file may be anybody's: its model lies beside it and nowhere else.
    if not isinstance(name, str) or Path(name).name != name or not name.isprintable():
        raise ConfigError(f"{result}: damaged, it names no model beside it: {advice}")
    try:
        config.with_name(name).exists()
    except (OSError, ValueError) as error:
        raise ConfigError(f"{result}: damaged, it names no file ({error}): {advice}") from error
    return Deployed(config, config.with_name(name))
