"""The Benchmark component: what a yaml's `evaluation` section says, carried out on one model."""

from __future__ import annotations

import logging
import math
import time
from pathlib import Path
from typing import Any, NamedTuple

from lpot.core.backend import Backend
from lpot.core.batch import Inputs
from lpot.core.cpu import probe
from lpot.core.errors import ConfigError, EvaluationError, UnsupportedModel, did_you_mean
from lpot.core.feed import Shapes
from lpot.core.measure import Timing, latency
from lpot.core.model import Model
from lpot.core.progress import Listener
from lpot.core.results.benchmark import BenchmarkResult, Measured
from lpot.core.trial import Score
from lpot.jobs.benchmark.api import benchmark
from lpot.jobs.benchmark.contestant import Contestant
from lpot.jobs.benchmark.entry import Source
from lpot.jobs.benchmark.feed import batches
from lpot.jobs.benchmark.plan import (
    ACCURACY,
    MODES,
    PERFORMANCE,
    TimingPlan,
    open_model,
    placed,
    plan,
)
from lpot.jobs.benchmark.plan import score as score_model
from lpot.jobs.component.quantizer import Quantizer
from lpot.jobs.component.records import as_model, terminal
from lpot.jobs.settings import Conf, read_config

logger = logging.getLogger(__name__)


class ModeResult(NamedTuple):
    """One mode's outcome: (accuracy, batch size, seconds of each batch). Accuracy is NaN in
    performance mode, where nothing is compared with labels."""

    accuracy: float
    batch_size: int
    seconds: list[float]


class Results(dict[str, ModeResult]):
    """By mode. Scripts of either age read them: `results['accuracy']`, `results()['accuracy']`."""

    def __call__(self) -> Results:
        return self


class Benchmarker:
    """Holds a configuration. `results` are by mode; `result` and `score` hold all figures."""

    dataset = Quantizer.dataset
    dataloader = Quantizer.dataloader

    def __init__(
        self, conf_fname_or_obj: Conf = None, *, framework: str | Backend[Any] | None = None
    ) -> None:
        self.config = read_config(conf_fname_or_obj)
        self.results = Results()
        self.result: BenchmarkResult | None = None
        self.score: Score | None = None
        self.listener: Listener = terminal()
        self._framework = framework

    def run(
        self,
        mode: str,
        model: Any,
        loader: Any = None,
        metric: Any = None,
        postprocess: Any = None,
    ) -> Results:
        if mode not in MODES:
            hint = did_you_mean(str(mode), MODES)
            raise ConfigError(f"given {mode!r}, expected {' or '.join(MODES)}{hint}", "mode")
        if model is None:
            raise ConfigError("no model was given: set `model`, or pass it to the call", "model")
        self.listener.phase("loading the model")
        source = as_model(model)
        opened = open_model(self.config, source, self._framework)
        try:
            if mode == ACCURACY:
                self.results[mode] = self._accuracy(opened, loader, metric, postprocess)
            else:
                self.results[mode] = self._performance(source, opened, loader)
        finally:
            self.listener.close()
        return self.results

    @property
    def modes(self) -> tuple[str, ...]:
        """What the yaml's evaluation section names; performance when it names nothing."""
        named = self.config.evaluation.model_fields_set
        return tuple(mode for mode in (ACCURACY, PERFORMANCE) if mode in named) or (PERFORMANCE,)

    def _accuracy(self, model: Model, loader: Any, metric: Any, postprocess: Any) -> ModeResult:
        self.listener.phase("evaluating")
        clock = _Clock(self.listener)
        self.score = score_model(self.config, model, loader, metric, postprocess, clock)
        count = max(1, len(clock.seconds))
        size = -(-(self.score.samples or count) // count)
        self._say(f"accuracy mode: Accuracy is {self.score.accuracy:.4f}, Batch size = {size}")
        return ModeResult(self.score.accuracy, size, clock.seconds or [self.score.seconds])

    def _performance(self, source: Any, model: Model, loader: Any) -> ModeResult:
        with placed(self.config):
            wanted = plan(self.config, model.input_names, loader)
            model.close()
            for note in wanted.notes:
                self.listener.note(note)
            self.result = found = self._measure(source, model, wanted)
        one = found.models[0]
        if one.timing is None:
            raise EvaluationError(f"the model could not be measured: {one.error}")
        for part in one.fallen:
            self.listener.note(f"warning: instance {part.number} failed: {part.error}")
        size = found.batch_size
        self._say(
            f"performance mode: Batch size = {size}, "
            f"Latency: {one.timing.median / size * 1e3:.3f} ms, "
            f"Throughput: {one.throughput:.3f} images/sec"
        )
        return ModeResult(math.nan, size, list(one.timing.samples))

    def _measure(self, source: Any, model: Model, wanted: TimingPlan) -> BenchmarkResult:
        try:
            return benchmark(
                [self._entry(source, model)],
                feeds=wanted.feeds,
                settings=wanted.settings,
                environment=wanted.environment,
                progress=self._step,
            )
        except UnsupportedModel as error:
            if wanted.settings.instances > 1 or wanted.settings.cores_per_instance is not None:
                raise
            self.listener.note(f"timed in this process: {error}")
            return _here(model, wanted)

    def _entry(self, source: Any, model: Model) -> Source:
        """The file itself, unless the yaml says more about the model than the file does."""
        section = self.config.model
        if isinstance(source, str | Path) and not (section.inputs or section.outputs):
            return Contestant(str(source), framework=model.backend.name)
        return model

    def _step(self, done: int, total: int) -> None:
        if done == 1:
            self.listener.phase("timing", total)
        self.listener.step(done)

    def _say(self, text: str) -> None:
        logger.info("%s", text)
        self.listener.note(text)


class _Clock(Listener):
    """Seconds between the steps of an evaluation: data, model and metric together."""

    def __init__(self, listener: Listener) -> None:
        self.seconds: list[float] = []
        self._listener = listener
        self._last = time.perf_counter()

    def expect(self, total: int) -> None:
        self._last = time.perf_counter()
        self._listener.expect(total)

    def step(self, done: int) -> None:
        now = time.perf_counter()
        self.seconds.append(now - self._last)
        self._last = now
        self._listener.step(done)

    def note(self, text: str) -> None:
        self._listener.note(text)


def _here(model: Model, wanted: TimingPlan) -> BenchmarkResult:
    """One round in this process, for a model that can't be sent to another."""
    settings = wanted.settings
    given = batches(model.inputs, wanted.feeds, seed=settings.seed)
    feed: Inputs = given.arrays[0]
    if given.by_place and model.inputs is None:
        feed = tuple(given.arrays[0].values())
    timing: Timing = latency(
        lambda: model.backend.run(model, feed),
        warmup=settings.warmup,
        iteration=settings.iteration,
        seconds=settings.seconds,
        batch_size=given.shapes.batch_size,
    )
    one = Measured("model", model.framework, timing, size=model.nbytes)
    shapes: Shapes = given.shapes
    notes = ("timed in the calling process",)
    return BenchmarkResult((one,), shapes.inputs, shapes.batch_size, settings, probe(), notes)
