"""Scoring a model: the user's eval_func, or a loader and a metric."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from functools import cached_property
from typing import Any, Protocol

import numpy as np

from lpot.core.batch import Batch, Reader
from lpot.core.errors import DataError, a_kind
from lpot.core.evaluation.course import Course, hardness
from lpot.core.evaluation.eval_func import FunctionEvaluator, as_number, takes_session
from lpot.core.evaluation.identity import Identity, of_loader, source_hash
from lpot.core.evaluation.metric import Metric, Told
from lpot.core.evaluation.race import Race
from lpot.core.evaluation.tally import SampleScores, width
from lpot.core.model import Model
from lpot.core.numerics.resample import PieceBox
from lpot.core.progress import Listener
from lpot.core.trial import Score

__all__ = [
    "Evaluator",
    "FunctionEvaluator",
    "Metric",
    "MetricEvaluator",
    "as_number",
    "source_hash",
    "takes_session",
]


class Evaluator(Protocol):
    """Gives a Score for a model. `identity` helps to tell whether it is that of an earlier run."""

    name: str  # as messages call it
    pieces: PieceBox  # scores by sample, of the evaluations made here

    @property
    def identity(self) -> Identity: ...

    @property
    def memory(self) -> Any:
        """What the baseline taught it, as JSON: a resumed run must race as the first one did."""

    @property
    def grain(self) -> float | None:
        """How far a sample's score can be from another's; None where that is not known."""

    def remember(self, memory: Any) -> None: ...

    def __call__(self, model: Model, race: Race | None = None) -> Score: ...


def run_all(model: Model, inputs: Any) -> list[Any]:
    """Outputs of a batch; of all the data, where a graph reads them itself."""
    return model.backend.run_all(model, inputs)


class MetricEvaluator:
    """A loader and a metric; `postprocess` takes and gives (predictions, labels)."""

    def __init__(
        self,
        loader: Iterable[Any],
        metric: Metric,
        postprocess: Callable[[Any], Any] | None = None,
        iteration: int = -1,
        listener: Listener | None = None,
        reference: Model | None = None,
    ) -> None:
        if isinstance(loader, Iterator):
            raise DataError(
                f"the evaluation loader is {a_kind(loader)}, which can be read only once, "
                "but every trial reads it again: give a list, or an object with __iter__"
            )
        self.loader = loader
        self.metric = metric
        self.told = Told(metric)
        self.postprocess = postprocess
        self.listener = listener or Listener()
        self.reference = reference  # the FP32 model, for metrics that compare with its outputs
        self.name = f"metric {type(metric).__qualname__}"
        self._limit = iteration
        self._course = Course(loader, iteration)
        self._reader: Reader | None = None
        self.pieces = PieceBox()

    def __call__(self, model: Model, race: Race | None = None) -> Score:
        start = time.perf_counter()
        self.metric.reset()
        forget = getattr(self.postprocess, "reset", None)
        if forget is not None:
            forget()
        if self._course.length:
            self.listener.expect(self._course.length)
        hard: list[np.ndarray] = []
        samples = 0
        scores = SampleScores()
        visited = zip(self._course.batches(model), self._course.keys(model), strict=False)
        for number, (raw, keys) in enumerate(visited, start=1):
            batch = self._read(raw, model)
            outputs = run_all(model, batch.inputs)
            preds = outputs[0] if len(outputs) == 1 else outputs
            self._update(preds, self._labels(batch))
            samples += batch.size
            scores.add(self.told.latest, keys)
            if not self._course.is_known:
                hard.append(hardness(preds, self._losses(), batch.size))
            self.listener.step(number)
            spent = time.perf_counter() - start
            lost = race.lost(self.told.tally, spent, scores) if race else None
            if lost is not None:
                return lost
        if not samples:
            raise DataError("the evaluation loader yielded no batch: it is empty or exhausted")
        if hard and self._any_order():
            self._course.learn(hard)
        value = as_number(self.metric.result(), self.name)
        pieces = self.told.pieces or scores.pieces(value)
        self.pieces.put(model.recipe, pieces)
        return Score(value, time.perf_counter() - start, self._count(value, samples))

    @cached_property
    def identity(self) -> Identity:
        scoring = f"{self.name}, {self._limit}"
        return of_loader(self.loader, scoring, self.metric, self.postprocess)

    def _read(self, raw: Any, model: Model) -> Batch:
        """The way of reading is found with the first model and kept for all."""
        if self._reader is None or self._reader.names != model.input_names:
            self._reader = Reader(model.input_names, model.tries())
        return self._reader(raw)

    @property
    def grain(self) -> float | None:
        """How far a sample's score can be from another's; None where the score is no mean."""
        tally = self.told.tally
        return None if tally is None else width(tally.bounds)

    @property
    def memory(self) -> dict[str, list[int]] | None:
        return self._course.memory

    def remember(self, memory: Any) -> None:
        if isinstance(memory, dict):
            self._course.remember(memory)

    def _count(self, value: float, samples: int) -> int:
        """Samples as the metric counts them (questions, say, not windows), where it is their mean.

        Where the mean is over more than was scored, the larger number is on the safe side.
        """
        tally = self.told.tally
        if tally is None or not tally.seen or not math.isclose(tally.mean, value, rel_tol=1e-9):
            return samples
        return tally.seen

    def _losses(self) -> np.ndarray | None:
        """What each sample of the latest batch lost, as far as the metric tells."""
        latest = self.told.latest
        if latest is None:
            return None
        return -latest if self.told.higher_is_better else np.asarray(latest)

    def _any_order(self) -> bool:
        """Does the score stay the same in whatever order the samples come?"""
        alone = self.postprocess is None or getattr(self.postprocess, "each_batch_alone", False)
        return alone and self.told.tally is not None

    def _labels(self, batch: Batch) -> Any:
        """The labels, or what the FP32 model says where the metric compares with that."""
        if not self.told.compares_labels and self.reference is not None:
            outputs = run_all(self.reference, batch.inputs)
            return outputs[0] if len(outputs) == 1 else outputs
        if batch.labels is None and self.told.compares_labels:
            raise DataError(
                "the evaluation loader gives no labels, and the metric needs them: "
                "let it yield (inputs, labels)"
            )
        return batch.labels

    def _update(self, preds: Any, labels: Any) -> None:
        if self.postprocess is not None:
            preds, labels = self.postprocess((preds, labels))
        self.metric.update(preds, labels)
