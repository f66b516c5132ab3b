"""`approach: weight_only`: the usual job with formats of few bits, phases and perplexity."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

import numpy as np

from lpot.backends import copy_beside
from lpot.config.schema import Config
from lpot.core.batch import Inputs, InputSpec
from lpot.core.errors import LpotError
from lpot.core.files.card import write_text
from lpot.core.measure import Comparison, compare, latency, rounds_needed, turns
from lpot.core.model import Model
from lpot.core.numerics.observations import Observations
from lpot.core.recipe import OpConfig, OpKey, Recipe
from lpot.core.results.result import Result
from lpot.core.space import TuningSpace
from lpot.core.strategy import Tradeoff, Tradeoffs
from lpot.core.trial import Score
from lpot.jobs.decoder.inputs import feeds, fixed_rows, is_cache
from lpot.jobs.decoder.paired import PairedPerplexity
from lpot.jobs.decoder.prepare import (
    MODEL,
    OUT_FOLDER,
    bound,
    folder_of,
    prepared,
    strategy_name,
)
from lpot.jobs.decoder.reading import reader
from lpot.jobs.decoder.tokens import GENAI, TOKENIZER
from lpot.jobs.tune.job import Job, weights_folder
from lpot.jobs.tune.mode import Mode
from lpot.jobs.tune.request import Request
from lpot.strategy.mixed_bits import path_of

# -- The two phases of a decoder, timed apart: reading a prompt, and generating the next token.


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


# -- A second format of weights, for prompts alone: what it would save, and the recipe of it.
#
# The best format of a weight may differ between generating tokens and reading prompts. A decoder
# can hold both; that costs memory, so that it is offered and not done unasked.


TOKEN, PROMPT = 0, 1  # phases of a tradeoff
WORTH = 0.85  # of the time for a prompt, from which on a second format is not worth a word


@dataclass(frozen=True)
class Second:
    """The formats for prompts, beside the ones that a search has found."""

    recipe: Recipe
    time: float  # of a prompt's products, as a share of what they take without it
    size: int  # bytes of the weights that are stored twice


def second_format(
    space: TuningSpace, tradeoffs: Tradeoffs, best: Recipe, share: float = 1.0
) -> Second | None:
    """The fastest formats for prompts whose error is at most this share of the best's.

    None where they would save little. Tables stay what they are: looking up takes no time.
    """
    products = {
        key: options
        for key, options in tradeoffs.items()
        if options and all(len(option.phases) > PROMPT for option in options)
        if any(option.phases[PROMPT] for option in options)
    }
    chosen = _chosen(products, best)
    if not products or len(chosen) < len(products):
        return None
    by_prompt = {
        key: [replace(option, time=option.phases[PROMPT], size=0) for option in options]
        for key, options in products.items()
    }
    path = path_of(space, by_prompt)
    error = share * sum(option.error for option in chosen.values())
    wanted = path.recipe(path.first_below(error)).ops
    recipe = best.replace({key: wanted[key] for key in products})
    found = _chosen(products, recipe)
    before, after = (
        sum(option.phases[PROMPT] for option in each.values()) for each in (chosen, found)
    )
    if not before or after > WORTH * before:
        return None
    twice = sum(found[key].size for key in found if found[key].config != chosen[key].config)
    return Second(recipe, after / before, twice)


def _chosen(tradeoffs: Tradeoffs, recipe: Recipe) -> dict[OpKey, Tradeoff]:
    return {
        key: option
        for key, options in tradeoffs.items()
        for option in options
        if option.config == recipe.ops.get(key)
    }


SHARES = (1.0, 0.5)  # of the best's error: what a second format may add, tried in turn


@runtime_checkable
class Rounding(Protocol):
    """A backend that rounds weights alone, keeps them on disk and can tell what each does."""

    known: Mapping[OpKey, Sequence[Tradeoff]]  # what `tradeoffs` found

    def write_joined(self, token: Any, prompt: Any, path: Path) -> None: ...

    def tradeoffs(
        self,
        model: Any,
        choices: Mapping[OpKey, Sequence[OpConfig]],
        observations: Observations,
    ) -> Tradeoffs: ...


@dataclass(frozen=True, eq=False, kw_only=True)
class DecoderJob(Job):
    """A job whose choices are formats of weights. It also serves graphs that are no decoders."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for evaluator in (self.evaluator, self.held_out):
            if isinstance(evaluator, PairedPerplexity):
                evaluator.keep_in(weights_folder(self.workspace.folder, self.fingerprint).parent)

    @property
    def is_cached(self) -> bool:
        """Has the model a KV cache, so that its phases can be told apart?"""
        return any(is_cache(spec) for spec in self.model.inputs or ())

    @cached_property
    def measure(self) -> Any:
        if not self.is_cached:
            return super().measure
        section = self.config.quantization.weight_only
        timed = self.request.measure_speed and "performance" in self.objectives.words
        return PhaseLook(self.model, section.prompt, section.prompt_length, timed)

    @property
    def timing_inputs(self) -> Inputs | None:
        """A token behind a cache: what a user waits for again and again."""
        if not self.is_cached:
            return super().timing_inputs
        length = self.config.quantization.weight_only.prompt_length
        return token_case(length).inputs(tuple(self.model.inputs or ()))

    def tradeoffs(self) -> Tradeoffs:
        """Error, time and bytes of each format of each op."""
        if not isinstance(self.backend, Rounding):
            return {}
        recipe = self.space.default()
        self.backend.known = self.findings.tradeoffs(recipe, lambda: self._find(recipe.samples))
        return self.backend.known

    def _find(self, samples: int) -> Tradeoffs:
        observations = self.observe(samples)
        if not isinstance(self.backend, Rounding) or observations is None or not observations.probe:
            return {}
        self.listener.phase("rounding the weights and measuring the effect of each on the outputs")
        try:
            return self.backend.tradeoffs(self.model, self.space.choices, observations)
        except LpotError as error:
            self.add_note(f"tradeoffs: {error}; the search continues without them")
            return {}

    def package(self, result: Result) -> None:
        """The folder for plain onnxruntime and genai, and both phases in every batch size."""
        if result.path is None or not self.is_cached:
            return
        folder = self.workspace.folder / OUT_FOLDER
        folder.mkdir(parents=True, exist_ok=True)
        source = folder_of(self.request.model)
        if source is not None:
            copy_beside(source, folder)
        _copy_model(result.path, folder / MODEL)
        files = {TOKENIZER: "its tokenizer", GENAI: GENAI}
        beside = [word for name, word in files.items() if (folder / name).is_file()]
        self.add_note(f"{folder}: the model" + (f" with {' and '.join(beside)}" if beside else ""))
        if result.best is not None and result.met:
            self._add_second_format(result, result.best.recipe, folder / MODEL)
        if not self.request.measure_speed or result.interrupted or result.met is False:
            return
        self.listener.phase("timing prompts and tokens, batch 1 and 4")
        length = self.config.quantization.weight_only.prompt_length
        rows = fixed_rows(self.model.inputs)
        batches = BATCHES if rows is None else (rows,)
        found = compare_phases(self.model, result.model, length, batches)
        write_text(self.workspace.folder / "phases.json", json.dumps(found, indent=1) + "\n")
        self.add_note(told(found))

    def _add_second_format(self, result: Result, best: Recipe, path: Path) -> None:
        """Formats for prompts beside those for tokens where that was asked for, else the offer."""
        if not isinstance(self.backend, Rounding):
            return
        asked = self.config.quantization.weight_only.two_formats
        for share in SHARES if asked else SHARES[:1]:
            second = second_format(self.space, self.backend.known, best, share)
            if second is None:
                break
            gain = f"prompts in about {second.time:.0%} of the time"
            cost = f"{second.size / 1e6:.0f} MB more"
            if not asked:
                self.add_note(
                    f"a second format of the weights would process {gain}, for {cost} on disk and "
                    "in memory: set quantization.weight_only.two_formats"
                )
                return
            prompt = self.build(second.recipe)
            if self._holds(prompt, result):
                self.backend.write_joined(result.model, prompt, path)
                self.add_note(f"{path}: two formats of the weights, {gain}, for {cost}")
                return
        if asked:
            self.add_note(
                "two_formats: no second format for prompts is worthwhile and meets the bar"
            )

    def _holds(self, model: Model, result: Result) -> bool:
        if self.evaluator is None or result.baseline is None:
            return False
        self.listener.phase("evaluating the formats for prompts")
        return self.goal.is_met(self.evaluator(model).accuracy, result.baseline.accuracy)


def _copy_model(source: Path, target: Path) -> None:
    """With the data that a model of more than 2 GB keeps in a file of its own."""
    pieces = list(source.parent.glob(f"{source.name}*.data"))
    names = source.read_bytes() if pieces else b""
    for piece in pieces:
        if piece.name.encode() in names:
            shutil.copyfile(piece, target.parent / piece.name)
    shutil.copyfile(source, target)


class WeightOnly(Mode):
    """Weights alone, in few bits: decoders, with text to calibrate and measure on."""

    kind = DecoderJob
    for_speed = False  # fewer bytes are the point; what is slower is said

    def prepared(self, request: Request) -> Request:
        return prepared(request)

    def bound(self, request: Request, config: Config, model: Model) -> Request:
        return bound(request, config, model)

    def strategy_name(self, request: Request, config: Config) -> str:
        return strategy_name(request, config)
