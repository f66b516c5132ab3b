"""The two phases of a decoder, timed apart: reading a prompt, and generating the next token."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lpot.core.batch import InputSpec
from lpot.core.measure import Comparison, compare, latency, rounds_needed, turns
from lpot.core.model import Model
from lpot.core.trial import Score
from lpot.jobs.decoder.inputs import feeds
from lpot.jobs.decoder.reading import reader

PAST = 128  # positions in the cache when a token is timed, at most half the prompt
SECONDS = 0.3  # for a quick look at one phase
TURN = 0.4  # seconds of one turn, in the end
BATCHES = (1, 4)


@dataclass(frozen=True)
class Case:
    """What is timed: `tokens` tokens behind a cache of `past`, in so many rows."""

    name: str
    batch: int
    tokens: int
    past: int

    def inputs(self, specs: Sequence[InputSpec]) -> dict[str, np.ndarray]:
        return feeds(specs, self._ids(), self.past)

    def call(self, model: Model) -> Callable[[], np.ndarray]:
        """Reads them with the model, with the cache in place where it can be."""
        reading = reader(model, self.batch, self.past + self.tokens)
        return reading.call(self._ids(), self.past)

    def _ids(self) -> np.ndarray:
        return np.random.default_rng(0).integers(3, 90, (self.batch, self.tokens))


def token_case(length: int, batch: int = 1) -> Case:
    return Case(f"token, batch {batch}", batch, 1, min(PAST, length // 2))


def prompt_case(length: int, batch: int = 1) -> Case:
    return Case(f"prompt of {length}, batch {batch}", batch, length, 0)


def cases(length: int, batches: Sequence[int] = BATCHES) -> tuple[Case, ...]:
    """Prompt and token, each in every batch size. Prompts side by side are shorter: the logits of
    a whole one take more memory than the weights in few bits."""
    tokens = [token_case(length, rows) for rows in batches]
    return (*tokens, *(prompt_case(max(1, length // rows), rows) for rows in batches))


class PhaseLook:
    """A quick look at both phases of a trial, as one number: seconds of a token, weighed.

    What a prompt takes counts by its share against FP32's, in tokens of FP32.
    """

    def __init__(self, reference: Model, share: float, length: int, time: bool = True) -> None:
        self.reference = reference
        self.share = share
        self.length = length
        self.time = time
        self._fp32: tuple[float, float] | None = None

    def __call__(self, model: Model, score: Score) -> Score:
        if not self.time:
            return score
        if self._fp32 is None:
            self._fp32 = self._times(self.reference)
            self.reference.close()
        token, prompt = self._fp32 if model is self.reference else self._times(model)
        whole, whole_prompt = self._fp32
        mix = (1 - self.share) * token / whole + self.share * prompt / whole_prompt
        return replace(score, latency=whole * mix)

    def _times(self, model: Model) -> tuple[float, float]:
        cases = token_case(self.length), prompt_case(self.length)
        token, prompt = (self._time(model, case) for case in cases)
        return token, prompt

    def _time(self, model: Model, case: Case) -> float:
        timing = latency(case.call(model), warmup=1, seconds=SECONDS)
        return timing.minimum


def compare_phases(
    before: Model, after: Model, length: int, batches: Sequence[int] = BATCHES
) -> dict[str, dict[str, Any]]:
    """Both models in every case, in turns: seconds of each and how many times faster."""
    found: dict[str, dict[str, Any]] = {}
    for case in cases(length, batches):
        calls = [case.call(model) for model in (before, after)]
        rounds: tuple[list[tuple[float, ...]], list[tuple[float, ...]]] = ([], [])
        count = rounds_needed(0.9)
        for index in turns(2, count):
            timing = latency(calls[index], warmup=1, seconds=TURN, minimum=2)
            rounds[index].append(timing.samples)
        found[case.name] = _row(rounds, compare(*rounds, confidence=0.9))
    return found


def _row(rounds: Sequence[Sequence[tuple[float, ...]]], comparison: Comparison) -> dict[str, Any]:
    fp32, low = (float(np.median([s for turn in side for s in turn])) for side in rounds)
    return {"fp32": fp32, "low": low, "speed": comparison.ratio, "verdict": comparison.verdict}


def told(found: Mapping[str, Mapping[str, Any]]) -> str:
    """One sentence on all cases, and one on those that became slower.

    >>> told({"token": {"speed": 0.5, "low": 0.01, "verdict": "slower"}})[:38]
    'token: 0.50 times FP32 (10.0 ms). Slow'
    """
    parts = [
        f"{name}: {row['speed']:.2f} times FP32 ({1e3 * row['low']:.1f} ms)"
        for name, row in found.items()
    ]
    slower = [name for name, row in found.items() if row["verdict"] == "slower"]
    return "; ".join(parts) + (
        f". Slower than FP32 here: {', '.join(slower)}; quantization.weight_only.prompt sets how "
        "much prompts count against tokens"
        if slower
        else ""
    )
