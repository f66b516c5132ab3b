"""`approach: weight_only`: the usual job with formats of few bits, phases and perplexity."""

from __future__ import annotations

import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Protocol, runtime_checkable

from lpot.backends import copy_beside
from lpot.core.batch import Inputs
from lpot.core.card import write_text
from lpot.core.errors import LpotError
from lpot.core.model import Model
from lpot.core.observations import Observations
from lpot.core.recipe import OpConfig, OpKey, Recipe
from lpot.core.result import Result
from lpot.core.strategy import Tradeoff, Tradeoffs
from lpot.jobs.decoder.inputs import fixed_rows, is_cache
from lpot.jobs.decoder.paired import PairedPerplexity
from lpot.jobs.decoder.phases import BATCHES, PhaseLook, compare_phases, token_case, told
from lpot.jobs.decoder.prepare import MODEL, OUT_FOLDER, folder_of
from lpot.jobs.decoder.tokens import GENAI, TOKENIZER
from lpot.jobs.decoder.two_formats import second_format
from lpot.jobs.tune.job import Job, weights_folder

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
