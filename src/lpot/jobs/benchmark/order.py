"""What the command line asks of a benchmark, read and carried out."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from lpot.config.schema import Config
from lpot.core.errors import ConfigError
from lpot.core.progress import Listener
from lpot.core.results.benchmark import BenchmarkResult, Layout, Settings
from lpot.core.results.profile import Profile
from lpot.core.trial import Score
from lpot.jobs.benchmark.api import Progress, benchmark
from lpot.jobs.benchmark.entry import fresh
from lpot.jobs.benchmark.plan import TimingPlan, deployed, open_model, placed, plan, score
from lpot.jobs.benchmark.profile import profile
from lpot.jobs.benchmark.runtimes import Choice, runtimes, tuned_again
from lpot.jobs.settings import read_config

YAML = (".yaml", ".yml")


@dataclass(frozen=True, eq=False)
class Order:
    """Models by path or `pkg.mod:factory`, and how to measure them."""

    models: tuple[str, ...]
    config: Config
    mode: str = "performance"
    shapes: Mapping[str, Sequence[int]] | None = None
    batch_size: int | None = None
    layouts: tuple[Layout, ...] = ()
    changes: Mapping[str, Any] = field(default_factory=dict)  # to the settings, by flags
    workspace: str | None = None  # where the last model comes from, if from a tuning
    has_config: bool = False
    evaluate: Callable[[Any], Any] | None = None  # the function that a tuning was given, if any

    @classmethod
    def read(
        cls, words: Sequence[str], *, config: Path | None, layouts: str | None, **options: Any
    ) -> Order:
        """A yaml among the words is the configuration; a workspace or deploy.yaml is its model."""
        models: list[str] = []
        source: Path | None = config
        workspace = None
        for word in words:
            found = deployed(word)
            if found is not None:
                source = source or found.config
                models.append(str(found.model))
                workspace = str(found.config.parent)
            elif Path(word).suffix.lower() in YAML and Path(word).is_file():
                source = source or Path(word)
            else:
                models.append(word)
        if not models:
            raise ConfigError("a yaml alone does not name a model: give one as well", "MODEL")
        chosen = tuple(Layout.parse(word) for word in layouts.split(",")) if layouts else ()
        return cls(
            models=tuple(models),
            config=read_config(source),
            layouts=chosen,
            workspace=workspace,
            has_config=source is not None,
            **options,
        )

    def measure(self, progress: Progress) -> BenchmarkResult:
        with placed(self.config):
            wanted = self._plan()
            return benchmark(
                self.models,
                feeds=wanted.feeds,
                shapes=self.shapes,
                batch_size=None if wanted.feeds else self.batch_size,
                settings=wanted.settings,
                layouts=self.layouts,
                environment=wanted.environment,
                progress=progress,
            )

    def score(self, listener: Listener) -> dict[str, Score]:
        found: dict[str, Score] = {}
        for path in self.models:
            label = fresh(Path(path).name, list(found))
            listener.phase(f"evaluating {label}")
            model = open_model(self.config, path)
            found[label] = score(self.config, model, listener=listener, evaluate=self.evaluate)
            model.close()
        return found

    def profile(self, progress: Progress) -> Profile:
        if len(self.models) != 2:
            raise ConfigError(
                f"given {len(self.models)} model(s), expected two: the FP32 one first, then the "
                "low-precision one",
                "--profile",
            )
        wanted = self._plan()
        return profile(
            *self.models,
            feeds=wanted.feeds,
            shapes=self.shapes,
            batch_size=None if wanted.feeds else self.batch_size,
            settings=wanted.settings,
            environment=wanted.environment,
            progress=progress,
        )

    def runtimes(self, progress: Progress) -> Choice:
        """One model; or the FP32 model and the workspace of its tuning, to build the best anew."""
        if len(self.models) == 2 and self.workspace is not None:
            model = tuned_again(self.models[0], self.workspace)
        elif len(self.models) == 1:
            model = open_model(self.config, self.models[0])
        else:
            raise ConfigError(
                f"given {len(self.models)} models, expected one, or an FP32 model and the "
                "workspace of its tuning",
                "--runtimes",
            )
        wanted = self._plan()
        feed = wanted.feeds[0] if wanted.feeds else None
        return runtimes(
            model,
            feed,
            batch_size=self.batch_size,
            shapes=self.shapes,
            settings=wanted.settings,
            progress=progress,
        )

    def _plan(self) -> TimingPlan:
        sections = self.config.evaluation
        has_loader = any(one.dataloader for one in (sections.performance, sections.accuracy))
        if not self.has_config:
            return TimingPlan(Settings(**self.changes), {})
        names = None
        if has_loader:
            first = open_model(self.config, self.models[0])
            names = first.input_names
            first.close()
        return plan(self.config, names, **self.changes)
